package engine_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/memory"
)

// sluggish is a store that is slow to hand out shards.
type sluggish struct {
	store.Store
	takes time.Duration
}

func (s *sluggish) Acquire(ctx context.Context, node model.NodeID, epoch int64, shards []model.ShardID) ([]store.AcquiredShard, error) {
	time.Sleep(s.takes)
	return s.Store.Acquire(ctx, node, epoch, shards)
}

// On a store that only one node can serve, a caller asks before the node has its shards. The caller
// gets its answer at the moment when the node has the shards, and does not have to poll.
func TestCallsWaitForShards(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		const takes = 12345678 * time.Nanosecond // not a multiple of any pause
		e := engine.New(engine.Config{Store: &sluggish{memory.New(memory.Options{}), takes}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		after := make(chan time.Duration, 2)

		go func() {
			if _, err := e.Send(ctx, start("a")); err != nil {
				t.Error(err)
			}
			after <- time.Since(began)
		}()

		go func() {
			if _, err := e.Await(ctx, start("nobody").To, model.RunID{}); !fault.Is(err, fault.NotFound) {
				t.Errorf("await: %v, want not found", err)
			}
			after <- time.Since(began)
		}()

		synctest.Wait()
		go func() { done <- e.Run(ctx) }()
		for range 2 {
			if took := <-after; took != takes {
				t.Errorf("answered after %s, want %s", took, takes)
			}
		}

		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// A caller that waits for shards that never come gets an error when the node stops.
func TestCallsEndWithTheNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := engine.New(engine.Config{Store: &sluggish{memory.New(memory.Options{}), time.Hour}})
		ctx, cancel := context.WithCancel(t.Context())
		done, errs := make(chan error, 1), make(chan error, 2)
		go func() { done <- e.Run(ctx) }()

		go func() {
			_, err := e.Send(t.Context(), start("a"))
			errs <- err
		}()

		go func() {
			_, err := e.Await(t.Context(), start("a").To, model.RunID{})
			errs <- err
		}()

		synctest.Wait()
		cancel()
		for range 2 {
			if err := <-errs; !fault.Is(err, fault.Unavailable) {
				t.Errorf("error = %v, want unavailable", err)
			}
		}

		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// The engine wakes a listener to an execution when the node has acquired the shard of the
// execution, and when the node ends. A later listener gets an error that says that the node has
// ended. No listener waits for a node that is gone.
func TestListenersEndWithTheNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := engine.New(engine.Config{Store: &sluggish{memory.New(memory.Options{}), time.Second}})
		a := start("a").To
		listen := func() <-chan struct{} {
			t.Helper()
			changed, stop, err := e.WatchChanges(t.Context(), a)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(stop)
			return changed
		}

		early := listen()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- e.Run(ctx) }()
		<-early
		owned := listen()
		cancel()
		<-owned // the lane of the execution is gone, and there is no other node yet

		for err := error(nil); err == nil; {
			var changed <-chan struct{}
			var stop func()
			if changed, stop, err = e.WatchChanges(t.Context(), a); err == nil {
				<-changed
				stop()
			} else if !fault.Is(err, fault.Unavailable) {
				t.Errorf("a node that has ended is listened to: %v", err)
			}
		}

		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
