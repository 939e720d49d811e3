package engine_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/memory"
)

// slowStore is a store whose commits wait while it is closed.
type slowStore struct {
	store.Store
	mu   sync.Mutex
	open chan struct{}
}

func (s *slowStore) Commit(ctx context.Context, b *store.Batch) (store.Committed, error) {
	s.mu.Lock()
	open := s.open
	s.mu.Unlock()
	if open != nil {
		<-open
	}
	return s.Store.Commit(ctx, b)
}

// In TestCallersOfAFullEngineWaitOutside the store commits nothing for a while. Many callers send
// large requests and give up. The test checks that the engine keeps a bounded number of bytes of
// requests, and continues when the store commits again.
func TestCallersOfAFullEngineWaitOutside(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const mib = 1 << 20
		st := &slowStore{Store: memory.New(memory.Options{Shards: 8})}
		e, stop := serve(t, engine.Config{Store: st, InboxBytes: 8 * mib, CommitTimeout: 365 * day, Lane: lane.Config{MaxBytes: 8 * mib}})
		defer stop()
		send(t, e, start("before"))

		open := make(chan struct{})
		st.mu.Lock()
		st.open = open
		st.mu.Unlock()
		large := func(i int) *model.Message {
			m := start("large " + strconv.Itoa(i))
			m.Input = model.Payload{Data: make([]byte, 2*mib)}
			return m
		}
		errs := make(chan error, 64)
		for i := range cap(errs) {
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_, err := e.Send(ctx, large(i))
				errs <- err
			}()
		}
		inside := 0
		for range cap(errs) {
			if err := <-errs; err == nil {
				t.Error("a request is answered that is not stored")
			} else if !fault.Is(err, fault.Exhausted) {
				inside++
			}
		}
		// The lane and the inbox each have at most 8 MiB and one more request.
		if inside < 5 || inside > 10 {
			t.Errorf("the engine has taken %d requests of 2 MiB", inside)
		}

		close(open)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for i := range 10 {
			if _, err := e.Send(ctx, large(100+i)); err != nil {
				t.Fatalf("the store takes commits again, and the engine takes no request: %v", err)
			}
		}
	})
}
