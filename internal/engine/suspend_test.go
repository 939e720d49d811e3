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

// A node was suspended for longer than its lease, and its monotonic clock says that no time has
// passed. The node does not answer from memory before it has renewed the lease.
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

// sharedStore is a store that several nodes may open.
type sharedStore struct {
	*deaf
	puts *atomic.Int64 // requests to owners
}

func (s sharedStore) PutInbox(ctx context.Context, rows []store.InboxRow) error {
	s.puts.Add(int64(len(rows)))
	return s.deaf.PutInbox(ctx, rows)
}

func (s sharedStore) Info() store.Info {
	i := s.deaf.Info()
	i.Shared = true
	return i
}

// A node whose lease may have ended does not say from memory that an execution exists, because
// another node may have removed the execution since. The caller asks the owner, and gives up if
// there is none.
func TestStartWithoutALease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var asleep atomic.Int64
		st := sharedStore{&deaf{Store: memory.New(memory.Options{Now: func() time.Time { return time.Now().Add(time.Duration(asleep.Load())) }})}, new(atomic.Int64)}
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
		for range 2 {
			if _, err := e.Send(t.Context(), start("a")); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)

		// The lease ends, and the node cannot renew it. No other node has fenced this one, so it
		// can still commit.
		st.deaf.deaf.Store(true)
		time.Sleep(10 * time.Second) // longer than the lease
		// The commit of an effect proves that the node still owned the shard. So the answer is
		// valid. The node must not send the message again, because its signal would arrive twice.
		with := start("a")
		with.With = []model.Event{{Name: "go"}}
		again, end := context.WithTimeout(t.Context(), time.Minute)
		defer end()
		if a, err := e.Send(again, with); err != nil || !a.Existing || st.puts.Load() > 0 {
			t.Errorf("an answer after a commit without a lease: %+v, %v; sent again %d times", a, err, st.puts.Load())
		}

		asleep.Store(int64(time.Minute))
		brief, end := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer end()
		if a, err := e.Send(brief, start("a")); err == nil {
			t.Errorf("an answer from memory after the suspend: %+v", a)
		}
		st.deaf.deaf.Store(false)
		time.Sleep(10 * time.Second)
		if a, err := e.Send(t.Context(), start("a")); err != nil || !a.Existing {
			t.Errorf("after the lease was renewed: %+v, %v", a, err)
		}
	})
}
