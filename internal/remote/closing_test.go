package remote_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/grpcapi"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/remote"
	"github.com/perdure/perdure/internal/replay"
)

// A new event, such as a signal, may be stored while the code of a run returns. In that case the
// engine does not store the end, and the code continues with the event, as it does in the process
// of the engine.
func TestNewsAtTheEndOfARun(t *testing.T) {
	t.Parallel()
	s := startServer(t, "memory:", grpcapi.WorkConfig{})
	var app *perdure.App
	var executions sync.Map
	news := perdure.NewSignal[int]("news")
	tell := perdure.NewActivity("tell", func(ctx context.Context, n int) (int, error) {
		h, _ := executions.LoadOrStore(n, make(chan perdure.Execution[int], 1))
		to := <-h.(chan perdure.Execution[int])
		return n, news.Send(app.With(ctx), to, n)
	})
	ends := perdure.NewWorkflow("ends", func(ctx perdure.WorkflowCtx, n int) (int, error) { return tell.Run(ctx, n) })
	app = s.open(t, ends, tell)

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for n := range 100 {
		e, err := ends.Start(app.With(ctx), n, perdure.HashKey(n))
		if err != nil {
			t.Fatal(err)
		}
		h, _ := executions.LoadOrStore(n, make(chan perdure.Execution[int], 1))
		h.(chan perdure.Execution[int]) <- e
		if got, err := e.Result(app.With(ctx)); err != nil || got != n {
			t.Fatalf("execution %d: %d, %v", n, got, err)
		}
	}
}

// A run that has ended leaves the memory of its worker.
func TestEndedRunsLeaveTheWorker(t *testing.T) {
	t.Parallel()
	s := startServer(t, "memory:", grpcapi.WorkConfig{})
	var ran atomic.Int64
	code := func(x replay.Ctx, in model.Payload) (model.Payload, error) {
		return x.Step(&replay.Step{Name: "a", Body: func(context.Context) (model.Payload, error) {
			ran.Add(1)
			return in, nil
		}})
	}
	w := replay.NewWorker(replay.Config{Code: map[string]replay.Code{"wf": code}, OwnerRestarts: true})
	work := remote.NewWork(s.conn, remote.WorkConfig{Backoff: time.Millisecond})
	defer work.Close()
	session, err := work.Join(t.Context(), w, api.Offer{Name: "w", Tenant: tenant, Workflows: []string{"wf"}})
	if err != nil {
		t.Fatal(err)
	}
	w.Serve(session)
	defer func() { _ = w.Close(t.Context()) }()

	for _, key := range []string{"1", "2", "3"} {
		a := model.Address{Tenant: tenant, Type: "wf", Key: key}
		if _, err := s.node.Backend().Start(t.Context(), api.StartRequest{Address: a}); err != nil {
			t.Fatal(err)
		}
	}
	for deadline := time.Now().Add(patience); ran.Load() < 3 || w.LoadedRuns() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d runs are still loaded", w.LoadedRuns())
		}
	}
}
