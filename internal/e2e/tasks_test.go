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

// The test runs queued activities of a workflow, and tasks that ordinary code submits, on every
// store. Each task has one outcome, no matter what its attempts return.
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

		// A task has no code that could continue its history, so a retry schedules it again. A fork
		// would never end, so it is refused.
		again, err := app.Executions().Retry(t.Context(), all[5])
		if err != nil {
			t.Fatalf("retried as %s: %v", again, err)
		}
		if _, err := (perdure.Execution[int]{Ref: again}).Result(c); err == nil || !strings.Contains(err.Error(), "no luck") {
			t.Errorf("a task that is retried ends with %v", err)
		}
		if _, err := app.Executions().Fork(t.Context(), all[4], perdure.RawKey("fork"), perdure.AfterPosition(0)); err == nil {
			t.Error("a task was forked")
		}
	})
}

// A task that no worker can run waits, reports why, and continues when a worker joins.
func TestTaskWaitsForAWorker(t *testing.T) {
	t.Parallel()
	onStores(t, durable, func(t *testing.T, s *site) {
		asked := perdure.DeclareActivity[string, string]("asked", perdure.OnQueue("later"))
		ask := perdure.NewWorkflow("ask", func(ctx perdure.WorkflowCtx, in string) (string, error) { return asked.Run(ctx, in) }, perdure.Uses(asked))
		app := s.open(ask)
		c := caller(t, app)
		exec := mustStart(t, c, ask, "you", perdure.RawKey("k"))
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

// Closing an app gives its tasks back, and a task that was given back does not lose an attempt.
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

// A worker whose shard has moved to another process reports through the store. Its task does not
// run twice (E26).
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
		second := s.beside(perdure.NewWorkflow("other", func(perdure.WorkflowCtx, int) (int, error) { return 0, nil }))
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

// beside opens a second process that executes no tasks. The second process takes half of the
// shards, including tasks that the first process executes.
func (s *site) beside(defs ...perdure.Definition) *perdure.App {
	s.t.Helper()
	second, err := embedded.Config{AllowUnsafe: true, LeaseTTL: s.cfg.LeaseTTL, Tasks: perdure.TaskConfig{Slots: -1}}.Open(s.t.Context(), s.url, defs...)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := second.Close(); err != nil {
			s.t.Error(err)
		}
	})
	eventually(s.t, "the second process owns shards", func() bool {
		rows := s.sql("SELECT count(DISTINCT node) FROM perdure.shards")
		return len(rows) > 0 && rows[0][0] == "2"
	})
	return second
}

// A worker whose shard has moved to another process learns that its task was cancelled, terminated,
// or abandoned by its workflow (E25).
func TestCancelOfAShardThatMoved(t *testing.T) {
	t.Parallel()
	onStores(t, []string{"postgres"}, func(t *testing.T, s *site) {
		const n = 8
		var began atomic.Int32
		causes := make(chan error, 3*n)

		endless := perdure.NewActivity("endless", func(ctx context.Context, n int) (int, error) {
			began.Add(1)
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return 0, context.Cause(ctx)
		}, perdure.OnQueue("work"))

		giveUp := perdure.NewSignal[int]("give up")
		wf := perdure.NewWorkflow("impatient", func(ctx perdure.WorkflowCtx, n int) (int, error) {
			f := endless.Go(ctx, n)
			if _, err := giveUp.Receive(ctx); err != nil {
				return 0, err
			}
			f.Cancel(ctx)
			_, err := f.Get(ctx)
			if !errors.Is(err, perdure.ErrCanceled) {
				return 0, fmt.Errorf("the step ends with %w", err)
			}
			return n, nil
		})

		s.cfg.LeaseTTL = 3 * time.Second
		s.cfg.DrainTimeout = 100 * time.Millisecond
		first := s.open(endless, wf)
		c := caller(t, first)
		var canceled, terminated []perdure.Execution[int]

		var parents []perdure.Execution[int]
		for i := range n {
			x, err := endless.Submit(c, i)
			if err != nil {
				t.Fatal(err)
			}
			y, err := endless.Submit(c, i)
			if err != nil {
				t.Fatal(err)
			}
			w := mustStart(t, c, wf, i, perdure.RawKey(fmt.Sprint(i)))
			canceled, terminated, parents = append(canceled, x), append(terminated, y), append(parents, w)
		}

		eventually(t, "all tasks run", func() bool { return began.Load() == 3*n })
		second := s.beside(endless, wf)
		c = caller(t, second)
		for i := range n {
			if err := canceled[i].Cancel(c, "changed my mind"); err != nil {
				t.Fatal(err)
			}
			if err := second.Executions().Terminate(t.Context(), terminated[i], "enough"); err != nil {
				t.Fatal(err)
			}
			if err := giveUp.Send(c, parents[i], i); err != nil {
				t.Fatal(err)
			}
		}

		asked := 0
		for range 3 * n {
			select {
			case err := <-causes:
				if errors.Is(err, perdure.ErrCanceled) {
					asked++
				} else if !errors.Is(err, perdure.ErrConflict) {
					t.Errorf("a task ends because of %v", err)
				}
			case <-time.After(patience):
				t.Fatal("a worker got no cancellation")
			}
		}

		if asked < n {
			t.Errorf("%d tasks were cancelled, want %d at least", asked, n)
		}

		for i := range n {
			if _, err := canceled[i].Result(c); !errors.Is(err, perdure.ErrCanceled) {
				t.Errorf("a cancelled task ends with %v", err)
			}
			got, err := parents[i].Result(c)
			equal(t, "the workflow", got, err, i)
		}

		if got := began.Load(); got != 3*n {
			t.Errorf("%d attempts were begun, want %d", got, 3*n)
		}
	})
}

// A workflow may wait for thousands of tasks: the cost of a task does not grow with their number.
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
