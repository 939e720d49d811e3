package engine

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/memory"
)

// rememberer is a store that counts the answers that it remembers. It can also pretend that calls
// of PutInbox have failed.
type rememberer struct {
	*memory.Store
	mu   sync.Mutex
	kept map[store.RequestKey]bool
	lost int // this many calls of PutInbox take effect and return an error
}

func newRememberer() *rememberer {
	return &rememberer{Store: memory.New(memory.Options{}), kept: map[store.RequestKey]bool{}}
}

func (r *rememberer) Commit(ctx context.Context, b *store.Batch) (store.Committed, error) {
	c, err := r.Store.Commit(ctx, b)
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range b.Requests {
		r.kept[b.Requests[i].RequestKey] = true
	}
	for _, k := range b.Forgets {
		delete(r.kept, k)
	}
	return c, err
}

func (r *rememberer) Sweep(ctx context.Context, s store.SweepRequest) (int, error) {
	r.mu.Lock()
	for _, k := range s.Answered {
		delete(r.kept, k)
	}
	r.mu.Unlock()
	return r.Store.Sweep(ctx, s)
}

func (r *rememberer) PutInbox(ctx context.Context, rows []store.InboxRow) error {
	err := r.Store.PutInbox(ctx, rows)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lost > 0 && err == nil {
		r.lost--
		return store.Errorf(store.Unknown, "put inbox", "the connection broke")
	}
	return err
}

// count returns how many answers the store has.
func (r *rememberer) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.kept)
}

// If the caller gave no request id, the store remembers the answer only until the caller has it. If
// the caller gave an id, the answer stays.
func TestAnswersGoWhenTheirCallersHaveThem(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := newRememberer()
		e := New(Config{Store: st})
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- e.Run(ctx) }()

		defer func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}()

		if err := e.Ready(ctx); err != nil {
			t.Fatal(err)
		}
		to := model.Address{Tenant: model.DefaultTenant, Type: "wf", Key: "k"}

		send := func(m model.Message) {
			t.Helper()
			m.To = to
			if _, err := e.Send(ctx, &m); err != nil {
				t.Fatal(err)
			}
		}

		send(model.Message{Kind: model.MessageStart})
		for range 50 {
			send(model.Message{Kind: model.MessageSignal, Name: "s"})
			send(model.Message{Kind: model.MessagePause})
			send(model.Message{Kind: model.MessageResume})
		}

		if n := st.count(); n > 1 {
			t.Errorf("the store remembers %d answers that their callers have, want at most the last one", n)
		}
		send(model.Message{Kind: model.MessageSignal, Name: "s", RequestID: "mine"})
		send(model.Message{Kind: model.MessageSignal, Name: "s"})
		time.Sleep(2 * e.cfg.SweepEvery) // in virtual time; the lane has nothing else to commit
		synctest.Wait()
		if n := st.count(); n != 1 {
			t.Errorf("the store remembers %d answers, want that to the request with an id of its client", n)
		}
	})
}

// A caller of another process acknowledges the answer, unless a copy of its request may still be in
// flight.
func TestAcknowledgedAnswersOfOtherOwners(t *testing.T) {
	t.Parallel()
	for _, w := range []struct {
		name  string
		id    string
		lost  int
		taken bool
		keeps int
	}{
		{name: "plain"},
		{name: "with an id of its client", id: "mine", keeps: 1},
		{name: "its first attempt to reach the store was lost", lost: 1, keeps: 1},
		{name: "an owner may have served it before", taken: true, keeps: 1},
	} {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				st := newRememberer()
				e := New(Config{Store: st})
				ctx, cancel := context.WithCancel(context.Background())
				done := make(chan error, 1)
				go func() { done <- e.Run(ctx) }()
				if err := e.Ready(ctx); err != nil {
					t.Fatal(err)
				}

				to := model.Address{Tenant: model.DefaultTenant, Type: "wf", Key: "k"}
				if _, err := e.Send(ctx, &model.Message{Kind: model.MessageStart, To: to}); err != nil {
					t.Fatal(err)
				}
				st.lost = w.lost
				m := &model.Message{Kind: model.MessageSignal, To: to, Name: "s", RequestID: w.id}
				if w.id == "" {
					m, _ = withRequestID(m)
				}
				if _, err := e.clerk.send(ctx, m, attempt{taken: w.taken}); err != nil {
					t.Fatal(err)
				}

				time.Sleep(3 * clerkPoll)
				synctest.Wait()
				if n := st.count(); n != w.keeps {
					t.Errorf("the store remembers %d answers, want %d", n, w.keeps)
				}
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		})
	}
}
