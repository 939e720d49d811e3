package engine_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store/memory"
)

// A node that was suspended for longer than its lease does not answer from memory before it has
// renewed the lease, although its monotonic clock says that no time has passed.
func TestSuspendEndsAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var asleep atomic.Int64
		st := &deaf{Store: memory.New(memory.Options{Now: func() time.Time { return time.Now().Add(time.Duration(asleep.Load())) }})}
		e := engine.New(engine.Config{Store: st, Suspended: func() time.Duration { return time.Duration(asleep.Load()) }})
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
		time.Sleep(time.Second)
		if _, ok := e.Explain(t.Context(), m.To); !ok {
			t.Fatal("no answer before the suspend")
		}

		st.deaf.Store(true)
		asleep.Store(int64(time.Minute))
		if rs, ok := e.Explain(t.Context(), m.To); ok {
			t.Errorf("an answer from memory after the suspend: %v", rs)
		}
		st.deaf.Store(false)
		time.Sleep(10 * time.Second)
		if _, ok := e.Explain(t.Context(), m.To); !ok {
			t.Error("no answer after the lease was renewed")
		}
	})
}
