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
	"github.com/perdure/perdure/internal/attach"
	"github.com/perdure/perdure/perduretest"
)

var (
	reporting = perdure.DeclareWorkflow[string, string]("report")
	jot       = perdure.DeclareActivity[string, string]("jot")
	finish    = perdure.NewSignal[string]("finish")
)

// report records its scheduled time. A slow report runs until it is cancelled.
func report(ctx perdure.WorkflowCtx, in string) (string, error) {
	at, ok := ctx.ScheduledFor()
	if !ok {
		return "", perdure.Permanent(errors.New("it was not begun by a schedule"))
	}
	if strings.HasPrefix(in, "slow") {
		if _, err := finish.Receive(ctx); err != nil {
			return "", err
		}
	}
	return jot.Run(ctx, fmt.Sprint(in, " ", at.UTC().Format(time.RFC3339)))
}

// notes returns a fake that collects the notes of reports, in order.
func notes() (*perduretest.Fake[string, string], perdure.Definition) {
	fake := perduretest.NewFake(func(_ context.Context, s string) (string, error) { return s, nil })
	return fake, perdure.Group{reporting.Bind(report), jot.Bind(fake.Call)}
}

func texts(f *perduretest.Fake[string, string]) (all []string) {
	for _, c := range f.Calls() {
		all = append(all, c.Input)
	}
	return all
}

func describe(t *testing.T, env *perduretest.Env, s *perdure.Schedule) perdure.ScheduleInfo {
	t.Helper()
	env.Settle()
	info, err := s.Describe(env.With())
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func same(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%s:\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestAYearOfNights runs a schedule in Berlin for one year, with both clock changes, and kills the
// process every month. In short mode, it ends after the first clock change.
func TestAYearOfNights(t *testing.T) {
	t.Parallel()
	days := 366 // 2000 is a leap year
	if testing.Short() {
		days = 90
	}
	fake, defs := notes()
	nightly := perdure.NewSchedule("nightly", perdure.Cron("30 2 * * *", "Europe/Berlin"), reporting.Job("day"))

	perduretest.Run(t, perdure.Group{defs, nightly}, func(t *testing.T, env *perduretest.Env) {
		for day := range days {
			env.Advance(24 * time.Hour)
			if day%30 == 29 {
				env.Restart()
			}
		}

		got := texts(fake)
		if len(got) != days || got[0] != "day 2000-01-01T01:30:00Z" {
			t.Fatalf("%d nights, %q", len(got), got)
		}
		same(t, "spring", got[85:88], "day 2000-03-26T01:00:00Z", "day 2000-03-27T00:30:00Z", "day 2000-03-28T00:30:00Z")

		if days == 366 {
			same(t, "autumn", got[302:304], "day 2000-10-29T00:30:00Z", "day 2000-10-30T01:30:00Z")
			same(t, "the last night", got[365:], "day 2000-12-31T01:30:00Z")
		}

		info := describe(t, env, nightly)
		if info.Fired != int64(days) || info.Skipped+info.Missed+info.Failed != 0 || len(info.Last) != 10 || len(info.Open) != 0 {
			t.Errorf("%+v", info)
		}
	})
}

// TestDowntime stops all processes that serve a schedule for a while. After that, the schedule
// catches up on late fire times within its window, and only counts the fire times that are older.
func TestDowntime(t *testing.T) {
	t.Parallel()
	fake, defs := notes()
	hourly := perdure.NewSchedule("hourly", perdure.Every(time.Hour), reporting.Job("hour"), perdure.OverlapAllow, perdure.CatchUp(3*time.Hour))
	self := perdure.Ref{Workflow: "perdure.schedule", Key: "hourly"}

	perduretest.Run(t, perdure.Group{defs, hourly}, func(t *testing.T, env *perduretest.Env) {
		env.Advance(90 * time.Minute)
		if err := env.App().Executions().Pause(env.Context(), self, "the machine is off"); err != nil {
			t.Fatal(err)
		}
		if info := describe(t, env, hourly); !strings.Contains(info.Trouble, "the machine is off") {
			t.Errorf("trouble: %q", info.Trouble)
		}
		env.Advance(365 * 24 * time.Hour)
		if err := env.App().Executions().Resume(env.Context(), self); err != nil {
			t.Fatal(err)
		}

		env.Advance(time.Hour)
		got := texts(fake)
		slices.Sort(got) // late fire times start together

		// The timer of two o'clock fired in time. So that fire time is not late, although no
		// process could act on it.
		same(t, "hours", got, "hour 2000-01-01T01:00:00Z", "hour 2000-01-01T02:00:00Z",
			"hour 2000-12-30T23:00:00Z", "hour 2000-12-31T00:00:00Z", "hour 2000-12-31T01:00:00Z", "hour 2000-12-31T02:00:00Z")
		if info := describe(t, env, hourly); info.Fired != 6 || info.Missed != 365*24-4 {
			t.Errorf("%+v", info)
		}
	})
}

func TestOverlapPolicies(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		policy perdure.Overlap
		want   []string
		info   string
	}{
		{perdure.OverlapSkip, []string{"slow 2000-01-01T01:00:00Z", "slow 2000-01-01T05:00:00Z"}, "fired 2, skipped 3, failed 0"},
		{perdure.OverlapQueue, []string{"slow 2000-01-01T01:00:00Z", "slow 2000-01-01T02:00:00Z"}, "fired 3, skipped 2, failed 0"},
		{perdure.OverlapCancel, []string{"slow 2000-01-01T04:00:00Z"}, "fired 5, skipped 0, failed 3"},
	} {
		t.Run(c.policy.String(), func(t *testing.T) {
			t.Parallel()
			fake, defs := notes()
			s := perdure.NewSchedule("s", perdure.Every(time.Hour), reporting.Job("slow"), c.policy)

			perduretest.Run(t, perdure.Group{defs, s}, func(t *testing.T, env *perduretest.Env) {
				env.Advance(4*time.Hour + 30*time.Minute)
				tell := func() {
					for _, open := range describe(t, env, s).Open {
						if err := finish.Send(env.With(), open, "now"); err != nil {
							t.Error(err)
						}
					}
					env.Settle()
				}

				tell()
				if c.policy != perdure.OverlapCancel {
					env.Advance(time.Hour)
					tell()
				} else {
					env.Advance(time.Hour)
				}

				same(t, "reports", texts(fake), c.want...)
				i := describe(t, env, s)
				if got := fmt.Sprintf("fired %d, skipped %d, failed %d", i.Fired, i.Skipped, i.Failed); got != c.info {
					t.Errorf("%s, want %s", got, c.info)
				}
			})
		})
	}
}

// TestDefinitionsChange deploys another definition of a schedule, which changes the stored
// schedule.
func TestDefinitionsChange(t *testing.T) {
	t.Parallel()
	fake, defs := notes()
	define := func(when perdure.Cadence, in string) *perdure.Schedule {
		return perdure.NewSchedule("s", when, reporting.Job(in, perdure.Labels(map[string]string{"team": "ops"})))
	}
	first := define(perdure.Every(time.Hour), "first")

	perduretest.Run(t, perdure.Group{defs, first}, func(t *testing.T, env *perduretest.Env) {
		env.Advance(90 * time.Minute)
		events := func() int {
			return strings.Count(env.History(perdure.Ref{Workflow: "perdure.schedule", Key: "s"}), "\n")
		}
		before := events()
		env.Restart() // the definition is the same, so Open writes nothing
		env.Settle()
		if after := events(); after != before {
			t.Errorf("%d events, then %d", before, after)
		}
		if err := first.Pause(env.With(), "a deploy"); err != nil {
			t.Fatal(err)
		}

		env.Restart(defs, define(perdure.Every(time.Hour).Offset(30*time.Minute), "second"))
		info := describe(t, env, first)
		if !info.Paused || info.Why != "a deploy" || info.Fired != 1 || info.When != "every 1h0m0s, 30m0s after it" || info.Next != nil {
			t.Errorf("%+v", info)
		}
		if err := first.Resume(env.With()); err != nil {
			t.Fatal(err)
		}

		env.Advance(time.Hour)
		same(t, "reports", texts(fake), "first 2000-01-01T01:00:00Z", "second 2000-01-01T02:30:00Z")
		n, err := env.App().Executions().Count(env.Context(), `label.perdure.schedule = "s" and label.team = "ops"`)
		if n != 2 || err != nil {
			t.Errorf("%d executions are found by their labels, %v", n, err)
		}
		env.Restart(defs) // the schedule is no longer defined, but it is not pruned
		env.Advance(time.Hour)
		if n := len(fake.Calls()); n != 3 {
			t.Errorf("%d reports", n)
		}
	})
}

// TestWrongSchedules opens apps with schedules that are refused.
func TestWrongSchedules(t *testing.T) {
	t.Parallel()
	_, defs := notes()
	app := func(defs ...perdure.Definition) error {
		a, err := attach.Open(t.Context(), attach.Config{}, defs...)
		if err == nil {
			t.Error("it opens", a)
		}
		return err
	}

	job := reporting.Job("x")
	for _, c := range []struct {
		def  perdure.Definition
		want string
	}{
		{perdure.NewSchedule("", perdure.Every(time.Hour), job), "the name of a schedule is empty"},
		{perdure.NewSchedule("s", perdure.Cadence{}, job), "cron line"},
		{perdure.NewSchedule("s", perdure.Every(0), job), "positive"},
		{perdure.NewSchedule("s", perdure.Cron("0 0 30 2 *", ""), job), "never fires"},
		{perdure.NewSchedule("s", perdure.Cron("0 25 * * *", ""), job), `hour "25"`},
		{perdure.NewSchedule("s", perdure.Cron("0 0 * * *", "Berlin"), job), `zone "Berlin"`},
		{perdure.NewSchedule("s", perdure.Every(time.Hour), perdure.Job{}), "not the name of one"},
		{perdure.NewSchedule("s", perdure.Every(time.Hour), reporting.Job("x", perdure.RawKey("k"))), "each execution its own key"},
		{perdure.NewSchedule("s", perdure.Every(time.Hour), reporting.Job("x", perdure.ReuseAlways)), "each execution its own key"},
		{perdure.NewSchedule("s", perdure.Every(time.Hour), reporting.Job("x", perdure.Labels(map[string]string{"": ""}))), "label"},
		{perdure.NewSchedule("s", perdure.Every(time.Hour), job, perdure.Overlap(9)), "Overlap 9"},
		{perdure.NewSchedule("s", perdure.Every(time.Hour), job, perdure.CatchUp(0)), "catch-up"},
		{perdure.NewSchedule("s", perdure.Every(time.Hour), job, perdure.Jitter(-1)), "jitter"},
		{perdure.NewSchedule("s", perdure.Every(time.Hour), job, perdure.EndAt(time.Unix(0, 0)), perdure.StartAt(time.Unix(9, 0))), "not after its start"},
		{perdure.Group{perdure.NewSchedule("s", perdure.Every(time.Hour), job), perdure.NewSchedule("s", perdure.Every(time.Hour), job)}, "two definitions of schedule s"},
		{perdure.NewWorkflow("perdure.mine", func(perdure.WorkflowCtx, int) (int, error) { return 0, nil }), "begins with perdure."},
	} {
		if err := app(defs, c.def); err == nil || !errors.Is(err, perdure.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}

	if _, err := attach.Open(t.Context(), attach.Config{PruneSchedules: true}); err == nil || !strings.Contains(err.Error(), "has a name") {
		t.Error(err)
	}
}
