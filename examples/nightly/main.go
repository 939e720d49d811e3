// Command nightly makes a report every night at two, Berlin time, and a clean-up every second. Each
// schedule fires exactly once at each of its times, no matter how many processes of the program
// run. If no process runs at that time, the schedule fires later.
//
//	go run ./examples/nightly [store URL]
//
// The program backfills the reports of the last three nights, triggers one report, and waits until
// the clean-up has fired three times. Kill it at any time (kill -9) and run it again: it repeats no
// backfilled report and no clean-up. Each run of the program triggers another report.
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

// makeReport returns the code of the report workflow. A report covers the time until the tick that
// started it. If the execution is late or backfilled, that tick is in the past.
func makeReport(out io.Writer) func(perdure.WorkflowCtx, string) (string, error) {
	return func(ctx perdure.WorkflowCtx, what string) (string, error) {
		night, ok := ctx.ScheduledFor()
		if !ok {
			return "", perdure.Permanent(errors.New("only the schedule may start a report"))
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

// until reads the schedule again and again, and stops when so returns true for the result.
func until(c perdure.Client, s *perdure.Schedule, so func(perdure.ScheduleInfo) bool) (perdure.ScheduleInfo, error) {
	for {
		info, err := s.Describe(c)
		if err != nil || so(info) {
			return info, err
		}
		time.Sleep(50 * time.Millisecond)
	}
}
