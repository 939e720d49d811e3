package engine_test

import (
	"context"
	"sync"
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

// deadTasks returns all dead tasks of a store.
func deadTasks(t *testing.T, st store.Store) []store.DeadRow {
	t.Helper()
	page, err := st.ListDead(t.Context(), store.DeadQuery{Tenant: model.DefaultTenant, Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	return page.Rows
}

func runsOf(t *testing.T, st store.Store, workflow string) int64 {
	t.Helper()
	n, err := st.Count(t.Context(), store.Query{Tenant: model.DefaultTenant, Workflows: []string{workflow}, AllRuns: true})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func order(row *store.DeadRow, do model.DeadTaskVerb) *model.Message {
	ref := model.TaskRef{Address: row.Body.Address, Run: row.Run, ID: row.Task}
	m := &model.Message{Kind: model.MessageRequeue, To: ref.Address, DeadTask: &model.DeadTaskOrder{Do: do, Ref: ref, Count: row.Requeued}}
	if do == model.DeadTaskUndo {
		m.To, m.DeadTask.Run = row.Body.Requeued.Address, row.Body.Requeued.Run
	}
	return m
}

// Ten people requeue a dead task at the same time. There is one new task, and all ten answers name
// its run. After that the test undoes the requeue, requeues the dead task again and purges it.
func TestRequeueOnce(t *testing.T) {
	t.Parallel()
	for name, openStore := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := openStore(t)
			defer st.Close()
			e, stop := open(t, st)
			defer stop()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			h := newHand(e, 1, func(model.Claim) *model.TaskReport { return failureOf("never") })
			m := submit("a", model.TaskSpec{Retry: model.Retry{MaxAttempts: 1}})
			if r, err := e.ExecuteToEnd(ctx, m); err != nil || r.Outcome.Status != model.Failed {
				t.Fatalf("%+v, %v", r, err)
			}

			if err := h.session.Leave(ctx); err != nil {
				t.Fatal(err)
			}
			dead := deadTasks(t, st)
			if len(dead) != 1 {
				t.Fatalf("%d dead tasks", len(dead))
			}

			runs := make10(ctx, t, e, order(&dead[0], model.DeadTaskRequeue))
			if n := runsOf(t, st, m.To.Type); n != 2 {
				t.Fatalf("%d runs, want 2", n)
			}
			dead = deadTasks(t, st)
			if dead[0].Requeued != 1 || dead[0].Body.Requeued.Run != runs[0] {
				t.Fatalf("%+v", dead[0])
			}

			if _, err := e.Send(ctx, order(&dead[0], model.DeadTaskPurge)); !fault.Is(err, fault.Conflict) {
				t.Errorf("purge of a dead task whose run is open: %v", err)
			}
			if _, err := e.Send(ctx, order(&dead[0], model.DeadTaskUndo)); err != nil {
				t.Fatal(err)
			}
			if r, err := e.Await(ctx, m.To, model.RunID{}); err != nil || r.Outcome.Status != model.Canceled {
				t.Fatalf("%+v, %v", r, err)
			}

			dead = deadTasks(t, st)
			if dead[0].Requeued != 0 || !dead[0].Body.Requeued.IsZero() {
				t.Fatalf("%+v", dead[0])
			}
			make10(ctx, t, e, order(&dead[0], model.DeadTaskRequeue))
			if n := runsOf(t, st, m.To.Type); n != 3 {
				t.Fatalf("%d runs, want 3", n)
			}

			newHand(e, 1, func(c model.Claim) *model.TaskReport { return &model.TaskReport{Output: c.Input} })
			if r, err := e.Await(ctx, m.To, model.RunID{}); err != nil || r.Outcome.Status != model.Completed {
				t.Fatalf("%+v, %v", r, err)
			}
			dead = deadTasks(t, st)
			if _, err := e.Send(ctx, order(&dead[0], model.DeadTaskUndo)); !fault.Is(err, fault.Conflict) {
				t.Errorf("undo of what has ended: %v", err)
			}

			for range 2 {
				if _, err := e.Send(ctx, order(&dead[0], model.DeadTaskPurge)); err != nil {
					t.Errorf("purge: %v", err)
				}
			}

			if left := deadTasks(t, st); len(left) != 0 {
				t.Errorf("%d dead tasks are left", len(left))
			}
		})
	}
}

// make10 sends a requeue ten times at the same time. All answers must name the same run.
func make10(ctx context.Context, t *testing.T, e *engine.Engine, m *model.Message) []model.RunID {
	t.Helper()
	var (
		wg    sync.WaitGroup
		runs  = make([]model.RunID, 10)
		fresh = make([]bool, 10)
	)
	for i := range runs {
		wg.Go(func() {
			a, err := e.Send(ctx, m)
			if err != nil {
				t.Errorf("requeue: %v", err)
			}
			runs[i], fresh[i] = a.Run, !a.Existing
		})
	}

	wg.Wait()
	first := 0
	for i := range runs {
		if runs[i] != runs[0] {
			t.Errorf("two runs: %v and %v", runs[i], runs[0])
		}
		if fresh[i] {
			first++
		}
	}

	if first != 1 {
		t.Errorf("%d of 10 requeues began a task", first)
	}
	return runs
}

// The workflow of a dead task has already received the failure of the task. A requeue starts the
// task under an address of its own, with its old idempotency key. Then the test undoes the requeue,
// at that address and at the dead task.
func TestRequeueOfAStep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := memory.New(memory.Options{})
		e, stop := open(t, st)
		defer func() { stop() }()
		w := &scheduler{eng: e}
		w.session = e.Join(w, model.Offer{Tenant: model.DefaultTenant, Workflows: []string{"wf"}})
		fail := true

		h := newHand(e, 1, func(c model.Claim) *model.TaskReport {
			if fail {
				return &model.TaskReport{Failure: &model.Failure{Message: "never", Permanent: true}}
			}
			return &model.TaskReport{Output: c.Input}
		})

		m := start("a")
		if _, err := e.Send(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		for len(deadTasks(t, st)) == 0 {
			time.Sleep(time.Second)
		}
		brief, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := h.session.Leave(brief); err != nil {
			t.Fatal(err)
		}

		dead := deadTasks(t, st)[0]
		a, err := e.Send(t.Context(), order(&dead, model.DeadTaskRequeue))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		dead = deadTasks(t, st)[0]
		to := dead.Body.Requeued.Address
		if r := dead.Body.Requeued.Run; r != a.Run || to.Type != model.TaskPrefix+"work" || runsOf(t, st, to.Type) != 1 {
			t.Fatalf("%+v, answered %s", dead.Body.Requeued, a.Run)
		}

		if _, err := e.Send(t.Context(), order(&dead, model.DeadTaskUndo)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if dead = deadTasks(t, st)[0]; dead.Requeued != 0 {
			t.Fatalf("%+v", dead)
		}

		// Requeue the task once more. Another run uses the key again.
		if a, err = e.Send(t.Context(), order(&dead, model.DeadTaskRequeue)); err != nil {
			t.Fatal(err)
		}
		// The store knows that the dead task was requeued. The next process finds the new task,
		// whether the new run has started or the message that starts it is in flight.
		stop()
		e, stop = open(t, st)
		fail = false
		other := newHand(e, 1, func(c model.Claim) *model.TaskReport { return &model.TaskReport{Output: c.Input} })
		synctest.Wait()
		r, err := e.Await(t.Context(), to, model.RunID{})
		if err != nil || r.Outcome.Status != model.Completed || r.Run != a.Run {
			t.Fatalf("%+v, %v", r, err)
		}

		if n := runsOf(t, st, to.Type); n != 2 {
			t.Errorf("%d runs, want the undone one and this", n)
		}
		if c := other.claims[0]; c.Identity != dead.Run || c.Step != "step" || c.Attempt != 1 {
			t.Errorf("identity %s, step %q, attempt %d", c.Identity, c.Step, c.Attempt)
		}
	})
}

// The sweep removes old dead tasks, unless the run of their requeue is open.
func TestOldDeadTasksGo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := memory.New(memory.Options{})
		e := engine.New(engine.Config{Store: st, RetainDead: time.Hour})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- e.Run(ctx) }()
		defer func() { cancel(); <-done }()
		if err := e.Ready(ctx); err != nil {
			t.Fatal(err)
		}

		h := newHand(e, 10, func(model.Claim) *model.TaskReport { return failureOf("never") })
		for _, key := range []string{"a", "b", "c"} {
			if _, err := e.ExecuteToEnd(ctx, submit(key, model.TaskSpec{Retry: model.Retry{MaxAttempts: 1}})); err != nil {
				t.Fatal(err)
			}
		}

		if err := h.session.Leave(ctx); err != nil {
			t.Fatal(err)
		}
		dead := deadTasks(t, st)
		if _, err := e.Send(ctx, order(&dead[0], model.DeadTaskRequeue)); err != nil {
			t.Fatal(err)
		}

		time.Sleep(50 * time.Minute)
		if n := len(deadTasks(t, st)); n != 3 {
			t.Errorf("%d dead tasks before their time, want 3", n)
		}
		time.Sleep(15 * time.Minute)
		if left := deadTasks(t, st); len(left) != 1 || left[0].Run != dead[0].Run {
			t.Errorf("left: %+v, want the one whose run is open", left)
		}
	})
}

// An old dead task was requeued, and the message that starts the new run is still in flight. So the
// run does not exist yet, and the dead task must stay. The sweep removes the dead task when the run
// has certainly been removed.
func TestOldDeadTaskWhoseRequeueIsOnItsWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := memory.New(memory.Options{})
		e := engine.New(engine.Config{Store: st, RetainDead: time.Hour, SweepEvery: time.Second})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- e.Run(ctx) }()
		defer func() { cancel(); <-done }()
		if err := e.Ready(ctx); err != nil {
			t.Fatal(err)
		}

		w := &scheduler{eng: e}
		w.session = e.Join(w, model.Offer{Tenant: model.DefaultTenant, Workflows: []string{"wf"}})
		newHand(e, 1, func(c model.Claim) *model.TaskReport {
			if c.Ref.ID == model.TaskStep {
				return &model.TaskReport{}
			}
			return &model.TaskReport{Failure: &model.Failure{Message: "never", Permanent: true}}
		})

		if _, err := e.Send(ctx, start("a")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour - 10*time.Second)
		dead := deadTasks(t, st)[0]
		a, err := e.Send(ctx, order(&dead, model.DeadTaskRequeue))
		if err != nil {
			t.Fatal(err)
		}

		synctest.Wait()
		to := deadTasks(t, st)[0].Body.Requeued.Address
		if _, err := e.Await(ctx, to, a.Run); err != nil {
			t.Fatal(err)
		}

		// A run that has not started looks the same as a run that is gone.
		if _, err := e.Send(ctx, &model.Message{Kind: model.MessageDelete, To: to, Runs: []model.RunID{a.Run}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		if n := len(deadTasks(t, st)); n != 1 {
			t.Errorf("%d dead tasks, although the run may be about to begin", n)
		}
		time.Sleep(time.Minute)
		if n := len(deadTasks(t, st)); n != 0 {
			t.Errorf("%d dead tasks are left", n)
		}
	})
}

// Both a task and a workflow that waits for a task say what the task waits for.
func TestTasksAreExplained(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, stop := open(t, memory.New(memory.Options{}))
		defer stop()
		m := submit("a", model.TaskSpec{})
		if _, err := e.Send(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		why, ok := e.Explain(t.Context(), m.To)
		if !ok || len(why) != 1 || why[0].Code != model.WaitWorker || why[0].Name != "work" {
			t.Errorf("without a worker: %v, %v", why, ok)
		}
		free := make(chan struct{})
		h := newHand(e, 1, func(model.Claim) *model.TaskReport { <-free; return &model.TaskReport{} })
		h.until(func() bool { return len(h.claims) == 1 })
		if why, _ = e.Explain(t.Context(), m.To); len(why) != 1 || why[0].Code != model.WaitStep {
			t.Errorf("while it is executed: %v", why)
		}
		w := &scheduler{eng: e}
		w.session = e.Join(w, model.Offer{Tenant: model.DefaultTenant, Workflows: []string{"wf"}})
		wf := start("b")
		if _, err := e.Send(t.Context(), wf); err != nil {
			t.Fatal(err)
		}

		synctest.Wait()
		if why, _ = e.Explain(t.Context(), wf.To); len(why) != 1 || why[0].Code != model.WaitLine {
			t.Errorf("behind another one: %v", why)
		}
		stats, ok := e.QueueCounts()
		if !ok || len(stats) != 1 || stats[0].Waiting != 1 || stats[0].Claimed != 1 {
			t.Errorf("stats %+v, %v", stats, ok)
		}
		close(free)
	})
}

// While the start of a requeued run is in flight to another shard, the dead task cannot be purged,
// because that run has not ended.
func TestPurgeable(t *testing.T) {
	t.Parallel()
	now := model.Time(1_700_000_000_000_000)
	requeued := func(ago time.Duration) *store.DeadRow {
		return &store.DeadRow{Body: model.DeadTask{Requeued: model.Requeue{At: now.Add(-ago), Run: model.RunID{1}}}}
	}

	run := func(s model.Status) *store.Execution { return &store.Execution{Outcome: model.Outcome{Status: s}} }
	for name, c := range map[string]struct {
		row  *store.DeadRow
		run  *store.Execution
		want bool
	}{
		"never requeued":        {&store.DeadRow{}, nil, true},
		"on its way":            {requeued(time.Second), nil, false},
		"deleted since":         {requeued(2 * time.Minute), nil, true},
		"open":                  {requeued(2 * time.Minute), run(model.Running), false},
		"ended":                 {requeued(time.Second), run(model.Failed), true},
		"requeued and undone":   {requeued(time.Second), run(model.Canceled), true},
		"requeued and complete": {requeued(time.Second), run(model.Completed), true},
	} {
		if got := engine.Purgeable(c.row, c.run, now); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// noReads is a store whose executions cannot be read while the test says so, as those of a database
// that is away.
type noReads struct {
	store.Store
	away  atomic.Bool
	reads atomic.Int64 // that have failed
}

func (s *noReads) LoadExecution(ctx context.Context, shard model.ShardID, a model.Address, run model.RunID) (*store.Execution, error) {
	if s.away.Load() {
		s.reads.Add(1)
		return nil, store.Errorf(store.Away, "test", "the database is away")
	}
	return s.Store.LoadExecution(ctx, shard, a, run)
}

// If the database with the runs of requeued dead tasks is away, the sweep still removes the other
// dead tasks. Each sweep asks the database once, and looks at the requeued ones again when the
// database is back.
func TestOldDeadTasksGoWhileADatabaseIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := &noReads{Store: memory.New(memory.Options{})}
		e := engine.New(engine.Config{Store: st, RetainDead: time.Hour, SweepEvery: time.Minute})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- e.Run(ctx) }()
		defer func() { cancel(); <-done }()
		if err := e.Ready(ctx); err != nil {
			t.Fatal(err)
		}

		h := newHand(e, 10, func(model.Claim) *model.TaskReport { return failureOf("never") })
		for _, key := range []string{"a", "b", "c", "d"} {
			if _, err := e.ExecuteToEnd(ctx, submit(key, model.TaskSpec{Retry: model.Retry{MaxAttempts: 1}})); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second) // the sweep looks at them in this order
		}
		if err := h.session.Leave(ctx); err != nil {
			t.Fatal(err)
		}

		// The first two are requeued, and the new tasks end.
		newHand(e, 10, func(c model.Claim) *model.TaskReport { return &model.TaskReport{Output: c.Input} })
		for _, row := range deadTasks(t, st) {
			if key := row.Body.Address.Key; key == "a" || key == "b" {
				if _, err := e.Send(ctx, order(&row, model.DeadTaskRequeue)); err != nil {
					t.Fatal(err)
				}
			}
		}
		synctest.Wait()
		st.away.Store(true)
		time.Sleep(59 * time.Minute)
		before := st.reads.Load()
		time.Sleep(5*time.Minute + time.Second)
		if left := deadTasks(t, st); len(left) != 2 || left[0].Requeued != 1 || left[1].Requeued != 1 {
			t.Errorf("%d dead tasks are left, want the two that were requeued", len(left))
		}
		if n := st.reads.Load() - before; n == 0 || n > 6 {
			t.Errorf("%d reads of a database that is away in five minutes with a sweep each", n)
		}

		st.away.Store(false)
		time.Sleep(2 * time.Minute)
		if left := deadTasks(t, st); len(left) != 0 {
			t.Errorf("%d dead tasks are left after the database is back", len(left))
		}
	})
}
