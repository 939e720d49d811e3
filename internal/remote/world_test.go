package remote_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"
	"google.golang.org/grpc/test/bufconn"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/access"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/attach"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/grpcapi"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/node"
	"github.com/perdure/perdure/internal/remote"
)

func TestMain(m *testing.M) {
	if os.Getenv(envServerStore) != "" {
		if err := serveUntilKilled(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

const (
	tenant = "default"
	key    = "0123456789abcdef0123456789abcdef"
	// patience bounds waits on a busy machine.
	patience = 2 * time.Minute
)

// world is a node with a memory store, a program that has the code, and a server in front of it.
type world struct {
	t     *testing.T
	ctx   context.Context
	local api.Backend     // in process
	far   *remote.Backend // over the wire
	calls *callLog
	pipe  *pipe
}

// newWorld opens a world whose program serves the definitions.
func newWorld(t *testing.T, defs ...perdure.Definition) *world {
	t.Helper()
	return newWorldBehind(t, func(_ *world, b api.Backend) api.Backend { return b }, defs...)
}

// newWorldBehind is like newWorld, with a wrapper between the server and the engine.
func newWorldBehind(t *testing.T, wrap func(*world, api.Backend) api.Backend, defs ...perdure.Definition) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	n, err := node.Open(ctx, node.Config{URL: "memory:", Shards: 4})
	if err != nil {
		t.Fatal(err)
	}
	app, err := attach.Open(ctx, attach.Config{Backend: n.Backend(), Tenant: model.DefaultTenant, OnClose: n.Close}, defs...)
	if err != nil {
		t.Fatal(errors.Join(err, n.Close()))
	}
	t.Cleanup(func() {
		if err := app.Close(); err != nil {
			t.Error(err)
		}
	})

	w := &world{t: t, ctx: ctx, local: n.Backend(), calls: &callLog{}}
	cfg := w.config()
	cfg.Backend = wrap(w, w.local)
	w.pipe = newPipe(t, cfg)
	w.far = w.dial(remote.Config{Token: key})
	w.must(w.far.OpenBundles(ctx)) // as in a program that makes many calls
	return w
}

func (w *world) config() grpcapi.Config {
	keys, err := authn.NewAdminKey(key, tenant)
	if err != nil {
		w.t.Fatal(err)
	}
	return grpcapi.Config{Backend: w.local, Authenticator: keys, Version: "test", Log: slog.New(w.calls), Journal: access.New(access.Config{Log: slog.New(w.calls)})}
}

// dial connects to the server.
func (w *world) dial(cfg remote.Config) *remote.Backend {
	w.t.Helper()
	b, err := remote.Dial(w.ctx, w.pipe.through(cfg))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = b.Close() })
	return b
}

// dialInHaste connects a client with little patience. It tries again until the machine is quick
// enough.
func (w *world) dialInHaste(patience time.Duration) *remote.Backend {
	w.t.Helper()
	for {
		b, err := remote.Dial(w.ctx, w.pipe.through(remote.Config{Token: key, Patience: patience}))
		switch {
		case err == nil:
			w.t.Cleanup(func() { _ = b.Close() })
			return b
		case !fault.Is(err, fault.Unavailable) || w.ctx.Err() != nil:
			w.t.Fatal(err)
		}
	}
}

// pipe is a listener in memory whose server can be stopped and started.
type pipe struct {
	t      *testing.T
	config grpcapi.Config

	mu     sync.Mutex
	listen *bufconn.Listener // nil while there is no server
	server *grpcapi.Server
	done   chan error
	conns  []net.Conn
	// refused counts attempts to connect while there was no server, by address.
	refused map[string]int
}

func newPipe(t *testing.T, cfg grpcapi.Config) *pipe {
	p := &pipe{t: t, config: cfg, refused: map[string]int{}}
	p.start()
	t.Cleanup(func() { p.stop(t.Context()) })
	return p
}

// start starts a server.
func (p *pipe) start() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listen, p.server, p.done = bufconn.Listen(1<<20), grpcapi.New(p.config), make(chan error, 1)
	go func(s *grpcapi.Server, l net.Listener, done chan error) { done <- s.Serve(l) }(p.server, p.listen, p.done)
}

// stop shuts the server down. If ctx has ended, it cuts the calls of the server off.
func (p *pipe) stop(ctx context.Context) {
	p.mu.Lock()
	server, done := p.server, p.done
	p.listen, p.server = nil, nil
	p.mu.Unlock()
	if server == nil {
		return
	}
	server.Shutdown(ctx)
	if err := <-done; err != nil {
		p.t.Error(err)
	}
}

// dial connects to the server that is there now.
func (p *pipe) dial(ctx context.Context, address string) (net.Conn, error) {
	p.mu.Lock()
	l := p.listen
	if l == nil {
		p.refused[address]++
	}
	p.mu.Unlock()
	if l == nil {
		return nil, errors.New("there is no server")
	}

	c, err := l.DialContext(ctx)
	if err == nil {
		p.mu.Lock()
		p.conns = append(p.conns, c)
		p.mu.Unlock()
	}

	return c, err
}

// cut breaks all connections, as a network does.
func (p *pipe) cut() {
	p.mu.Lock()
	conns := p.conns
	p.conns = nil
	p.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
	}
}

// through returns a config that dials through the pipe.
func (p *pipe) through(cfg remote.Config) remote.Config {
	if len(cfg.Addresses) == 0 {
		cfg.Addresses = []string{"localhost:7800"}
	}
	cfg.PlainText, cfg.Dial = true, p.dial
	return cfg
}

// hasRefused reports whether a client of an address has found no server.
func (p *pipe) hasRefused(address string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refused[address] > 0
}

// callLog notes which methods the server has served, and how they ended.
type callLog struct {
	mu    sync.Mutex
	codes map[string]map[string]int // by method and code
	lines []string
}

// Enabled reports true, because callLog reads every line.
func (*callLog) Enabled(context.Context, slog.Level) bool { return true }

// Handle notes a line.
func (l *callLog) Handle(_ context.Context, r slog.Record) error {
	attrs, line := map[string]string{}, r.Message
	r.Attrs(func(a slog.Attr) bool {
		attrs[a.Key] = a.Value.String()
		line += " " + a.String()
		return true
	})

	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)

	if r.Message == "request" {
		if l.codes == nil {
			l.codes = map[string]map[string]int{}
		}
		if l.codes[attrs["method"]] == nil {
			l.codes[attrs["method"]] = map[string]int{}
		}
		l.codes[attrs["method"]][attrs["code"]]++
	}

	return nil
}

// WithAttrs is not used.
func (l *callLog) WithAttrs([]slog.Attr) slog.Handler { return l }

// WithGroup is not used.
func (l *callLog) WithGroup(string) slog.Handler { return l }

// text returns all lines.
func (l *callLog) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines, "\n")
}

// served returns how often calls of a method ended with a code.
func (l *callLog) served(method, code string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.codes["ClientService/"+method][code]
}

// ended returns how many calls of a method have ended, with any code.
func (l *callLog) ended(method string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, times := range l.codes["ClientService/"+method] {
		n += times
	}
	return n
}

// same makes a call that only reads, in process and over the wire, and compares the results.
func same[T any](w *world, call func(api.Client) (T, error)) T {
	w.t.Helper()
	want, wantErr := call(w.local)
	got, gotErr := call(w.far)
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		w.t.Errorf("%s differs over the wire (-in process +over the wire):\n%s", reflect.TypeFor[T](), diff)
	}
	sameError(w.t, wantErr, gotErr)
	return got
}

// sameError compares the parts of two errors that callers see.
func sameError(t *testing.T, want, got error) {
	t.Helper()
	if (want == nil) != (got == nil) {
		t.Errorf("in process the error is %v, over the wire %v", want, got)
		return
	}
	if want == nil {
		return
	}
	if fault.KindOf(got) != fault.KindOf(want) || got.Error() != want.Error() {
		t.Errorf("in process the error is %q (%s), over the wire %q (%s)", want, fault.KindOf(want), got, fault.KindOf(got))
	}
	var f, g *model.Failure
	if errors.As(want, &f) != errors.As(got, &g) || f != nil && *f != *g {
		t.Errorf("in process the failure is %+v, over the wire %+v", f, g)
	}
}

// ok fails the test on an error.
func ok[T any](w *world) func(v T, err error) T {
	return func(v T, err error) T {
		w.t.Helper()
		if err != nil {
			w.t.Fatal(err)
		}
		return v
	}
}

// must fails the test on an error.
func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// until waits until a condition holds.
func (w *world) until(what string, fact func() bool) {
	w.t.Helper()
	for pause := 5 * time.Millisecond; !fact(); pause = min(pause*5/4, 100*time.Millisecond) {
		select {
		case <-time.After(pause):
		case <-w.ctx.Done():
			w.t.Fatalf("%s did not happen", what)
		}
	}
}

func address(kind, key string) model.Address {
	return model.Address{Tenant: tenant, Type: kind, Key: key}
}

func target(kind, key string) api.Target { return api.Target{Address: address(kind, key)} }

func text(s string) model.Payload { return model.Payload{Data: []byte(s)} }
