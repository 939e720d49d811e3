package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

// Queued activities of a workflow and submissions of ordinary code, on every store: each has one outcome, whatever its attempts come to.
func TestTasks(t *testing.T) {
	t.Parallel()
	onStores(t, kinds, func(t *testing.T, s *site) {
		var snoozed sync.Map
		work := perdure.NewActivity("work", func(ctx context.Context, n int) (int, error) {
			switch {
			case n%7 == 3 && perdure.Attempt(ctx) < 3:
				return 0, errors.New("not yet")
			case n%7 == 4:
				if _, again := snoozed.LoadOrStore(n, true); !again {
					return 0, perdure.Snooze(time.Millisecond)
				}
			case n%7 == 5:
				panic("no luck")
			}
			return 2 * n, nil
		}, perdure.OnQueue("work"), perdure.Constant(3, time.Millisecond))
		spread := perdure.NewWorkflow("spread", func(ctx perdure.WorkflowCtx, n int) (int, error) {
			var fs []*perdure.Future[int]
			for i := range n {
				fs = append(fs, work.Go(ctx, i, perdure.StepKey(fmt.Sprint(i))))
			}
			sum := 0
			for i, f := range fs {
				v, err := f.Get(ctx)
				if (err != nil) != (i%7 == 5) {
					return 0, fmt.Errorf("task %d: %w", i, err)
				}
				sum += v
			}
			return sum, nil
		})
		app := s.open(work, spread)
		c := caller(t, app)
		const n = 50
		want, ins := 0, []int(nil)
		for i := range n {
			ins = append(ins, i)
			if i%7 != 5 {
				want += 2 * i
			}
		}
		got, err := spread.Run(c, n, perdure.RawKey("spread"))
		equal(t, "the sum", got, err, want)
		snoozed.Clear()
		all, err := work.SubmitMany(c, ins)
		if err != nil {
			t.Fatal(err)
		}
		for i, x := range all {
			got, err := x.Result(c)
			if i%7 == 5 {
				if err == nil || !strings.Contains(err.Error(), "no luck") {
					t.Errorf("a task that panics ends with %v", err)
				}
				continue
			}
			equal(t, fmt.Sprint("task ", i), got, err, 2*i)
		}
		// No code could go on with the history of a task: to retry it is to schedule it anew. A fork would be a run that never ends.
		again, err := app.Retry(t.Context(), all[5])
		if err != nil {
			t.Fatalf("retried as %s: %v", again, err)
		}
		if _, err := (perdure.Execution[int]{Ref: again}).Result(c); err == nil || !strings.Contains(err.Error(), "no luck") {
			t.Errorf("a task that is retried ends with %v", err)
		}
		if _, err := app.Fork(t.Context(), all[4], perdure.RawKey("fork"), perdure.AfterPosition(0)); err == nil {
			t.Error("a task was forked")
		}
	})
}

// A task whose kind nobody offers waits, says why, and goes on when somebody comes.
func TestTaskWaitsForAWorker(t *testing.T) {
	t.Parallel()
	onStores(t, durable, func(t *testing.T, s *site) {
		asked := perdure.DeclareActivity[string, string]("asked", perdure.OnQueue("later"))
		ask := perdure.NewWorkflow("ask", func(ctx perdure.WorkflowCtx, in string) (string, error) { return asked.Run(ctx, in) }, perdure.Uses(asked))
		app := s.open(ask)
		c := caller(t, app)
		exec, err := ask.Start(c, "you", perdure.RawKey("k"))
		if err != nil {
			t.Fatal(err)
		}
		x, err := asked.Submit(c, "me")
		if err != nil {
			t.Fatal(err)
		}
		reason(t, app, exec, "asked")
		app = s.reopen(app, ask, asked.Bind(func(_ context.Context, in string) (string, error) { return "hello " + in, nil }))
		c = caller(t, app)
		got, err := exec.Result(c)
		equal(t, "the workflow", got, err, "hello you")
		got, err = x.Result(c)
		equal(t, "the task", got, err, "hello me")
	})
}

// Closing an app gives back what it executes, and an attempt that was given back is not counted.
func TestCloseGivesTasksBack(t *testing.T) {
	t.Parallel()
	onStores(t, durable, func(t *testing.T, s *site) {
		s.cfg.DrainTimeout = 100 * time.Millisecond
		var began atomic.Int32
		patient := func(until func(ctx context.Context) error) *perdure.Activity[int, int] {
			return perdure.NewActivity("patient", func(ctx context.Context, n int) (int, error) {
				began.Add(1)
				if err := until(ctx); err != nil {
					return 0, err
				}
				return perdure.Attempt(ctx), nil
			}, perdure.OnQueue("work"), perdure.Constant(1, time.Second))
		}
		app := s.open(patient(func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }))
		act := patient(func(context.Context) error { return nil })
		all, err := act.SubmitMany(caller(t, app), []int{1, 2, 3})
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "three tasks run", func() bool { return began.Load() == 3 })
		app = s.reopen(app, act)
		for _, x := range all {
			got, err := x.Result(caller(t, app))
			equal(t, "the attempt", got, err, 1)
		}
	})
}

// A worker whose shard has moved to another process reports by way of the store: its task is not executed twice (E26).
func TestTaskOfAShardThatMoved(t *testing.T) {
	t.Parallel()
	onStores(t, []string{"postgres"}, func(t *testing.T, s *site) {
		var began atomic.Int32
		release := make(chan struct{})
		long := perdure.NewActivity("long", func(ctx context.Context, n int) (int, error) {
			began.Add(1)
			select {
			case <-release:
				return perdure.Attempt(ctx), nil
			case <-ctx.Done():
				return 0, context.Cause(ctx)
			}
		}, perdure.OnQueue("work"), perdure.Constant(1, time.Second))
		s.cfg.LeaseTTL = 3 * time.Second
		first := s.open(long)
		const n = 20
		ins := make([]int, n)
		all, err := long.SubmitMany(caller(t, first), ins)
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "all tasks run", func() bool { return began.Load() == n })
		// A second process takes half of the shards, with tasks that the first one executes.
		cfg := s.cfg
		second, err := embedded.Config{AllowUnsafe: true, LeaseTTL: cfg.LeaseTTL}.Open(t.Context(), s.url, perdure.NewWorkflow("other", func(perdure.WorkflowCtx, int) (int, error) { return 0, nil }))
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := second.Close(); err != nil {
				t.Error(err)
			}
		}()
		eventually(t, "the second process owns shards", func() bool {
			rows := s.sql("SELECT count(DISTINCT node) FROM perdure.shards")
			return len(rows) > 0 && rows[0][0] == "2"
		})
		close(release)
		for _, x := range all {
			got, err := x.Result(caller(t, second))
			equal(t, "the attempt", got, err, 1)
		}
		if got := began.Load(); got != n {
			t.Errorf("%d attempts were begun, want %d", got, n)
		}
	})
}

// A workflow may wait for thousands of tasks: what one of them costs does not grow with their number.
func TestWorkflowWithThousandsOfTasks(t *testing.T) {
	t.Parallel()
	const n = 3000
	echo := perdure.NewActivity("echo", func(_ context.Context, i int) (int, error) { return i, nil }, perdure.OnQueue("many"))
	all := perdure.NewWorkflow("all", func(ctx perdure.WorkflowCtx, n int) (int, error) {
		futures := make([]*perdure.Future[int], n)
		for i := range futures {
			futures[i] = echo.Go(ctx, i, perdure.StepKey(strconv.Itoa(i)))
		}
		sum := 0
		for _, f := range futures {
			i, err := f.Get(ctx)
			if err != nil {
				return 0, err
			}
			sum += i
		}
		return sum, nil
	})
	app := newSite(t, "memory").open(echo, all)
	got, err := all.Run(caller(t, app), n, perdure.RawKey("k"))
	equal(t, "the sum", got, err, n*(n-1)/2)
}
