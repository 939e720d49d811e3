package remote_test

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/perdure/perdure"
)

// A server dies, or stops, while one worker runs a body and another one is idle. An execution that
// no worker holds continues as soon as both workers are back. The test configures the server to
// wait for an hour for its workers, so it would notice a wait. The running body continues.
func TestServerDiesAndNothingWaits(t *testing.T) {
	t.Parallel()
	for name, signal := range map[string]os.Signal{"killed": syscall.SIGKILL, "stopped": syscall.SIGTERM} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := "file:" + filepath.Join(t.TempDir(), "server.db")
			continueAfter(t, &process{store: store, listen: freePort(t), reunion: time.Hour}, signal)
		})
	}
}

// continueAfter ends a server and starts it again. It checks that an execution that no worker holds
// continues, and logs after which time.
func continueAfter(t *testing.T, p *process, signal os.Signal) {
	t.Helper()
	g := newGate()
	body := perdure.NewActivity("body", func(ctx context.Context, n int) (int, error) { return n + 1, g.pass(ctx) }, perdure.RetryPolicy{MaxAttempts: 1})
	held := perdure.NewWorkflow("held", func(ctx perdure.WorkflowCtx, n int) (int, error) { return body.Run(ctx, n) })
	free := perdure.NewWorkflow("free", func(_ perdure.WorkflowCtx, n int) (int, error) { return n + 2, nil })
	other := perdure.NewWorkflow("other", func(_ perdure.WorkflowCtx, n int) (int, error) { return n, nil })

	p.start(t)
	defer func() { p.stop(t, syscall.SIGKILL) }()
	dial := func(defs ...perdure.Definition) *perdure.App {
		t.Helper()
		app, err := perdure.Dial(t.Context(), "grpc://"+p.listen, defs...)
		if err != nil {
			t.Fatal(err)
		}
		return app
	}
	client, busy, idle := dial(), dial(held), dial(other)
	defer func() {
		for _, app := range []*perdure.App{client, busy, idle} {
			if err := app.Close(); err != nil {
				t.Error(err)
			}
		}
	}()
	first, err := held.Start(client.With(t.Context()), 1, perdure.HashKey(t.Name()))
	if err != nil {
		t.Fatal(err)
	}
	<-g.begun
	second, err := free.Start(client.With(t.Context()), 1, perdure.HashKey(t.Name()))
	if err != nil {
		t.Fatal(err)
	}

	p.stop(t, signal)
	p.start(t)
	up := time.Now()
	late := dial(free)
	defer func() {
		if err := late.Close(); err != nil {
			t.Error(err)
		}
	}()
	if got, err := second.Result(client.With(t.Context())); err != nil || got != 3 {
		t.Errorf("the execution that no worker held: %d, %v; want 3", got, err)
	}
	t.Logf("%v: an execution continued %s after the server was up", signal, time.Since(up).Round(time.Millisecond))
	close(g.release)
	if got, err := first.Result(client.With(t.Context())); err != nil || got != 2 {
		t.Errorf("the execution whose body ran: %d, %v; want 2", got, err)
	}
	if n := g.runs.Load(); n != 1 {
		t.Errorf("the body ran %d times", n)
	}
}
