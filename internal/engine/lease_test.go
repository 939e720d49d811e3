package engine_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/memory"
)

// deaf is a store that does not answer renewals while it is switched on.
type deaf struct {
	store.Store
	deaf atomic.Bool
}

func (d *deaf) Renew(ctx context.Context, r store.RenewRequest) (store.View, error) {
	if !d.deaf.Load() {
		return d.Store.Renew(ctx, r)
	}
	<-ctx.Done()
	return store.View{}, store.Errorf(store.Away, "renew", "%w", ctx.Err())
}

// waiter is a worker whose workflows wait for a signal.
type waiter struct{ session *engine.Session }

func (w *waiter) Activate(a *model.Activation) {
	go func(t model.Turn) { _ = w.session.Report(context.Background(), t) }(model.Turn{
		Run: a.Start.Run, Generation: a.Generation, Seen: int64(len(a.Events)), Waits: []model.Reason{{Code: model.WaitSignal, Name: "go"}},
	})
}
func (w *waiter) Deliver(model.RunID, uint64, []model.Event)           {}
func (w *waiter) Retry(model.RunID, uint64, string)                    {}
func (w *waiter) Evict(model.RunID, uint64, string)                    {}
func (w *waiter) Query(model.RunID, uint64, model.Query)               {}
func (*waiter) Recall(model.Address, model.RunID, uint64, model.Query) {}
func (*waiter) Taken(model.RunID, uint64)                              {}

// When the store does not answer the renewals of a node, the node stops answering from memory. It
// stops before its lease ends, as measured by its own clock. It answers again after the first
// successful renewal.
func TestExplainEndsWithTheLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, explainEndsWithTheLease)
}

func explainEndsWithTheLease(t *testing.T) {
	st := &deaf{Store: memory.New(memory.Options{})}
	const lease = 500 * time.Millisecond
	e := engine.New(engine.Config{Store: st, LeaseTTL: lease})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()

	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()

	if err := e.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	w := &waiter{}
	w.session = e.Join(w, model.Offer{Tenant: model.DefaultTenant, Workflows: []string{"wf"}})
	m := start("a")
	if _, err := e.Send(t.Context(), m); err != nil {
		t.Fatal(err)
	}

	until := func(want bool) time.Duration {
		t.Helper()
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for from := time.Now(); ; <-tick.C {
			rs, ok := e.Explain(t.Context(), m.To)
			ok = ok && len(rs) == 1 && rs[0].Code == model.WaitSignal
			if took := time.Since(from); ok == want {
				return took
			} else if took > 10*time.Second {
				t.Fatalf("Explain = %v, %v; want an answer: %v", rs, ok, want)
			}
		}
	}

	until(true)
	st.deaf.Store(true)
	if took := until(false); took > lease {
		t.Errorf("answers ended %s after the last renewal that can have been answered; the lease is %s", took, lease)
	}

	for range 100 {
		if rs, ok := e.Explain(t.Context(), m.To); ok {
			t.Fatalf("Explain = %v without a lease", rs)
		}
	}

	st.deaf.Store(false)
	until(true)
}

// A node whose store no longer answers can still stop. When its lease is over, it has nothing left
// to give up.
func TestStopWithoutStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, stopWithoutStore)
}

func stopWithoutStore(t *testing.T) {
	st := &deaf{Store: memory.New(memory.Options{})}
	e := engine.New(engine.Config{Store: st, LeaseTTL: 500 * time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	if err := e.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}

	st.deaf.Store(true)
	cancel()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("the node does not stop")
	}
}
