package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure"
)

type photo struct{ ID string }

// album is the program of docs/tasks.md: a workflow whose activity runs in another process.
func album(render *perdure.Activity[photo, string]) *perdure.Workflow[[]string, []string] {
	return perdure.NewWorkflow("album", func(ctx perdure.WorkflowCtx, ids []string) ([]string, error) {
		var urls []*perdure.Future[string]
		for _, id := range ids {
			urls = append(urls, render.Go(ctx, photo{id}))
		}
		return perdure.All(ctx, urls...)
	}, perdure.Uses(render))
}

// One process has the workflow, another one has the code of its activity, and both open the same
// database.
func TestActivityInAnotherProcess(t *testing.T) {
	t.Parallel()
	onStores(t, []string{"postgres"}, func(t *testing.T, s *site) {
		render := perdure.DeclareActivity[photo, string]("render", perdure.OnQueue("gpu"), perdure.Exponential(5))
		albums := album(render)
		first := s.open(albums)
		var rendered atomic.Int64

		s.open(render.Bind(func(_ context.Context, p photo) (string, error) {
			rendered.Add(1)
			return "https://cdn/" + p.ID, nil
		}))

		var wg sync.WaitGroup
		for i := range 200 {
			wg.Go(func() {
				urls, err := albums.Run(caller(t, first), []string{fmt.Sprint(i, "a"), fmt.Sprint(i, "b")}, perdure.RawKey(fmt.Sprint("album ", i)))
				if want := fmt.Sprintf("[https://cdn/%da https://cdn/%db]", i, i); err != nil || fmt.Sprint(urls) != want {
					t.Errorf("album %d: %v, %v", i, urls, err)
				}
			})
		}

		wg.Wait()
		if n := rendered.Load(); n != 400 {
			t.Errorf("%d photos were rendered, want 400", n)
		}
	})
}

// The owner of a task and its worker exchange the same messages across processes as inside one
// process.
func TestTaskInAnotherProcess(t *testing.T) {
	t.Parallel()
	onStores(t, []string{"postgres"}, func(t *testing.T, s *site) {
		idle := perdure.NewWorkflow("idle", func(perdure.WorkflowCtx, int) (int, error) { return 0, nil })
		work := perdure.DeclareActivity[string, int]("work", perdure.OnQueue("work"), perdure.Constant(3, time.Millisecond), perdure.HeartbeatTimeout(6*time.Second))
		var began sync.Map
		first := s.open(idle, work)

		s.open(work.Bind(func(ctx context.Context, what string) (int, error) {
			_, again := began.LoadOrStore(what, perdure.Attempt(ctx))
			switch what {
			case "cancel":
				<-ctx.Done()
				return 0, context.Cause(ctx)
			case "long": // the task sends heartbeats for longer than the time-out
				select {
				case <-time.After(9 * time.Second):
					return perdure.Attempt(ctx), nil
				case <-ctx.Done():
					return 0, context.Cause(ctx)
				}
			case "resume":
				at, _ := perdure.LastProgress[int](ctx)
				if again {
					return at, nil
				}
				if err := perdure.Heartbeat(ctx, 41); err != nil {
					return 0, err
				}
				return 0, errors.New("the first attempt fails")
			case "snooze":
				if !again {
					return 0, perdure.Snooze(10 * time.Millisecond)
				}
			}

			return perdure.Attempt(ctx), nil
		}))

		c := caller(t, first)
		run := func(what string, want int) func() {
			return func() {
				x, err := work.Submit(c, what)
				if err != nil {
					t.Errorf("%s: %v", what, err)
					return
				}
				got, err := x.Result(c)
				if err != nil || got != want {
					t.Errorf("%s: %v, %v, want %v", what, got, err, want)
				}
			}
		}

		var wg sync.WaitGroup
		wg.Go(run("long", 1))
		wg.Go(run("resume", 41))
		wg.Go(run("snooze", 1))

		wg.Go(func() {
			x, err := work.Submit(c, "cancel")
			if err != nil {
				t.Error(err)
				return
			}
			eventually(t, "the task begins", func() bool { _, ok := began.Load("cancel"); return ok })
			if err := x.Cancel(c, "enough"); err != nil {
				t.Error(err)
			}
			if _, err := x.Result(c); !errors.Is(err, perdure.ErrCanceled) {
				t.Errorf("the cancelled task: %v", err)
			}
		})

		wg.Wait()
	})
}

// One process only submits, and another one only executes.
func TestSubmitterAndWorker(t *testing.T) {
	t.Parallel()
	onStores(t, []string{"postgres"}, func(t *testing.T, s *site) {
		work := perdure.DeclareActivity[int, int]("work", perdure.OnQueue("work"))
		submitter := s.open(work)
		c := caller(t, submitter)
		x, err := work.Submit(c, 1)
		if err != nil {
			t.Fatal(err)
		}

		s.open(work.Bind(func(_ context.Context, n int) (int, error) { return 2 * n, nil }))
		got, err := x.Result(c)
		equal(t, "a task that waited for the worker", got, err, 2)
		var in []int
		for i := range 200 {
			in = append(in, i)
		}
		xs, err := work.SubmitMany(c, in)
		if err != nil {
			t.Fatal(err)
		}

		for i := range xs {
			got, err := xs[i].Result(c)
			equal(t, fmt.Sprint("task ", i), got, err, 2*i)
		}
	})
}

// A workflow with many tasks uses the slots of two processes. One process owns the workflow.
func TestFanOutOverProcesses(t *testing.T) {
	t.Parallel()
	onStores(t, []string{"postgres"}, func(t *testing.T, s *site) {
		const n = 2000
		var by [2]atomic.Int64
		work := perdure.DeclareActivity[int, int]("work", perdure.OnQueue("work"))

		spread := perdure.NewWorkflow("spread", func(ctx perdure.WorkflowCtx, n int) (int, error) {
			var fs []*perdure.Future[int]
			for i := range n {
				fs = append(fs, work.Go(ctx, i))
			}
			all, err := perdure.All(ctx, fs...)
			return len(all), err
		}, perdure.Uses(work))

		s.cfg.Tasks = perdure.TaskConfig{Slots: 20}
		var apps []*perdure.App
		for i := range by {
			apps = append(apps, s.open(spread, work.Bind(func(_ context.Context, n int) (int, error) {
				by[i].Add(1)
				time.Sleep(50 * time.Millisecond)
				return n, nil
			})))
		}

		began := time.Now()
		got, err := spread.Run(caller(t, apps[0]), n)
		t.Logf("it took %s", time.Since(began))
		equal(t, "the tasks", got, err, n)
		a, b := by[0].Load(), by[1].Load()
		t.Logf("%d and %d tasks", a, b)
		if a+b != n || a < n/10 || b < n/10 {
			t.Errorf("%d and %d tasks were executed, want some by both", a, b)
		}
	})
}

// A task that waits for a busy worker of another process says so.
func TestReasonOfTaskForAnotherProcess(t *testing.T) {
	t.Parallel()
	onStores(t, []string{"postgres"}, func(t *testing.T, s *site) {
		idle := perdure.NewWorkflow("idle", func(perdure.WorkflowCtx, int) (int, error) { return 0, nil })
		work := perdure.DeclareActivity[int, int]("work", perdure.OnQueue("work"))
		first := s.open(idle, work)
		may := make(chan struct{})
		s.cfg.Tasks = perdure.TaskConfig{Slots: 1}
		s.open(work.Bind(func(_ context.Context, n int) (int, error) { <-may; return n, nil }))
		c := caller(t, first)
		// The processes share the shards, so each of them owns some of this many tasks. The worker
		// takes one task, and the others wait for the worker. An owner that has borrowed the worker
		// says how many tasks wait in line. Before that, the owner only knows that another node
		// could take them.
		inputs := make([]int, 32)
		for i := range inputs {
			inputs[i] = i + 1
		}
		xs, err := work.SubmitMany(c, inputs)
		if err != nil {
			t.Fatal(err)
		}

		eventually(t, "all but one wait in line for the only slot", func() bool {
			waiting := 0
			for _, x := range xs {
				info, err := first.Executions().Describe(t.Context(), x)
				if err == nil && strings.HasPrefix(info.Reason, "waits in line in queue work") {
					waiting++
				}
			}
			return waiting == len(xs)-1
		})

		close(may)
		for i, x := range xs {
			got, err := x.Result(c)
			equal(t, "a task", got, err, i+1)
		}
	})
}
