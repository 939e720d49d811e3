package perduretest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/perduretest"
)

var (
	reporting = perdure.DeclareWorkflow[string, string]("report")
	jot       = perdure.DeclareActivity[string, string]("jot")
	finish    = perdure.NewSignal[string]("finish")
)

// report notes for when it was begun. A slow one runs until it is told to end.
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

// notes are what reports have noted, in order.
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

// TestAYearOfNights has a schedule in Berlin for a year that begins and ends with it, with both changes of the clock, and a process that dies every month.
func TestAYearOfNights(t *testing.T) {
	t.Parallel()
	fake, defs := notes()
	nightly := perdure.NewSchedule("nightly", perdure.Cron("30 2 * * *", "Europe/Berlin"), reporting.Job("day"))
	perduretest.Run(t, perdure.Group{defs, nightly}, func(t *testing.T, env *perduretest.Env) {
		for day := range 366 { // 2000 is a leap year
			env.Advance(24 * time.Hour)
			if day%30 == 29 {
				env.Restart()
			}
		}
		got := texts(fake)
		if len(got) != 366 || got[0] != "day 2000-01-01T01:30:00Z" || got[365] != "day 2000-12-31T01:30:00Z" {
			t.Fatalf("%d nights, %q", len(got), got)
		}
		same(t, "spring", got[85:88], "day 2000-03-26T01:00:00Z", "day 2000-03-27T00:30:00Z", "day 2000-03-28T00:30:00Z")
		same(t, "autumn", got[302:304], "day 2000-10-29T00:30:00Z", "day 2000-10-30T01:30:00Z")
		info := describe(t, env, nightly)
		if info.Fired != 366 || info.Skipped+info.Missed+info.Failed != 0 || len(info.Last) != 10 || len(info.Open) != 0 {
			t.Errorf("%+v", info)
		}
	})
}
