package flow

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/memory"
)

// slowCount is a store that takes a while to count executions.
type slowCount struct {
	store.Store
	took time.Duration

	mu     sync.Mutex
	open   int64 // how many executions are open
	counts int   // how many counts have begun
	err    error // the answer of the next count
}

func (s *slowCount) Count(ctx context.Context, _ store.Query) (int64, error) {
	s.mu.Lock()
	n, err := s.open, s.err
	s.counts++
	s.err = nil
	s.mu.Unlock()
	select {
	case <-time.After(s.took):
		return n, err
	case <-ctx.Done():
		return 0, store.Errorf(store.Retryable, "count", "%w", ctx.Err())
	}
}

// doorOf returns a Flow on the store in which the tenant t may have some open executions.
func doorOf(st store.Store, most int64) *Flow {
	f := New(Config{Store: st, Log: slog.New(slog.DiscardHandler), Timeout: time.Minute})
	f.doors.set(map[string]rule.Allowance{"t": {Open: most}})
	return f
}

func isNew(context.Context) (bool, error) { return false, nil }

// start lets a client start an execution.
func (s *slowCount) start(ctx context.Context, f *Flow) error {
	done, err := f.Admit(ctx, "t", isNew)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.open++
	s.mu.Unlock()
	done(true)
	return nil
}

// A tenant never has more open executions than its allowance, even if the store takes so long to
// count them that other clients ask in the meantime.
func TestAllowanceHoldsDuringSlowCounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st, ctx := &slowCount{Store: memory.New(memory.Options{})}, t.Context()
		f := doorOf(st, 3)
		for range 3 {
			if err := st.start(ctx, f); err != nil {
				t.Fatal(err)
			}
		}

		// The executions above began after the last count. Several clients ask during the next one.
		time.Sleep(time.Minute)
		st.took = 3 * recountRest
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if err := st.start(ctx, f); !fault.Is(err, fault.Exhausted) {
					t.Errorf("a start beyond the allowance: %v", err)
				}
			})
			time.Sleep(recountRest + recountRest/4)
		}
		wg.Wait()
		if err := st.start(ctx, f); !fault.Is(err, fault.Exhausted) || st.open != 3 {
			t.Errorf("the tenant has %d open executions, and the next start got %v", st.open, err)
		}
	})
}

// The clients that arrive before the first count wait for it. If it fails, they get its error. If
// its own client gives up, another client counts.
func TestFirstCountIsShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st, ctx := &slowCount{Store: memory.New(memory.Options{}), took: 3 * recountRest}, t.Context()
		f := doorOf(st, 10)
		startAll := func() (failed int, err error) {
			var mu sync.Mutex
			var wg sync.WaitGroup
			for range 10 {
				wg.Go(func() {
					if one := st.start(ctx, f); one != nil {
						mu.Lock()
						defer mu.Unlock()
						failed, err = failed+1, one
					}
				})
			}
			wg.Wait()
			return failed, err
		}

		away := store.Errorf(store.Away, "count", "it cannot be reached")
		st.err = away
		if failed, err := startAll(); failed != 10 || !errors.Is(err, away) || st.counts != 1 {
			t.Errorf("%d starts failed, the last one with %v, after %d counts", failed, err, st.counts)
		}

		st.counts = 0
		brief, cancel := context.WithTimeout(ctx, recountRest)
		defer cancel()
		go st.start(brief, f) //nolint:errcheck // it gives up
		synctest.Wait()
		if failed, err := startAll(); failed != 0 || st.counts != 2 || st.open != 10 {
			t.Errorf("%d starts failed, the last one with %v, after %d counts", failed, err, st.counts)
		}
	})
}
