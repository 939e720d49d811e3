package remote_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/node"
	"github.com/perdure/perdure/internal/pgtest"
)

const (
	envServerStore  = "PERDURE_TEST_SERVER_STORE"
	envServerListen = "PERDURE_TEST_SERVER_LISTEN"
	envServerLease  = "PERDURE_TEST_SERVER_LEASE" // short, unless it is set
	// envServerReunion sets how long the server waits for workers that it does not know. If it is
	// not set, the server uses its default.
	envServerReunion = "PERDURE_TEST_SERVER_REUNION"
)

// serveUntilKilled is the main function of a server that tests kill.
func serveUntilKilled() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))
	lease := 2 * time.Second
	if d, err := time.ParseDuration(os.Getenv(envServerLease)); err == nil {
		lease = d
	}
	reunion, _ := time.ParseDuration(os.Getenv(envServerReunion))
	s, err := node.Serve(context.Background(), node.ServerConfig{
		Reunion: reunion,
		Node:    node.Config{URL: os.Getenv(envServerStore), Log: log, LeaseTTL: lease},
		Listen:  os.Getenv(envServerListen), Authenticator: authn.Open{Tenant: model.DefaultTenant},
	})
	if err != nil {
		return err
	}
	fmt.Println("serving")
	<-ctx.Done()
	within, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return s.Close(within)
}

// process is a server in a process of its own.
type process struct {
	store, listen string
	reunion       time.Duration // zero for the default
	cmd           *exec.Cmd
}

// start starts the server on its store. It can be called again after the server was killed.
func (p *process) start(t *testing.T) {
	t.Helper()
	p.cmd = exec.Command(os.Args[0], "-test.run=^$")
	p.cmd.Env = append(os.Environ(), envServerStore+"="+p.store, envServerListen+"="+p.listen)
	if p.reunion > 0 {
		p.cmd.Env = append(p.cmd.Env, envServerReunion+"="+p.reunion.String())
	}
	p.cmd.Stderr = &testWriter{t: t}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}

	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}

	for lines := bufio.NewScanner(out); ; {
		if !lines.Scan() {
			t.Fatal("the server has not started")
		}
		if lines.Text() == "serving" {
			return
		}
	}
}

func (p *process) stop(t *testing.T, s os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
	_ = p.cmd.Wait() // fails, because the process was killed
}

// testWriter writes what a server logs to the log of the test, as long as the test runs.
type testWriter struct {
	mu sync.Mutex
	t  *testing.T
}

func (w *testWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.t.Context().Err() == nil {
		w.t.Log(strings.TrimSpace(string(p)))
	}
	return len(p), nil
}

// freePort returns an address on which nothing listens.
func freePort(t *testing.T) string {
	t.Helper()
	port, err := pgtest.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// gate is a body that reports its start, and ends when the test allows it.
type gate struct {
	runs    atomic.Int64
	begun   chan struct{}
	release chan struct{}
}

func newGate() *gate { return &gate{begun: make(chan struct{}, 10), release: make(chan struct{})} }

func (g *gate) pass(ctx context.Context) error {
	g.runs.Add(1)
	g.begun <- struct{}{}
	select {
	case <-g.release:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// A worker outlives its server, no matter how the server ends: the work of the worker continues, no
// body runs twice, and no attempt is consumed. That holds for bodies that end while the server is
// away, and for bodies that end after it has come back.
func TestWorkersOutliveTheirServer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		signal os.Signal
		late   bool // bodies end after the server has come back
	}{
		{"killed, bodies end later", syscall.SIGKILL, true},
		{"killed, bodies end meanwhile", syscall.SIGKILL, false},
		{"stopped, bodies end later", syscall.SIGTERM, true},
		{"stopped, bodies end meanwhile", syscall.SIGTERM, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			outlive(t, c.signal, c.late)
		})
	}
}

func outlive(t *testing.T, signal os.Signal, late bool) {
	t.Helper()
	alone, fanned, queued, called := newGate(), newGate(), newGate(), newGate()
	body := func(name string, g *gate, opts ...perdure.ActivityOption) *perdure.Activity[int, int] {
		return perdure.NewActivity(name, func(ctx context.Context, n int) (int, error) { return n + 1, g.pass(ctx) },
			append(opts, perdure.RetryPolicy{MaxAttempts: 1})...)
	}
	one, many, task := body("one", alone), body("many", fanned), body("task", queued, perdure.OnQueue("slow"))
	inline := perdure.NewWorkflow("inline", func(ctx perdure.WorkflowCtx, n int) (int, error) { return one.Run(ctx, n) })
	parallel := perdure.NewWorkflow("parallel", func(ctx perdure.WorkflowCtx, n int) (int, error) {
		a, b := many.Go(ctx, n), many.Go(ctx, n+1)
		x, err := a.Get(ctx)
		if err != nil {
			return 0, err
		}
		y, err := b.Get(ctx)
		return x + y, err
	})
	tasks := perdure.NewWorkflow("tasks", func(ctx perdure.WorkflowCtx, n int) (int, error) { return task.Run(ctx, n) })
	account := perdure.NewEntity[int]("account", perdure.OperationTimeout(time.Hour))
	deposit := perdure.NewOperation(account, "deposit", func(ctx perdure.EntityCtx, balance *int, n int) (int, error) {
		*balance += n
		return *balance, called.pass(context.Background())
	})
	calls := perdure.NewWorkflow("calls", func(ctx perdure.WorkflowCtx, n int) (int, error) { return deposit.Call(ctx, "mine", n) })

	p := &process{store: "file:" + filepath.Join(t.TempDir(), "server.db"), listen: freePort(t)}
	p.start(t)
	app, err := perdure.Dial(t.Context(), "grpc://"+p.listen, inline, parallel, tasks, task, account, calls)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := app.Close(); err != nil {
			t.Error(err)
		}
		p.stop(t, syscall.SIGKILL)
	}()

	results := map[string]func() (int, error){}
	for name, w := range map[string]*perdure.Workflow[int, int]{"inline": inline, "parallel": parallel, "tasks": tasks, "calls": calls} {
		h, err := w.Start(app.With(t.Context()), 1, perdure.RawKey("1"))
		if err != nil {
			t.Fatal(err)
		}
		results[name] = func() (int, error) { return h.Result(app.With(t.Context())) }
	}
	gates := []*gate{alone, fanned, fanned, queued, called}
	for _, g := range gates {
		<-g.begun
	}

	p.stop(t, signal)
	release := func() {
		for _, g := range []*gate{alone, fanned, queued, called} {
			close(g.release)
		}
	}
	if !late {
		release()
	}
	p.start(t)
	if late {
		// The worker has come back when a new execution runs.
		waitForWorker(t, app, inline, alone)
		release()
	}

	for name, want := range map[string]int{"inline": 2, "parallel": 5, "tasks": 2, "calls": 1} {
		if got, err := results[name](); err != nil || got != want {
			t.Errorf("%s: %d, %v; want %d", name, got, err, want)
		}
	}
	want := []int64{1, 2, 1, 1}
	if late {
		want[0]++ // the execution of waitForWorker
	}
	for i, g := range []*gate{alone, fanned, queued, called} {
		if n := g.runs.Load(); n != want[i] {
			t.Errorf("%d bodies of %d ran, want %d", n, i, want[i])
		}
	}
}

// waitForWorker starts another execution and waits until its body has started.
func waitForWorker(t *testing.T, app *perdure.App, w *perdure.Workflow[int, int], g *gate) {
	t.Helper()
	if _, err := w.Start(app.With(t.Context()), 1, perdure.RawKey("2")); err != nil {
		t.Fatal(err)
	}
	<-g.begun
}
