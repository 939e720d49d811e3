// Command nightly has a report made every night at two, Berlin time, and a clean-up every second,
// by schedules: they fire exactly once, however many processes of the program run, and whether or
// not one runs at that moment.
//
//	go run ./examples/nightly [store URL]
//
// It fills in the reports of the last three nights, triggers one by hand, and watches the clean-up
// fire three times. Kill it anywhere (kill -9) and run it again: nothing that was done is done
// twice.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

var (
	report  = perdure.DeclareWorkflow[string, string]("report")
	cleanup = perdure.DeclareWorkflow[int, string]("clean-up")

	nightly = perdure.NewSchedule("nightly", perdure.Cron("0 2 * * *", "Europe/Berlin"), report.Job("sales"))
	often   = perdure.NewSchedule("often", perdure.Every(time.Second), cleanup.Job(30), perdure.OverlapSkip, perdure.CatchUp(time.Minute))
)

// makeReport is about the night that it was begun for, which is not now when it is late or
// backfilled.
func makeReport(out io.Writer) func(perdure.WorkflowCtx, string) (string, error) {
	return func(ctx perdure.WorkflowCtx, what string) (string, error) {
		night, ok := ctx.ScheduledFor()
		if !ok {
			return "", perdure.Permanent(errors.New("a report is made by its schedule"))
		}
		return perdure.Do(ctx, "write", func(context.Context) (string, error) {
			fmt.Fprintf(out, "report of %s until %s\n", what, night.UTC().Format("2006-01-02 15:04"))
			return what, nil
		})
	}
}

func main() {
	url := "file:nightly.db"
	if len(os.Args) > 1 {
		url = os.Args[1]
	}
	if err := run(context.Background(), url, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url string, out io.Writer) error {
	app, err := embedded.Config{Name: "nightly", PruneSchedules: true}.Open(ctx, url, nightly, often, report.Bind(makeReport(out)),
		cleanup.Bind(func(_ perdure.WorkflowCtx, days int) (string, error) { return fmt.Sprint(days, " days"), nil }))
	if err != nil {
		return err
	}
	defer app.Close()
	c := app.With(ctx)
	today := time.Now().UTC().Truncate(24 * time.Hour)
	n, err := nightly.Backfill(c, today.AddDate(0, 0, -3), today)
	if err != nil {
		return err
	}

	fmt.Fprintf(out, "%d nights to fill in\n", n)
	info, err := until(c, nightly, func(i perdure.ScheduleInfo) bool { return i.Backfills == 0 && len(i.Open) == 0 })
	if err != nil {
		return err
	}
	if err := nightly.Trigger(c); err != nil {
		return err
	}

	if _, err := until(c, nightly, func(i perdure.ScheduleInfo) bool { return i.Triggered > info.Triggered && len(i.Open) == 0 }); err != nil {
		return err
	}
	if _, err := until(c, often, func(i perdure.ScheduleInfo) bool { return i.Fired >= 3 }); err != nil {
		return err
	}

	for s, err := range app.Schedules().List(ctx) {
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s: %s, fires next at %s\n", s.Name, s.When, s.Next[0].Format(time.RFC3339))
	}

	return nil
}

// until looks at a schedule until it is so.
func until(c perdure.Client, s *perdure.Schedule, so func(perdure.ScheduleInfo) bool) (perdure.ScheduleInfo, error) {
	for {
		info, err := s.Describe(c)
		if err != nil || so(info) {
			return info, err
		}
		time.Sleep(50 * time.Millisecond)
	}
}
