package crash_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/crash"
	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/store/faultstore"
	"github.com/perdure/perdure/internal/store/memory"
)

var echo = perdure.NewWorkflow("echo", func(ctx perdure.WorkflowCtx, n int) (int, error) { return n, ctx.Sleep(time.Millisecond) })

func open(t *testing.T, mem *memory.Store, number int, shared bool) *crash.Process {
	t.Helper()
	p, err := crash.Open(crash.Config{
		Store: mem, Number: number, Shared: shared, Patience: time.Minute, Engine: engine.Config{LeaseTTL: 4 * time.Second},
	}, echo)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestTakeover kills a process. The process no longer answers, and the next process finishes its
// work.
func TestTakeover(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := memory.New(memory.Options{Shards: 4, Cluster: "crash"})
		first := open(t, mem, 1, false)
		x, err := echo.Start(first.App.With(t.Context()), 7)
		if err != nil {
			t.Fatal(err)
		}

		first.Kill()
		if !first.Dead() || !errors.Is(context.Cause(first.Context()), crash.ErrDied) {
			t.Errorf("dead %v, %v", first.Dead(), context.Cause(first.Context()))
		}
		if _, err := echo.Start(first.App.With(t.Context()), 8); err == nil {
			t.Error("a dead process starts executions")
		}
		if err := first.Bury(); err != nil {
			t.Error(err)
		}

		second := open(t, mem, 2, false)
		if got, err := x.Result(second.App.With(t.Context())); got != 7 || err != nil {
			t.Errorf("%d, %v", got, err)
		}
		if orderly, err := second.Close(); !orderly || err != nil {
			t.Error(orderly, err)
		}
	})
}

// TestPlanIsFollowed crashes a process at its first commit.
func TestPlanIsFollowed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		trace := crash.NewTrace()
		p, err := crash.Open(crash.Config{
			Store: memory.New(memory.Options{Shards: 4}), Number: 1, Patience: time.Minute, Trace: trace,
			Plan: faultstore.FailAt{N: 1, Method: faultstore.Commit, Fault: faultstore.Fault{Kind: faultstore.CrashAfter}},
		}, echo)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := echo.Start(p.App.With(p.Context()), 7); err == nil || !p.Dead() || p.Faults() != 1 || trace.Commits() != 1 {
			t.Errorf("%v, dead %v, %d faults\n%s", err, p.Dead(), p.Faults(), trace)
		}
		if err := p.Bury(); err != nil {
			t.Error(err)
		}
	})
}

// TestAnswersAreFoundWithoutHints has two processes without hints between them. A caller that waits
// for an answer from the other process polls the store once a second. The polling starts again
// after a time without waiting callers, and works with any number of callers that start to wait
// later.
func TestAnswersAreFoundWithoutHints(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := memory.New(memory.Options{Shards: 8, Cluster: "crash"})
		ps := []*crash.Process{open(t, mem, 1, true), open(t, mem, 2, true)}
		time.Sleep(time.Minute) // by then each process owns its shards

		const each, apart, enough = 100, 300 * time.Millisecond, 6 * time.Second
		for round := range 2 {
			results := make(chan error)
			for i := range each {
				for _, p := range ps {
					go func() {
						time.Sleep(time.Duration(i) * apart)
						ctx, cancel := context.WithTimeout(t.Context(), enough)
						defer cancel()
						n := 1000*round + i
						got, err := echo.Run(p.App.With(ctx), n, perdure.RawKey(fmt.Sprint(p.Number, "-", n)))
						if err == nil && got != n {
							err = fmt.Errorf("%d, want %d", got, n)
						}
						results <- err
					}()
				}
			}

			for range each * len(ps) {
				if err := <-results; err != nil {
					t.Errorf("round %d: %v", round, err)
				}
			}

			time.Sleep(time.Hour)
		}

		for _, p := range ps {
			if orderly, err := p.Close(); !orderly || err != nil {
				t.Error(orderly, err)
			}
		}
	})
}
