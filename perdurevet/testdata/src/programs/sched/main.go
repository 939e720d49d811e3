package main

import (
	"context"
	"os"
	"os/signal"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

var (
	Report  = perdure.NewWorkflow("report", func(ctx perdure.WorkflowCtx, day string) (perdure.Void, error) { return perdure.Void{}, nil })
	Clean   = perdure.NewActivity("clean", func(ctx context.Context, dir string) (int, error) { return 0, nil }, perdure.OnQueue("low"))
	Nightly = perdure.NewSchedule("nightly", perdure.Cron("0 2 * * *", "Europe/Berlin"), Report.Job("yesterday"), perdure.OverlapSkip)
	Hourly  = perdure.NewSchedule("hourly", perdure.Every(3600e9), Clean.Job("logs"))
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	app := embedded.MustOpen("file:app.db", Report, Clean, Nightly, Hourly)
	defer app.Close()
	_ = Nightly.Trigger(app.With(ctx))
	_, _ = Clean.Submit(app.With(ctx), "exports", perdure.RawKey("once"))
	_ = app.Wait(ctx)
}
