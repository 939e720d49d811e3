package grpcapi

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A group that is closed while others join it takes a member or refuses it, and waits for all that
// it has taken.
func TestGroupClosesWhileOthersJoin(t *testing.T) {
	t.Parallel()
	for range 100 {
		var g group
		var callers sync.WaitGroup
		var taken, ended atomic.Int64
		for range 8 {
			callers.Go(func() {
				for g.run(func() { ended.Add(1) }) {
					taken.Add(1)
				}
			})
		}
		g.close(t.Context())
		callers.Wait()
		if taken.Load() != ended.Load() || g.run(func() {}) {
			t.Fatalf("%d of %d members have ended", ended.Load(), taken.Load())
		}
	}
}

// Close waits for the last member, and not longer than its context. A second Close does too.
func TestGroupWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g group
		g.run(func() { time.Sleep(time.Minute) })
		begun := time.Now()
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		g.close(short)
		if took := time.Since(begun); took != time.Second {
			t.Errorf("the first Close took %s", took)
		}
		g.close(t.Context())
		if took := time.Since(begun); took != time.Minute {
			t.Errorf("both took %s", took)
		}
	})
}
