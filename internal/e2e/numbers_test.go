package e2e_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

const forever = time.Duration(math.MaxInt64)

// Every entry point refuses numbers, times, policies and rules that make no sense, with a typed
// error, and stores nothing.
func TestNumbersThatMakeNoSense(t *testing.T) {
	t.Parallel()
	onStores(t, kinds, func(t *testing.T, s *site) {
		work := perdure.NewActivity("work", func(context.Context, int) (int, error) { return 0, nil }, perdure.OnQueue("work"))
		wf := perdure.NewWorkflow("wf", func(_ perdure.WorkflowCtx, n int) (int, error) { return n, nil })
		nightly := perdure.NewSchedule("nightly", perdure.Cron("0 2 * * *", "Europe/Berlin"), wf.Job(1))
		app := s.open(work, wf, nightly)
		c := caller(t, app)
		ctx := t.Context()
		if err := app.Limits().Set(ctx, perdure.LimitRule{Name: "good", Queue: "work", Concurrency: 2}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the schedule sleeps", func() bool {
			info, err := app.Executions().Describe(ctx, perdure.Ref{Workflow: "perdure.schedule", Key: "nightly"})
			return err == nil && strings.Contains(info.Reason, "timer")
		})
		before := s.contents()
		submit := func(o perdure.StartOption) error { _, err := work.Submit(c, 1, o); return err }
		many := func(o perdure.StartOption) error { _, err := work.SubmitMany(c, []int{1, 2}, o); return err }
		start := func(o perdure.StartOption) error { _, err := wf.Start(c, 1, perdure.RawKey("k"), o); return err }
		limit := func(r perdure.LimitRule) error { return app.Limits().Set(ctx, r) }
		breaker := func(r perdure.BreakerRule) error { return app.Breakers().SetRule(ctx, r) }
		pause := func(year int) error {
			return app.Breakers().Pause(ctx, "b", time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC), "")
		}
		requeue := func(rate float64) (err error) {
			for _, err = range app.DeadTasks().RequeueAll(ctx, perdure.DeadQuery{}, perdure.RequeueMany{Rate: rate}) {
			}
			return err
		}
		for _, x := range []struct {
			name string
			err  error
			kind error
			says []string
		}{
			{"delay", submit(perdure.Delay(-1)), perdure.ErrInvalid, []string{"Delay is -1ns"}},
			{"endless delay", submit(perdure.Delay(forever)), perdure.ErrInvalid, []string{"Delay", "hundred years"}},
			{"attempt time-out", submit(perdure.AttemptTimeout(math.MinInt64)), perdure.ErrInvalid, []string{"AttemptTimeout"}},
			{"endless attempt", submit(perdure.AttemptTimeout(forever)), perdure.ErrInvalid, []string{"AttemptTimeout", "hundred years"}},
			{"heartbeat", submit(perdure.HeartbeatTimeout(1)), perdure.ErrInvalid, []string{"at least 100ms"}},
			{"schedule to start", many(perdure.ScheduleToStart(-time.Hour)), perdure.ErrInvalid, []string{"ScheduleToStart is -1h"}},
			{"schedule to close", many(perdure.ScheduleToClose(forever)), perdure.ErrInvalid, []string{"ScheduleToClose", "hundred years"}},
			{"priority", submit(perdure.Priority(math.MinInt)), perdure.ErrInvalid, []string{"Priority"}},
			{"weight", submit(perdure.FairKey("k", math.MaxInt)), perdure.ErrInvalid, []string{"weight"}},
			{"queue", submit(perdure.OnQueue("a\x00b")), perdure.ErrInvalid, []string{"queue", "control"}},
			{"limit", submit(perdure.Limit("")), perdure.ErrInvalid, []string{"limit", "empty"}},
			{"reuse of a task", submit(perdure.Reuse(7)), perdure.ErrInvalid, []string{"no Reuse 7"}},
			{"reuse", start(perdure.Reuse(-1)), perdure.ErrInvalid, []string{"no Reuse -1"}},
			{"parent close", start(perdure.ParentClose(2)), perdure.ErrInvalid, []string{"no ParentClose 2"}},

			{"concurrency", limit(perdure.LimitRule{Name: "l", Queue: "work", Concurrency: math.MinInt}), perdure.ErrInvalid, []string{"concurrency"}},
			{"endless concurrency", limit(perdure.LimitRule{Name: "l", Queue: "work", Concurrency: math.MaxInt}), perdure.ErrInvalid, []string{"concurrency"}},
			{"rate", limit(perdure.LimitRule{Name: "l", Queue: "work", Rate: -1, Period: time.Second}), perdure.ErrInvalid, []string{"rate -1"}},
			{"period", limit(perdure.LimitRule{Name: "l", Queue: "work", Rate: 1, Period: -time.Second}), perdure.ErrInvalid, []string{"period", "-1s"}},
			{"endless period", limit(perdure.LimitRule{Name: "l", Queue: "work", Rate: 1, Period: forever}), perdure.ErrInvalid, []string{"period"}},
			{"burst", limit(perdure.LimitRule{Name: "l", Queue: "work", Rate: 1, Period: time.Second, Burst: math.MinInt}), perdure.ErrInvalid, []string{"burst"}},
			{"an unknown queue", limit(perdure.LimitRule{Name: "l", Queue: "wrok", Concurrency: 1}), perdure.ErrNotFound, []string{"no queue wrok"}},
			{"a contradiction", limit(perdure.LimitRule{Name: "l", Queue: "work", Concurrency: 3}), perdure.ErrConflict, []string{"good and l"}},
			{"ratio", breaker(perdure.BreakerRule{Name: "b", Ratio: math.NaN()}), perdure.ErrInvalid, []string{"ratio NaN"}},
			{"endless ratio", breaker(perdure.BreakerRule{Name: "b", Ratio: math.Inf(1)}), perdure.ErrInvalid, []string{"ratio +Inf"}},
			{"window", breaker(perdure.BreakerRule{Name: "b", Window: -time.Second}), perdure.ErrInvalid, []string{"window -1s"}},
			{"reset", breaker(perdure.BreakerRule{Name: "b", Reset: forever}), perdure.ErrInvalid, []string{"reset"}},
			{"lease", breaker(perdure.BreakerRule{Name: "b", Lease: math.MinInt64}), perdure.ErrInvalid, []string{"lease"}},
			{"retry after", breaker(perdure.BreakerRule{Name: "b", MaxRetryAfter: forever}), perdure.ErrInvalid, []string{"max retry after"}},
			{"probes", breaker(perdure.BreakerRule{Name: "b", Probes: -1}), perdure.ErrInvalid, []string{"probes -1"}},
			{"failures", breaker(perdure.BreakerRule{Name: "b", Failures: math.MaxInt}), perdure.ErrInvalid, []string{"failures"}},
			{"a pause that never ends", pause(12_000), perdure.ErrInvalid, []string{"12000"}},
			{"a pause whose end does not fit", pause(400_000), perdure.ErrInvalid, []string{"400000"}},
			{"a pause before there was time", pause(1812), perdure.ErrInvalid, []string{"1812"}},

			{"rate of requeues", requeue(-1), perdure.ErrInvalid, []string{"-1 per second"}},
			{"rate that is none", requeue(math.NaN()), perdure.ErrInvalid, []string{"NaN per second"}},
			{"endless rate", requeue(math.Inf(1)), perdure.ErrInvalid, []string{"+Inf per second"}},
			{"rate so slow that it overflows", requeue(1e-300), perdure.ErrInvalid, []string{"1e-300 per second"}},

			{"times of a schedule", second(nightly.Next(time.Now(), -1)), perdure.ErrInvalid, []string{"-1"}},
		} {
			wantError(t, x.name, x.err, x.kind, x.says...)
		}
		s.checkUnchanged(before)
		// The code of the schedule refuses the request, so the refusal is in the history. The
		// schedule fires as before.
		from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		for _, x := range []struct {
			name     string
			from, to time.Time
		}{
			{"backwards", from, from.Add(-time.Hour)},
			{"too early", time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC), from},
			{"too late", from, time.Date(9998, 1, 1, 0, 0, 0, 0, time.UTC)},
			{"too many", time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC), from},
		} {
			_, err := nightly.Backfill(c, x.from, x.to)
			wantError(t, "backfill "+x.name, err, perdure.ErrInvalid, "nightly")
		}
		if got := list(t, app, `workflow = "wf"`); len(got) != 0 {
			t.Errorf("there are executions %v", got)
		}
	})
}

// Open refuses settings of a process that make no sense. It refuses them before it opens anything.
func TestSettingsThatMakeNoSense(t *testing.T) {
	t.Parallel()
	onStores(t, kinds, func(t *testing.T, s *site) {
		for name, cfg := range map[string]embedded.Config{
			"LeaseTTL is negative": {LeaseTTL: -1}, "LeaseTTL is endless": {LeaseTTL: forever}, "Shards": {Shards: -1}, "MaxPayload": {MaxPayload: -1},
			"Retention": {Retention: -time.Hour}, "DrainTimeout": {DrainTimeout: -1}, "IdleAfter": {IdleAfter: math.MinInt64}, "MaxLoaded": {MaxLoaded: -1}, "MaxSteps": {MaxSteps: -1},
			"HighLoad": {Tasks: perdure.TaskConfig{HighLoad: math.NaN(), LowLoad: 0.1}}, "LowMemory": {Tasks: perdure.TaskConfig{HighMemory: 0.5, LowMemory: math.NaN()}},
			"Prefetch": {Tasks: perdure.TaskConfig{Prefetch: math.MinInt}}, "Slots": {Tasks: perdure.TaskConfig{Slots: math.MaxInt}},
		} {
			cfg.AllowUnsafe = true
			app, err := cfg.Open(t.Context(), s.url)
			if err == nil {
				err = app.Close()
				t.Errorf("%s: it opens: %v", name, err)
				continue
			}
			if !errors.Is(err, perdure.ErrInvalid) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// An activity says when to retry it. A time in the past means now. A time that is too far away
// fails the task with an error that says so.
func TestTimesOfActivities(t *testing.T) {
	t.Parallel()
	onStores(t, kinds, func(t *testing.T, s *site) {
		var attempts [6]atomic.Int32
		says := [len(attempts)]func() error{
			func() error { return perdure.Snooze(math.MinInt64) },
			func() error { return perdure.RetryAfter(errors.New("busy"), math.MinInt64) },
			func() error { return perdure.Snooze(forever) },
			func() error { return perdure.RetryAfter(errors.New("busy"), forever) },
			func() error { return perdure.RetryAfter(perdure.Permanent(errors.New("busy")), -1) },
			func() error { return perdure.RetryAfter(nil, forever) },
		}

		body := func(_ context.Context, n int) (int, error) {
			if attempts[n].Add(1) > 1 {
				return n, nil
			}
			return n, says[n]()
		}

		queued := perdure.NewActivity("queued", body, perdure.OnQueue("work"), perdure.Constant(5, time.Millisecond))
		inline := perdure.NewActivity("inline", body, perdure.Constant(5, time.Millisecond))
		wf := perdure.NewWorkflow("wf", func(ctx perdure.WorkflowCtx, n int) (int, error) { return inline.Run(ctx, n) })
		app := s.open(queued, wf, inline)
		c := caller(t, app)

		check := func(what string, n, want int, err error, attempts int32, text string) {
			t.Helper()
			switch {
			case text == "" && err != nil:
				t.Errorf("%s %d: %v", what, n, err)
			case text != "" && (err == nil || !strings.Contains(err.Error(), text)):
				t.Errorf("%s %d: %v, want %q", what, n, err, text)
			case attempts != int32(want):
				t.Errorf("%s %d: %d attempts, want %d", what, n, attempts, want)
			}
		}
		for n, x := range [len(attempts)]struct {
			attempts int
			text     string
		}{{2, ""}, {2, ""}, {1, "Snooze of 2562047h"}, {1, "RetryAfter of 2562047h"}, {1, "busy"}, {1, ""}} {
			exec, err := queued.Submit(c, n)
			if err != nil {
				t.Fatal(err)
			}
			_, err = exec.Result(c)
			check("task", n, x.attempts, err, attempts[n].Swap(0), x.text)
			if invalid := n == 2 || n == 3; invalid != errors.Is(err, perdure.ErrInvalid) {
				t.Errorf("task %d: %v is invalid: %v", n, err, !invalid)
			}
			if n == 0 {
				continue // case 0 gives a task back, and an inline step has no task
			}
			_, err = wf.Run(c, n, perdure.RawKey("k"), perdure.ReuseAlways)
			check("step", n, x.attempts, err, attempts[n].Swap(0), x.text)
		}
	})
}
