package engine_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/fault"
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

// sleepy is a node with a shared store and an execution that waits for a signal. The node can be
// suspended, and its renewals can get no answer.
type sleepy struct {
	*engine.Engine
	st     sharedStore
	asleep *atomic.Int64 // how long the node was suspended
}

// openSleepy opens a node and starts its execution. The caller must call the returned function at
// the end.
func openSleepy(t *testing.T) (n *sleepy, stop func()) {
	t.Helper()
	var asleep atomic.Int64
	st := sharedStore{&deaf{Store: memory.New(memory.Options{Now: func() time.Time { return time.Now().Add(time.Duration(asleep.Load())) }})}, new(atomic.Int64)}
	n = &sleepy{engine.New(engine.Config{Store: st, Suspended: func() time.Duration { return time.Duration(asleep.Load()) }}), st, &asleep}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}

	if err := n.Ready(t.Context()); err != nil {
		stop()
		t.Fatal(err)
	}
	w := &waiter{}
	w.session = n.Join(w, model.Offer{Tenant: model.DefaultTenant, Workflows: []string{"wf"}})
	for range 2 {
		if _, err := n.Send(t.Context(), start("a")); err != nil {
			stop()
			t.Fatal(err)
		}
	}
	time.Sleep(time.Second)
	return n, stop
}

// loseLease ends the lease of the node, which cannot renew it. No other node has fenced this one,
// so it can still commit.
func (n *sleepy) loseLease() {
	n.st.deaf.deaf.Store(true)
	time.Sleep(10 * time.Second) // longer than the lease
}

// renew renews the lease of the node.
func (n *sleepy) renew() {
	n.st.deaf.deaf.Store(false)
	time.Sleep(10 * time.Second)
}

// A node whose lease may have ended does not say from memory that an execution exists, because
// another node may have removed the execution since. The caller asks the owner, and gives up if
// there is none.
func TestStartWithoutALease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, stop := openSleepy(t)
		defer stop()
		n.loseLease()

		// The commit of an effect proves that the node still owned the shard. So the answer is
		// valid. The node must not send the message again, because its signal would arrive twice.
		with := start("a")
		with.With = []model.Event{{Name: "go"}}
		again, end := context.WithTimeout(t.Context(), time.Minute)
		defer end()
		if a, err := n.Send(again, with); err != nil || !a.Existing || n.st.puts.Load() > 0 {
			t.Errorf("an answer after a commit without a lease: %+v, %v; sent again %d times", a, err, n.st.puts.Load())
		}

		n.asleep.Store(int64(time.Minute))
		brief, end := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer end()
		if a, err := n.Send(brief, start("a")); err == nil {
			t.Errorf("an answer from memory after the suspend: %+v", a)
		}
		n.renew()
		if a, err := n.Send(t.Context(), start("a")); err != nil || !a.Existing {
			t.Errorf("after the lease was renewed: %+v, %v", a, err)
		}
	})
}

// The same holds for a caller that starts an execution and waits for its end, and for a bundle of
// starts: the node neither names an execution nor refuses a start from memory.
func TestRunsAndBundlesWithoutALease(t *testing.T) {
	t.Parallel()
	other := func() *model.Message {
		m := start("a")
		m.Input.Data = []byte("2")
		return m
	}

	for how, begin := range map[string]func(n *sleepy, ctx context.Context, m *model.Message) (model.RunID, error){
		"run": func(n *sleepy, ctx context.Context, m *model.Message) (model.RunID, error) {
			r, err := n.Execute(ctx, m)
			return r.Run, err
		},
		"bundle": func(n *sleepy, ctx context.Context, m *model.Message) (model.RunID, error) {
			all := n.SendMany(ctx, []*model.Message{m})
			return all[0].Answer.Run, all[0].Err
		},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n, stop := openSleepy(t)
				defer stop()
				want, err := begin(n, t.Context(), start("a"))
				if err != nil || want.IsZero() {
					t.Fatalf("with a lease: run %s, %v", want, err)
				}

				n.loseLease()
				n.asleep.Store(int64(time.Minute))
				for what, m := range map[string]*model.Message{"an existing run": start("a"), "another input": other()} {
					brief, end := context.WithTimeout(t.Context(), 100*time.Millisecond)
					if run, err := begin(n, brief, m); !fault.Is(err, fault.Timeout) {
						t.Errorf("%s: from memory, without a lease: run %s, %v", what, run, err)
					}
					end()
				}

				// A caller that waits gets the answer of the owner.
				type answer struct {
					run model.RunID
					err error
				}
				waits := make(chan answer, 1)
				go func() {
					run, err := begin(n, t.Context(), start("a"))
					waits <- answer{run, err}
				}()
				synctest.Wait()
				n.renew()
				if a := <-waits; a.run != want || a.err != nil {
					t.Errorf("the answer of the owner is run %s, %v; want %s", a.run, a.err, want)
				}
				if _, err := begin(n, t.Context(), other()); !fault.Is(err, fault.Conflict) {
					t.Errorf("another input, with a lease: %v", err)
				}
			})
		})
	}
}
