package perduretest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/perduretest"
)

// This file tries once everything that workflow code and clients can do. So everything that works
// in a program also works in a test with this package. TestEveryVerbIsTried checks that no verb is
// missing.

type task struct {
	Name string
	Bad  bool
}

var (
	work  = perdure.DeclareActivity[task, string]("work", perdure.Exponential(2))
	named = work.StepKeyedBy(func(t task) string { return t.Name })
	poke  = perdure.NewSignal[string]("poke")
	gift  = perdure.NewPromise[string]("gift")
	trial = perdure.NewPromise[string]("trial")

	kid    = perdure.DeclareWorkflow[task, string]("kid").KeyedBy(func(t task) perdure.Key { return perdure.RawKey(t.Name) })
	rounds = perdure.DeclareWorkflow[int, int]("rounds")
	whole  = perdure.DeclareWorkflow[task, []string]("whole")
)

// kidCode waits for the signal poke. If t.Bad is set, it fails and cleans up.
func kidCode(ctx perdure.WorkflowCtx, t task) (string, error) {
	ctx.OnFailure(func(ctx perdure.WorkflowCtx) error {
		_, err := work.Run(ctx, task{Name: "undo " + t.Name})
		return err
	})

	ctx.Defer(func(ctx perdure.WorkflowCtx) error {
		_, err := work.Run(ctx.Detached(), task{Name: "tidy " + t.Name})
		return err
	})

	if t.Bad {
		return "", perdure.Permanent(errors.New(t.Name + " is bad"))
	}
	got, err := poke.Receive(ctx)
	if ctx.Err() != nil {
		return "", ctx.Err()
	}

	return t.Name + " " + got, err
}

func roundsCode(ctx perdure.WorkflowCtx, n int) (int, error) {
	if n < 3 {
		return 0, rounds.ContinueAsNew(n + 1)
	}
	return n, ctx.Sleep(time.Minute)
}

func wholeCode(ctx perdure.WorkflowCtx, in task) (log []string, err error) {
	note := func(what string, values ...any) { log = append(log, strings.TrimSpace(what+" "+fmt.Sprint(values...))) }
	began := ctx.Now()

	// Steps, one after the other and in parallel.
	first, err := work.Run(ctx, in)
	if err != nil {
		return nil, err
	}
	count, err := perdure.Do(ctx, "count", func(context.Context) (int, error) { return len(first), nil }, perdure.AttemptTimeout(time.Minute))
	if err != nil {
		return nil, err
	}
	note("steps", first, count)
	both, err := perdure.All(ctx, named.Go(ctx, task{Name: "a"}), named.Go(ctx, task{Name: "b"}))
	if err != nil {
		return nil, err
	}
	fastest, err := perdure.Race(ctx, ctx.Timer(time.Second), ctx.Timer(time.Hour))
	if err != nil {
		return nil, err
	}
	note("all", both, fastest.Sub(began))
	two, err := perdure.FirstN(ctx, 2, named.Go(ctx, task{Name: "c"}), named.Go(ctx, task{Name: "d"}), named.Go(ctx, task{Name: "e"}))
	if err != nil {
		return nil, err
	}
	slow := perdure.Go(ctx, func(ctx perdure.WorkflowCtx) (string, error) { return "slow", ctx.Sleep(time.Minute) })
	never := ctx.Timer(1000 * time.Hour)
	won, err := perdure.Select(ctx, slow, never)
	if err != nil || won != slow {
		return nil, fmt.Errorf("select: %w", err)
	}
	never.Cancel(ctx)
	if err := perdure.Wait(ctx, slow); err != nil {
		return nil, err
	}
	late, err := slow.Get(ctx)
	note("first", len(two), late, err)

	// Children, and executions without a parent.
	if _, err := kid.Run(ctx, task{Name: "wicked", Bad: true}); err == nil || !strings.Contains(err.Error(), "wicked is bad") {
		return nil, fmt.Errorf("a bad child: %w", err)
	}
	child, err := kid.Start(ctx, task{Name: "kid"}, perdure.AbandonChild)
	if err != nil {
		return nil, err
	}
	if err := poke.Send(ctx, child, "you"); err != nil {
		return nil, err
	}
	outcome := child.Future(ctx)
	said, err := outcome.Get(ctx)
	if err != nil {
		return nil, err
	}
	how, err := child.Poll(ctx)
	if err != nil {
		return nil, err
	}
	again, err := kid.Execution(perdure.RawKey("kid")).Result(ctx)
	note("child", said, how.Status, again, err)
	doomed, err := kid.Start(ctx, task{Name: "doomed"})
	if err != nil {
		return nil, err
	}
	if err := doomed.Cancel(ctx, "enough"); err != nil {
		return nil, err
	}
	_, err = doomed.Result(ctx)
	note("doomed", errors.Is(err, perdure.ErrCanceled))

	// Messages.
	_, early := poke.TryReceive(ctx)
	next := poke.Next(ctx)
	got, err := next.Get(ctx)
	if err != nil {
		return nil, err
	}
	_, timeout := gift.Await(ctx.WithTimeout(time.Hour))
	present, err := gift.Future(ctx).Get(ctx)
	if err != nil {
		return nil, err
	}
	_, rejected := trial.Await(ctx)
	note("messages", early, got, errors.Is(timeout, perdure.ErrTimeout), present, rejected)

	// These values are the same on replay.
	ctx.Log().Info("nearly done")
	self := ctx.Self()
	note("self", self.Workflow, self.Key, ctx.Version("new", 1, 2), len(ctx.UUID()), ctx.Rand().IntN(6) < 6)
	note("history", ctx.HistoryLength() > 1, ctx.HistoryBytes() > 0, ctx.ShouldContinueAsNew(), ctx.Attempt())
	return log, nil
}

func TestEverything(t *testing.T) {
	t.Parallel()
	works := perduretest.NewFake(func(_ context.Context, t task) (string, error) { return "did " + t.Name, nil })
	program := perdure.Group{kid.Bind(kidCode), rounds.Bind(roundsCode), whole.Bind(wholeCode), work.Bind(works.Call)}
	perduretest.Run(t, program, func(t *testing.T, env *perduretest.Env) {
		x, err := whole.Start(env.With(), task{Name: "in"}, perdure.RawKey("w"))
		if err != nil {
			t.Fatal(err)
		}
		env.Advance(10 * time.Minute)
		if got := env.Reason(x); got != "waits for signal poke" {
			t.Fatalf("it %s\n%s", got, env.History(x))
		}
		env.Restart()
		if err := poke.Send(env.With(), x, "hello", perdure.RequestID("p1")); err != nil {
			t.Fatal(err)
		}
		env.Advance(2 * time.Hour)
		if err := gift.Resolve(env.With(), x, "flowers"); err != nil {
			t.Fatal(err)
		}
		if err := trial.Reject(env.With(), x, errors.New("guilty")); err != nil {
			t.Fatal(err)
		}
		got, err := x.Result(env.With())
		want := []string{
			"steps did in6", "all [did a did b] 1s", "first 2 slow <nil>", "child kid you completed kid you <nil>", "doomed true",
			"messages false hello true flowers guilty", "self whole w 2 36 true",
		}
		for i := range got {
			got[i] = strings.Join(strings.Fields(got[i]), " ")
		}
		for i, line := range want {
			if i >= len(got) || strings.ReplaceAll(got[i], " ", "") != strings.ReplaceAll(line, " ", "") {
				t.Errorf("%v, line %d: got %q, want %q", err, i, got, line)
				break
			}
		}

		// Verbs that only clients have.
		if n, err := rounds.Run(env.With(), 1, perdure.ReuseIfFailed); n != 3 || err != nil {
			t.Errorf("rounds %d, %v", n, err)
		}
		if many, err := rounds.StartMany(env.With(), []int{1, 2}); err != nil || len(many) != 2 || many[0].Err != nil || !many[0].Existing || many[1].Existing {
			t.Errorf("many starts: %+v, %v", many, err)
		}
		pending, err := kid.Start(env.With(), task{Name: "pending"}, poke.With("now"))
		if err != nil {
			t.Fatal(err)
		}
		if o, err := pending.Poll(env.With()); err != nil || o.Status != perdure.Running && o.Status != perdure.Completed {
			t.Errorf("%v, %v", o, err)
		}
		if err := x.Cancel(env.With(), "too late"); !errors.Is(err, perdure.ErrConflict) {
			t.Errorf("cancel of a closed execution: %v", err)
		}
		if info, err := env.App().Executions().Describe(env.Context(), x); err != nil || info.Status != perdure.Completed {
			t.Errorf("%+v, %v", info, err)
		}
		var open, kinds []string
		for info, err := range env.App().Executions().List(env.Context(), `workflow = "kid"`) {
			if err != nil {
				t.Fatal(err)
			}
			open = append(open, info.Ref.Key)
		}
		for c, err := range env.App().Watch(env.Context(), perdure.WatchQuery{Classes: []string{"execution"}}) {
			if err != nil || c.Kind != "begun" {
				t.Errorf("the feed begins with %+v, %v", c, err)
			}
			break
		}
		for e, err := range env.App().Histories().Events(env.Context(), x) {
			if err != nil {
				t.Fatal(err)
			}
			kinds = append(kinds, e.Kind)
		}
		if slices.Sort(open); !slices.Equal(open, []string{"doomed", "kid", "pending", "wicked"}) || !slices.Contains(kinds, "version_marked") {
			t.Errorf("executions %q, kinds %q", open, kinds)
		}
		var undone []string
		for _, c := range works.Calls() {
			if strings.HasPrefix(c.Input.Name, "undo") {
				undone = append(undone, c.Input.Name)
			}
		}
		if !slices.Equal(undone, []string{"undo wicked", "undo doomed"}) {
			t.Errorf("undone %q", undone)
		}
	})
}

var (
	add   = perdure.NewUpdate[int, int]("add")
	total = perdure.NewQuery[perdure.Void, int]("total")
	shown = perdure.NewState[int]("shown")
	stop  = perdure.NewSignal[string]("stop")
	stops = perdure.DeclareWorkflow[int, string]("stops")
)

// stopsCode adds numbers until a signal stops it. It sleeps during updates, so that some updates
// have to wait.
func stopsCode(ctx perdure.WorkflowCtx, sum int) (string, error) {
	ctx.OnInterrupt(func(ctx perdure.WorkflowCtx, why string) error {
		_, err := work.Run(ctx, task{Name: "tell " + why})
		return err
	})
	total.Handle(ctx, func(perdure.Void) (int, error) { return sum, nil })
	add.Handle(ctx, func(ctx perdure.WorkflowCtx, n int) (int, error) {
		if err := ctx.Sleep(time.Minute); err != nil {
			return 0, err
		}
		sum += n
		return sum, shown.Set(ctx, sum)
	}, func(n int) error {
		if n < 0 {
			return errors.New("less than nothing")
		}
		return nil
	})
	if err := ctx.SetLabel("stage", "open"); err != nil {
		return "", err
	}
	how, err := stop.Receive(ctx)
	if err != nil {
		return "", err
	}
	if err := ctx.WaitUpdates(); err != nil {
		return "", err
	}
	if err := ctx.Sleep(time.Second); err != nil { // the next updates arrive during the sleep
		return "", err
	}

	rest := stop.Drain(ctx)
	last, _ := shown.Get(ctx)
	if how == "clear" {
		if err := shown.Clear(ctx); err != nil {
			return "", err
		}
	}
	if _, err := work.Run(ctx, task{Name: "close"}); err != nil {
		return "", err
	}
	return fmt.Sprint(how, rest, last), nil
}

func TestTalking(t *testing.T) {
	t.Parallel()
	works := perduretest.NewFake(func(_ context.Context, t task) (string, error) { return "did " + t.Name, nil })
	program := perdure.Group{stops.Bind(stopsCode), work.Bind(works.Call)}
	perduretest.Run(t, program, func(t *testing.T, env *perduretest.Env) {
		x, err := stops.Start(env.With(), 1, perdure.RawKey("x"))
		if err != nil {
			t.Fatal(err)
		}
		if n, err := add.Call(env.With(), x, 2); n != 3 || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
		env.Restart()
		ctx, app := env.Context(), env.App()
		if n, err := total.Ask(env.With(), x, perdure.Void{}); n != 3 || err != nil {
			t.Errorf("total %d, %v", n, err)
		}
		if n, ok, err := shown.Read(env.With(), x); n != 3 || !ok || err != nil {
			t.Errorf("shown %d, %v, %v", n, ok, err)
		}
		if _, err := add.Call(env.With(), x, -1); err == nil || err.Error() != "less than nothing" {
			t.Errorf("a refused update: %v", err)
		}
		if err := app.Executions().Pause(ctx, x, "lunch"); err != nil {
			t.Fatal(err)
		}
		env.Settle()
		if got := env.Reason(x); got != "is paused: lunch" {
			t.Errorf("it %s", got)
		}
		for _, how := range []string{"again", "wrong", "clear"} {
			if err := stop.Send(env.With(), x, how); err != nil {
				t.Fatal(err)
			}
		}
		signals, err := app.Signals().List(ctx, x)
		if err != nil || len(signals) != 3 || signals[1].Name != "stop" {
			t.Fatalf("%+v, %v", signals, err)
		}
		wrong, err := app.Signals().Describe(ctx, x, signals[1].ID)
		if err := errors.Join(err, app.Signals().Drop(ctx, x, wrong.ID, "a mistake")); err != nil || string(wrong.Value) != `"wrong"` {
			t.Errorf("%+v, %v", wrong, err)
		}
		if last, err := app.Signals().Skip(ctx, x, signals[0].ID, "later"); err != nil || last.Position != 2 {
			t.Errorf("%+v, %v", last, err)
		}
		sent := perdure.NewSignal[int]("noise").Send(env.With(), x, 1)
		if n, err := app.Signals().DropAll(ctx, x, "noise", "a mistake"); n != 1 || errors.Join(sent, err) != nil {
			t.Errorf("%d signals are dropped, %v", n, err)
		}
		if err := app.Executions().Resume(ctx, x); err != nil {
			t.Fatal(err)
		}
		if got, err := x.Result(env.With()); got != "clear[again] 3" || err != nil {
			t.Errorf("%q, %v", got, err)
		}

		// Histories: a fork, a reset, an import, and a deletion.
		fork, err := app.Executions().Fork(ctx, x, perdure.RawKey("fork"), perdure.BeforeStep("work"))
		if err != nil {
			t.Fatal(err)
		}
		env.Settle()
		if info, err := app.Executions().Describe(ctx, fork); err != nil || info.Status != perdure.Completed {
			t.Errorf("fork: %+v, %v", info, err)
		}
		if _, err := app.Executions().Reset(ctx, x, perdure.BeforeStep("work")); err != nil {
			t.Fatal(err)
		}
		if got, err := x.Result(env.With()); got != "clear[again] 3" || err != nil {
			t.Errorf("reset: %q, %v", got, err)
		}
		var file strings.Builder
		if err := app.Histories().Export(ctx, x, &file); err != nil {
			t.Fatal(err)
		}
		if err := app.Executions().Delete(ctx, x); err != nil {
			t.Fatal(err)
		}
		if _, err := app.Histories().Import(ctx, strings.NewReader(file.String())); err != nil {
			t.Fatal(err)
		}
		if got, err := x.Result(env.With()); got != "clear[again] 3" || err != nil {
			t.Errorf("import: %q, %v", got, err)
		}
		y, err := stops.Start(env.With(), 1, perdure.RawKey("y"))
		if err != nil {
			t.Fatal(err)
		}
		env.Settle()
		if err := y.Cancel(env.With(), "late"); err != nil {
			t.Fatal(err)
		}
		if _, err := y.Result(env.With()); !errors.Is(err, perdure.ErrCanceled) {
			t.Errorf("a cancelled one: %v", err)
		}
		if _, err := app.Executions().Retry(ctx, y); err != nil {
			t.Fatal(err)
		}
		env.Settle()
		if n, err := app.Executions().Count(ctx, `label.stage = "open" and status = "open"`); n != 1 || err != nil {
			t.Errorf("%d are open, %v", n, err)
		}
		z, err := stops.Start(env.With(), 1, perdure.RawKey("z"), perdure.Labels(map[string]string{"stage": "begun"}))
		if err != nil {
			t.Fatal(err)
		}
		for e, err := range app.Executions().Batch(ctx, `key = "z"`, func(c perdure.Client, e perdure.Info) error { return e.Ref.Cancel(c, "all of them") }) {
			if err != nil || e.Ref.Key != "z" {
				t.Errorf("batch: %v, %v", e, err)
			}
		}
		if _, err := z.Result(env.With()); !errors.Is(err, perdure.ErrCanceled) {
			t.Errorf("one of a batch: %v", err)
		}
		if err := app.Executions().Terminate(ctx, y, "enough"); err != nil {
			t.Fatal(err)
		}
		var rows strings.Builder
		if err := app.Executions().ForceDelete(ctx, y, &rows); err != nil || !strings.Contains(rows.String(), "executions") {
			t.Errorf("forced delete: %v, exported %q", err, rows.String())
		}
		if n, err := app.SweepPayloads(ctx, time.Hour); n != 0 || !errors.Is(err, perdure.ErrInvalid) {
			t.Errorf("a sweep of %d blobs where there are none: %v", n, err)
		}
		for letter, err := range app.DeadLetters(ctx) {
			t.Errorf("dead letter: %+v, %v", letter, err)
		}
		for info, err := range app.Executions().Stranded(ctx) {
			t.Errorf("stranded: %+v, %v", info, err)
		}
	})
	if told := works.Calls(); !slices.ContainsFunc(told, func(c perduretest.Call[task, string]) bool { return c.Input.Name == "tell late" }) {
		t.Errorf("the interrupt was not heard: %v", told)
	}
}

// TestTasksWaitForAWorker submits tasks to a queue without workers. The tasks exist and wait.
func TestTasksWaitForAWorker(t *testing.T) {
	t.Parallel()
	render := perdure.DeclareActivity[task, string]("render", perdure.OnQueue("gpu"))
	perduretest.Run(t, perdure.Group{stops.Bind(stopsCode), render}, func(t *testing.T, env *perduretest.Env) {
		env.App().Tasks().Pause() // the process has no task worker, so this does nothing
		env.App().Tasks().Resume()
		x, err := render.Submit(env.With(), task{Name: "one"}, perdure.RawKey("one"), perdure.Labels(map[string]string{"team": "x"}))
		if err != nil || render.Execution(perdure.RawKey("one")) != x {
			t.Fatal(x, err)
		}
		if _, err := render.SubmitMany(env.With(), []task{{Name: "two"}, {Name: "three"}}); err != nil {
			t.Fatal(err)
		}

		env.Settle()
		if n, err := env.App().Executions().Count(env.Context(), `workflow = "task:render" and status = "open"`); n != 3 || err != nil {
			t.Errorf("%d tasks are open, %v", n, err)
		}
		if how, err := x.Poll(env.With()); how.Status != perdure.Running || err != nil {
			t.Errorf("%v, %v", how, err)
		}
	})
}

// TestScheduling fires a schedule by the clock, by hand and for times in the past. Both ordinary
// code and a workflow describe the schedule.
func TestScheduling(t *testing.T) {
	t.Parallel()
	planned := perdure.NewWorkflow("planned", func(ctx perdure.WorkflowCtx, n int) (string, error) {
		at, ok := ctx.ScheduledFor()
		return fmt.Sprintf("%d %s %t", n, at.UTC().Format(time.RFC3339), ok), nil
	})
	daily := perdure.NewSchedule("daily", perdure.Cron("0 12 * * *", "Europe/Berlin"), planned.Job(7), perdure.OverlapQueue, perdure.Jitter(time.Minute), perdure.PausedAtFirst("not yet"))
	asks := perdure.NewWorkflow("asks", func(ctx perdure.WorkflowCtx, _ int) (int64, error) {
		if err := daily.Trigger(ctx); err != nil {
			return 0, err
		}
		info, err := daily.Describe(ctx)
		return info.Triggered, err
	})
	perduretest.Run(t, perdure.Group{planned, asks, daily}, func(t *testing.T, env *perduretest.Env) {
		if next, err := daily.Next(time.Now(), 2); err != nil || len(next) != 2 || !next[1].Equal(time.Date(2000, 1, 2, 11, 0, 0, 0, time.UTC)) {
			t.Errorf("next: %v, %v", next, err)
		}
		env.Advance(24 * time.Hour)
		if err := daily.Resume(env.With()); err != nil {
			t.Fatal(err)
		}
		env.Advance(24 * time.Hour)
		if n, err := daily.Backfill(env.With(), time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC), time.Now()); n != 2 || err != nil {
			t.Errorf("backfill of %d, %v", n, err)
		}
		env.Settle()
		if n, err := asks.Run(env.With(), 1); n != 1 || err != nil {
			t.Errorf("triggered %d, %v", n, err)
		}

		env.Settle()
		info, err := daily.Describe(env.With())
		if err != nil || info.Fired != 4 || info.Backfilled != 2 || info.Missed != 1 || info.Failed != 0 {
			t.Errorf("%+v, %v", info, err)
		}
		first := planned.Execution(perdure.RawKey("daily@2000-01-01T11:00:00Z"))
		if got, err := first.Result(env.With()); got != "7 2000-01-01T11:00:00Z true" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		if err := daily.Pause(env.With(), "enough"); err != nil {
			t.Fatal(err)
		}

		for s, err := range env.App().Schedules().List(env.Context()) {
			if err != nil || s.Name != "daily" || s.Why != "enough" {
				t.Errorf("%+v, %v", s, err)
			}
		}
		if err := daily.Delete(env.With()); err != nil {
			t.Fatal(err)
		}
		if err := daily.Trigger(env.With()); !errors.Is(err, perdure.ErrNotFound) {
			t.Errorf("trigger of what was deleted: %v", err)
		}
		if _, err := daily.Describe(env.With()); !errors.Is(err, perdure.ErrNotFound) {
			t.Errorf("describe what was deleted: %v", err)
		}
		env.Restart() // the schedule is among the definitions, so Restart creates it again
		if info, err := daily.Describe(env.With()); err != nil || info.Fired != 0 || !info.Paused {
			t.Errorf("%+v, %v", info, err)
		}
	})
}

// TestFlow tries tasks, limits, breakers and queues.
func TestFlow(t *testing.T) {
	t.Parallel()
	double := perdure.NewActivity("double", func(_ context.Context, n int) (int, error) { return 2 * n, nil },
		perdure.OnQueue("math"), perdure.Limit("chips"), perdure.Breaker("chips"))
	perduretest.Run(t, double, func(t *testing.T, env *perduretest.Env) {
		ctx, app := env.Context(), env.App()
		app.Tasks().Pause()
		app.Tasks().Resume()
		want := perdure.Allowance{OpenExecutions: 100, StartsPerSecond: 1000, Weight: 2, Retention: time.Hour}
		if err := app.Tenant().SetAllowance(ctx, want); err != nil {
			t.Fatal(err)
		}
		if got, err := app.Tenant().Allowance(ctx); got != want || err != nil || app.Tenant().Name() != "default" {
			t.Errorf("allowance of %s: %+v, %v", app.Tenant().Name(), got, err)
		}

		for what, err := range map[string]error{
			"limit": app.Limits().Set(ctx, perdure.LimitRule{Name: "chips", Concurrency: 1}), "rule": app.Breakers().SetRule(ctx, perdure.BreakerRule{Name: "chips", Failures: 2}),
			"trip": app.Breakers().Trip(ctx, "chips", "test"), "queue": app.Queues().Pause(ctx, "math", "test"),
		} {
			if err != nil {
				t.Fatal(what, err)
			}
		}
		x, err := double.Submit(env.With(), 21)
		if err != nil {
			t.Fatal(err)
		}
		limits, err := app.Limits().List(ctx)
		breakers, err2 := app.Breakers().List(ctx)
		rules, err3 := app.Breakers().Rules(ctx)
		queues, err4 := app.Queues().List(ctx)
		if err := errors.Join(err, err2, err3, err4); err != nil || len(limits) != 1 || len(breakers) != 1 || len(rules) != 1 || len(queues) != 2 {
			t.Errorf("%v, %v, %v, %v, %v", limits, breakers, rules, queues, err)
		}
		if err := app.Limits().Disable(ctx, "chips", "test"); err != nil {
			t.Fatal(err)
		}
		if limits, err := app.Limits().List(ctx); len(limits) != 1 || !limits[0].Disabled || limits[0].Reason != "test" || err != nil {
			t.Errorf("a disabled limit: %+v, %v", limits, err)
		}
		if err := app.Limits().Enable(ctx, "chips"); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(app.Breakers().Pause(ctx, "chips", time.Now().Add(time.Minute), "test"), app.Breakers().Reset(ctx, "chips"), app.Queues().Resume(ctx, "math")); err != nil {
			t.Fatal(err)
		}
		if n, err := x.Result(env.With()); n != 42 || err != nil {
			t.Errorf("%d, %v", n, err)
		}

		many, err := double.SubmitMany(env.With(), []int{1, 2})
		if err != nil || len(many) != 2 {
			t.Fatal(many, err)
		}
		for i := range many {
			if n, err := many[i].Result(env.With()); n != 2*(i+1) || err != nil {
				t.Errorf("%d, %v", n, err)
			}
		}
		if err := errors.Join(app.Limits().Delete(ctx, "chips"), app.Breakers().DeleteRule(ctx, "chips")); err != nil {
			t.Error(err)
		}
	})
}

// TestDeadTasks lets tasks fail permanently and requeues them.
func TestDeadTasks(t *testing.T) {
	t.Parallel()
	send := perdure.NewActivity("send", func(_ context.Context, to string) (string, error) {
		if to != "bob" {
			return "", perdure.Permanent(fmt.Errorf("there is no %s", to))
		}
		return "sent", nil
	}, perdure.OnQueue("post"))
	perduretest.Run(t, send, func(t *testing.T, env *perduretest.Env) {
		ctx, app := env.Context(), env.App()
		xs, err := send.SubmitMany(env.With(), []string{"ann", "eve"})
		if err != nil {
			t.Fatal(err)
		}

		for i := range xs {
			if _, err := xs[i].Result(env.With()); err == nil {
				t.Errorf("%d was sent", i)
			}
		}
		if groups, err := app.DeadTasks().Groups(ctx, perdure.DeadQuery{}); err != nil || len(groups) == 0 {
			t.Errorf("%+v, %v", groups, err)
		}
		var ids []string

		for d, err := range app.DeadTasks().List(ctx, perdure.DeadQuery{}) {
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, d.ID)
		}
		if len(ids) != 2 {
			t.Fatalf("%v are dead", ids)
		}
		if d, err := app.DeadTasks().Describe(ctx, ids[0]); err != nil || d.ID != ids[0] {
			t.Errorf("%+v, %v", d, err)
		}
		ref, err := app.DeadTasks().Requeue(ctx, ids[0], perdure.WithInput("bob"))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := (perdure.Execution[string]{Ref: ref}).Result(env.With()); got != "sent" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		if err := app.DeadTasks().UndoRequeue(ctx, ids[1]); err == nil {
			t.Error("what was not requeued was undone")
		}
		for _, err := range app.DeadTasks().RequeueAll(ctx, perdure.DeadQuery{}, perdure.RequeueMany{DryRun: true}) {
			if err != nil {
				t.Error(err)
			}
		}
		for _, err := range app.DeadTasks().Purge(ctx, perdure.DeadQuery{}) {
			if err != nil {
				t.Error(err)
			}
		}
	})
}

var (
	reached = perdure.NewState[int]("reached")
	passing = perdure.NewState[string]("passing")
	climb   = perdure.DeclareActivity[int, int]("climb", perdure.OnQueue("hill"), perdure.Constant(0, time.Second))
)

// If a process dies between a Save and the outcome of the attempt, no saved state is lost. Lines
// and items that were written before the Save exist once.
func TestTaskDataOutlivesAProcess(t *testing.T) {
	t.Parallel()
	var seen []string
	code := func(ctx context.Context, top int) (int, error) {
		at, ok, err := reached.Load(ctx)
		if err != nil {
			return 0, err
		}
		seen = append(seen, fmt.Sprint(at, " ", ok))
		perdure.Log(ctx).Info("begins", "at", at)

		if err := errors.Join(
			perdure.StreamToken(ctx, "up"), perdure.StreamProgress(ctx, float64(at)/float64(top), ""), perdure.StreamData(ctx, at), perdure.StreamError(ctx, errors.New("windy")),
			// When Save returns, everything that was written before it is durable too.
			passing.Save(ctx, "here"), passing.Remove(ctx), reached.Save(ctx, at+1),
		); err != nil {
			return 0, err
		}

		if at+1 < top {
			<-ctx.Done() // until the process dies
			return 0, ctx.Err()
		}

		return at + 1, nil
	}
	perduretest.Run(t, perdure.Group{climb.Bind(code)}, func(t *testing.T, env *perduretest.Env) {
		x, err := climb.Submit(env.With(), 3, perdure.RawKey("k"))
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			env.Settle()
			env.Restart()
		}
		if got, err := x.Result(env.With()); got != 3 || err != nil {
			t.Fatalf("%d, %v", got, err)
		}
		if want := []string{"0 false", "1 true", "2 true"}; !slices.Equal(seen, want) {
			t.Errorf("attempts have loaded %q, want %q", seen, want)
		}
		if n, ok, err := reached.Read(env.With(), x); n != 3 || !ok || err != nil {
			t.Errorf("at the end it is %d, %v, %v", n, ok, err)
		}
		var lines, items []string

		for l, err := range env.App().Tasks().Logs(env.Context(), x, perdure.TaskTail{Follow: true}) {
			if err != nil {
				t.Fatal(err)
			}
			lines = append(lines, l.Text)
		}
		if want := []string{"begins at=0", "begins at=1", "begins at=2"}; !slices.Equal(lines, want) {
			t.Errorf("lines are %q, want %q", lines, want)
		}
		for it, err := range env.App().Tasks().Stream(env.Context(), x, perdure.TaskTail{Follow: true, After: 8}) {
			if err != nil {
				t.Fatal(err)
			}
			items = append(items, fmt.Sprint(it.Position, it.Kind, it.Text))
		}
		if want := []string{"9tokenup", "10progress", "11data", "12errorwindy"}; !slices.Equal(items, want) {
			t.Errorf("streamed is %q, want %q", items, want)
		}
	})
}

// A program can make calls of entities and services later, and withdraw them.
func TestLaterCalls(t *testing.T) {
	t.Parallel()
	tally := perdure.NewEntity[int]("tally")
	add := perdure.NewOperation(tally, "add", func(_ perdure.EntityCtx, s *int, n int) (int, error) { *s += n; return *s, nil })
	rung := 0
	bell := perdure.NewService("bell")
	ring := perdure.NewRPC(bell, "ring", func(perdure.EntityCtx, perdure.Void) (perdure.Void, error) { rung++; return perdure.Void{}, nil })

	perduretest.Run(t, perdure.Group{tally, bell}, func(t *testing.T, env *perduretest.Env) {
		_, err := add.SendLater(env.With(), "k", 1, perdure.StartDelay(time.Hour))
		_, other := add.SendLater(env.With(), "k", 10, perdure.StartDelay(time.Hour), perdure.RawKey("ten"))
		_, third := ring.SendLater(env.With(), "k", perdure.Void{}, perdure.StartDelay(time.Hour))
		if err := errors.Join(err, other, third, perdure.LaterCall(perdure.RawKey("ten")).Cancel(env.With(), "no")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour)
		env.Settle()
		if n, _, err := tally.Get(env.With(), "k"); n != 1 || rung != 1 || err != nil {
			t.Errorf("the tally is %d, the bell rang %d times, %v", n, rung, err)
		}
	})
}

// A singleton runs in virtual time. After a crash the next process waits for the lease and
// continues at the saved position.
func TestSingleton(t *testing.T) {
	t.Parallel()
	ticker := perdure.NewSingleton("ticker", func(ctx context.Context, at *perdure.Position[int]) error {
		n, err := at.Last()
		if err != nil {
			return err
		}
		return at.Save(ctx, n+1)
	}, perdure.RestartAfter(time.Hour), perdure.SingletonLease(time.Minute))

	perduretest.Run(t, perdure.Group{ticker}, func(t *testing.T, env *perduretest.Env) {
		look := func(epoch int64, position int) {
			t.Helper()
			info, err := ticker.Describe(env.With())
			if err != nil || info.Epoch != epoch || info.Position != position {
				t.Errorf("%+v, %v; want epoch %d at %d", info, err, epoch, position)
			}
		}
		time.Sleep(150 * time.Minute)
		look(1, 3)
		env.Restart()
		time.Sleep(50 * time.Second)
		look(1, 3)
		time.Sleep(time.Minute)
		look(2, 4)
	})
}
