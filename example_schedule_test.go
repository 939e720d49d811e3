package perdure_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

var digest = perdure.NewWorkflow("digest", func(ctx perdure.WorkflowCtx, to string) (string, error) {
	_, scheduled := ctx.ScheduledFor()
	return fmt.Sprintf("digest for %s, scheduled: %t", to, scheduled), nil
})

// Opening the app creates the schedule. The schedule also fires while this process does not run, if
// another process serves it.
func ExampleSchedule() {
	nightly := perdure.NewSchedule("nightly", perdure.Cron("0 2 * * *", "Europe/Berlin"), digest.Job("everybody"), perdure.OverlapSkip)
	app := embedded.MustOpen("memory:", digest, nightly)
	defer app.Close()
	ctx := app.With(context.Background())
	if err := nightly.Trigger(ctx); err != nil {
		panic(err)
	}
	info, err := nightly.Describe(ctx)
	if err != nil {
		panic(err)
	}

	// The schedule has recorded the start of the execution. The execution itself starts a moment
	// later.
	last := perdure.Execution[string]{Ref: info.Last[0]}
	text, err := last.Result(ctx)
	for errors.Is(err, perdure.ErrNotFound) {
		time.Sleep(time.Millisecond)
		text, err = last.Result(ctx)
	}
	fmt.Println(text, err)
	fmt.Println(info.Fired, info.When)
	// Output:
	// digest for everybody, scheduled: true <nil>
	// 1 0 2 * * * Europe/Berlin
}

// A time that the clock skips in spring fires at the first moment after the gap. A time that the
// clock repeats in autumn fires once.
func ExampleSchedule_Next() {
	nightly := perdure.NewSchedule("nightly", perdure.Cron("30 2 * * *", "Europe/Berlin"), digest.Job("everybody"))
	spring, _ := nightly.Next(time.Date(2026, 3, 28, 12, 0, 0, 0, time.UTC), 2)
	autumn, _ := nightly.Next(time.Date(2026, 10, 24, 12, 0, 0, 0, time.UTC), 2)
	for _, t := range append(spring, autumn...) {
		fmt.Println(t.Format(time.RFC3339))
	}
	// Output:
	// 2026-03-29T01:00:00Z
	// 2026-03-30T00:30:00Z
	// 2026-10-25T00:30:00Z
	// 2026-10-26T01:30:00Z
}

// Backfill starts an execution for every fire time that has none, or only a failed one.
func ExampleSchedule_Backfill() {
	hourly := perdure.NewSchedule("hourly", perdure.Every(time.Hour), digest.Job("the boss"), perdure.PausedAtFirst("not in use yet"))
	app := embedded.MustOpen("memory:", digest, hourly)
	defer app.Close()
	ctx := app.With(context.Background())
	fmt.Println(hourly.Backfill(ctx, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)))
	info, _ := hourly.Describe(ctx)
	fmt.Println(info.Paused, info.Why, info.Backfills)
	// Output:
	// 24 <nil>
	// true not in use yet 1
}

// All processes count an interval from the same moment. Offset moves that moment.
func ExampleCadence() {
	s := perdure.NewSchedule("s", perdure.Every(time.Hour).Offset(5*time.Minute), digest.Job(""))
	next, err := s.Next(time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC), 1)
	fmt.Println(next[0].Format(time.RFC3339), err)
	// Output: 2026-11-15T12:05:00Z <nil>
}

// A job carries its input, and labels in addition to the labels of the schedule.
func ExampleJob() {
	job := digest.Job("eve", perdure.Labels(map[string]string{"team": "sales"}))
	s := perdure.NewSchedule("s", perdure.Cron("@daily", ""), job)
	app := embedded.MustOpen("memory:", digest, s)
	defer app.Close()
	ctx := context.Background()
	if err := s.Trigger(app.With(ctx)); err != nil {
		panic(err)
	}

	for {
		if n, err := app.Executions().Count(ctx, `label.team = "sales" and label.perdure.schedule = "s"`); n == 1 || err != nil {
			fmt.Println(n, err)
			break
		}
		time.Sleep(time.Millisecond)
	}
	// Output: 1 <nil>
}

// Overlap decides what happens at a fire time while an earlier execution of the schedule is open.
func ExampleOverlap() {
	wait := perdure.NewWorkflow("wait", func(ctx perdure.WorkflowCtx, _ int) (int, error) { return 0, ctx.Sleep(time.Hour) })
	s := perdure.NewSchedule("s", perdure.Cron("@daily", ""), wait.Job(1), perdure.OverlapQueue)
	app := embedded.MustOpen("memory:", wait, s)
	defer app.Close()
	ctx := app.With(context.Background())
	fmt.Println(s.Trigger(ctx)) // starts an execution
	fmt.Println(s.Trigger(ctx)) // waits until the first execution ends
	info, _ := s.Describe(ctx)
	fmt.Println(info.Overlap, len(info.Open), info.Waiting.IsZero())
	// Output:
	// <nil>
	// <nil>
	// queue 1 false
}
