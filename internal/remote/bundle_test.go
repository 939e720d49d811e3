package remote_test

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/bundle"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/remote"
)

// A client that makes many calls puts them on one stream, and the server counts each of them. A
// client that makes only a few calls does not open a stream.
func TestCallsShareAStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t, program())
	b := w.dial(remote.Config{Token: key})
	count := func() { ok[int64](w)(b.Count(w.ctx, api.ListRequest{Tenant: tenant})) }
	for range 7 {
		count()
	}
	if b.HasBundles() {
		t.Error("seven calls have opened a stream")
	}
	calls := 7
	w.until("the calls share a stream", func() bool { count(); calls++; return b.HasBundles() })

	var all sync.WaitGroup
	for range 50 {
		all.Go(count)
	}
	all.Wait()
	if n := w.calls.served("Count", "OK"); n != calls+50 {
		t.Errorf("the server counts %d calls, want %d", n, calls+50)
	}
	w.must(b.Close())
	w.until("the stream has ended", func() bool { return w.calls.ended("Bundle") > 0 })
}

// A request that does not fit into a bundle goes alone.
func TestLargeRequestsGoAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, program())
	large := `"` + strings.Repeat("x", 2*bundle.MaxCall) + `"`
	w.start("large", large)
	d := ok[api.Description](w)(w.far.Describe(w.ctx, target("shop", "large")))
	if string(d.Start.Input.Data) != large {
		t.Errorf("the input has %d bytes, want %d", len(d.Start.Input.Data), len(large))
	}
}

// A call ends when its caller gives up, with an error that says what it waited for.
func TestCallInABundleIsGivenUp(t *testing.T) {
	t.Parallel()
	w, waits := newWatched(t)
	w.start("a", `"a"`)
	ctx, cancel := context.WithCancel(w.ctx)
	result := make(chan error, 1)
	go func() { result <- second(w.far.Await(ctx, target("shop", "a"))) }()
	<-waits
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("the call ended with %v", err)
	}
	w.until("the server has ended the call", func() bool { return w.calls.ended("Await") == 1 })

	soon, stop := context.WithTimeout(w.ctx, 50*time.Millisecond)
	defer stop()
	if _, err := w.far.Await(soon, target("shop", "a")); !fault.Is(err, fault.Timeout) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the call ended with %v", err)
	}
	if !w.far.HasBundles() {
		t.Error("calls that were given up have ended the stream")
	}
}

// A call ends at its deadline, even if the server reads nothing. The goroutine of the caller sends
// a call that is alone, so it must not wait for the network.
func TestCallEndsWhileTheServerReadsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, program())
	w.start("a", `"a"`)
	var gate sync.RWMutex
	cfg := w.pipe.through(remote.Config{Token: key})
	dial := cfg.Dial
	cfg.Dial = func(ctx context.Context, to string) (net.Conn, error) {
		c, err := dial(ctx, to)
		return gated{c, &gate}, err
	}
	b := ok[*remote.Backend](w)(remote.Dial(w.ctx, cfg))
	w.must(b.OpenBundles(w.ctx))

	gate.Lock()
	defer func() { w.must(b.Close()) }()
	defer gate.Unlock()
	input := text(`"` + strings.Repeat("x", 60<<10) + `"`)
	for range 4 {
		ended := make(chan error, 1)
		ctx, cancel := context.WithTimeout(w.ctx, 10*time.Millisecond)
		go func() {
			ended <- b.Signal(ctx, api.SignalRequest{Target: target("shop", "a"), Name: "more", Input: input})
		}()
		select {
		case err := <-ended:
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the call ended with %v", err)
			}
		case <-time.After(20 * time.Second):
			t.Error("the call has not ended")
		}
		cancel()
	}
}

// gated is a connection that writes only while the gate is open.
type gated struct {
	net.Conn

	gate *sync.RWMutex
}

func (c gated) Write(b []byte) (int, error) {
	c.gate.RLock()
	defer c.gate.RUnlock()
	return c.Conn.Write(b)
}

// Many callers get their own answers, also while connections break.
func TestBundlesWhileConnectionsBreak(t *testing.T) {
	t.Parallel()
	w := newWorld(t, program())
	const callers, calls = 20, 30
	var all sync.WaitGroup
	for c := range callers {
		all.Go(func() {
			shelf := address("entity:shelf", string(rune('a'+c)))
			for i := range calls {
				got, err := w.far.Call(w.ctx, api.CallRequest{Address: shelf, Name: "put", Input: text("1")})
				if err != nil {
					t.Error(err)
					return
				}
				if want := strconv.Itoa(i + 1); string(got.Data) != want {
					t.Errorf("caller %d got %s, want %s", c, got.Data, want)
					return
				}
			}
		})
	}

	broken := make(chan struct{})
	go func() {
		defer close(broken)
		for range 10 {
			w.must(w.far.OpenBundles(w.ctx))
			w.pipe.cut()
		}
	}()
	all.Wait()
	<-broken
}

// A client that moves to another server opens a new stream there, and calls that are under way
// finish.
func TestBundlesMoveOn(t *testing.T) {
	t.Parallel()
	w, waits := newWatched(t)
	w.start("a", `"a"`)
	result := make(chan error, 1)
	go func() { result <- second(w.far.Await(w.ctx, target("shop", "a"))) }()
	<-waits
	w.far.LeaveServer()
	if w.far.HasBundles() {
		t.Error("the client still uses the stream")
	}
	w.must(w.far.Signal(w.ctx, api.SignalRequest{Target: target("shop", "a"), Name: "item", Input: text(`"x"`)}))
	w.must(w.far.Settle(w.ctx, api.SettleRequest{Target: target("shop", "a"), Name: "visa", Value: text(`"y"`)}))
	w.must(<-result)
	w.until("the stream has ended", func() bool { return w.calls.served("Bundle", "OK") == 1 })
	if len(waits) > 0 {
		t.Error("the call was made again")
	}
}

// blockedCall is an engine whose calls of entities wait until the test lets them continue.
type blockedCall struct {
	api.Backend

	entered chan struct{}
	free    chan struct{}
}

func (b *blockedCall) Call(ctx context.Context, r api.CallRequest) (model.Payload, error) {
	b.entered <- struct{}{}
	<-b.free
	return b.Backend.Call(ctx, r)
}

// A server that shuts down lets calls in bundles finish. Calls that it has not started go to the
// next server, even calls that must not be repeated.
func TestServerShutsDownUnderBundles(t *testing.T) {
	t.Parallel()
	b := &blockedCall{entered: make(chan struct{}, 1000), free: make(chan struct{})}
	w := newWorldBehind(t, func(_ *world, engine api.Backend) api.Backend { b.Backend = engine; return b }, program())
	put := func(brief bool) error {
		return second(w.far.Call(w.ctx, api.CallRequest{Address: address("entity:shelf", "s"), Name: "look", View: !brief, Input: text("0"), Brief: brief}))
	}
	under := make(chan error, 1)
	go func() { under <- put(true) }()
	<-b.entered

	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		w.pipe.stop(w.ctx)
	}()
	w.until("the client uses the stream no longer", func() bool { return !w.far.UsesBundles() })
	later := make(chan error, 20)
	for range 20 {
		go func() { later <- put(true) }()
	}
	close(b.free)
	w.must(<-under)
	<-stopped
	w.pipe.start()
	for range 20 {
		w.must(<-later)
	}
}

// A call with headers that a bundle cannot carry goes alone.
func TestCallWithOtherHeadersGoesAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, program())
	ctx := metadata.AppendToOutgoingContext(w.ctx, "perdure-tenant", "nobody's")
	if _, err := w.far.Count(ctx, api.ListRequest{Tenant: tenant}); err == nil {
		t.Error("the server has not seen the header")
	}
}

// The era in which a client draws its ids reaches it through bundles too.
func TestErasInBundles(t *testing.T) {
	t.Parallel()
	w := newWorld(t, program())
	for range 3 {
		ok[model.Payload](w)(w.far.Call(w.ctx, api.CallRequest{Address: address("entity:shelf", "s"), Name: "put", Input: text("1")}))
	}
	if !w.far.HasEra() {
		t.Error("the client knows no era")
	}
}
