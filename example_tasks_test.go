package perdure_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

// Any process that serves the queue executes an activity with a queue. The process that runs the
// workflow needs only the name and the types of the activity.
func ExampleOnQueue() {
	type Photo struct{ ID string }
	render := perdure.DeclareActivity[Photo, string]("render",
		perdure.OnQueue("gpu"), perdure.HeartbeatTimeout(30*time.Second), perdure.AttemptTimeout(time.Hour), perdure.Exponential(5))

	album := perdure.NewWorkflow("album", func(ctx perdure.WorkflowCtx, ids []string) ([]string, error) {
		var urls []*perdure.Future[string]
		for _, id := range ids {
			urls = append(urls, render.Go(ctx, Photo{id}))
		}
		return perdure.All(ctx, urls...) // waits without a goroutine, however long the queue is
	}, perdure.Uses(render))

	// In another program, on machines that have a GPU:
	serve := func(ctx context.Context) error {
		app, err := embedded.Config{Tasks: perdure.TaskConfig{Slots: 4}}.Open(ctx, "postgres://db/app", render.Bind(func(_ context.Context, p Photo) (string, error) {
			return "https://cdn/" + p.ID, nil
		}))
		if err != nil {
			return err
		}
		return app.Wait(ctx)
	}
	_, _ = album, serve
}

// Submit starts a task without a workflow. Like an execution, the task has a key, a result and a
// history, and can be cancelled.
func ExampleActivity_Submit() {
	clean := perdure.NewActivity("clean", func(_ context.Context, dir string) (int, error) { return len(dir), nil }, perdure.OnQueue("low"))
	submit := func(ctx context.Context, app *perdure.App) error {
		task, err := clean.Submit(app.With(ctx), "exports", perdure.RawKey("nightly"), perdure.Delay(time.Hour), perdure.Priority(-1))
		if err != nil {
			return err
		}
		removed, err := task.Result(app.With(ctx))
		fmt.Println(removed, err)

		// The policy of the submission replaces the policy of the activity.
		_, err = clean.SubmitMany(app.With(ctx), []string{"a", "b", "c"}, perdure.Exponential(3))
		return err
	}
	_ = submit
}

// A long task reports its progress. If its worker dies, the next attempt continues from the last
// report.
func ExampleHeartbeat() {
	type Copied struct{ Blocks int }
	backup := perdure.NewActivity("backup", func(ctx context.Context, blocks int) (int, error) {
		at, _ := perdure.LastProgress[Copied](ctx)
		for ; at.Blocks < blocks; at.Blocks++ {
			if err := perdure.Heartbeat(ctx, at); err != nil {
				return 0, err // the task was cancelled, it timed out, or the process shuts down
			}
		}
		return at.Blocks, nil
	}, perdure.OnQueue("backup"), perdure.HeartbeatTimeout(time.Minute))
	_ = backup
}

// A task that cannot continue now goes back to the queue and uses up no attempt.
func ExampleSnooze() {
	errClosed := errors.New("closed at night")
	ring := func() error { return errClosed }
	deliver := perdure.NewActivity("deliver", func(context.Context, string) (perdure.Void, error) {
		if err := ring(); errors.Is(err, errClosed) {
			return perdure.Void{}, perdure.Snooze(8 * time.Hour)
		}
		return perdure.Void{}, nil
	}, perdure.OnQueue("couriers"), perdure.Exponential(3))
	_ = deliver
}

// TaskConfig says how many tasks a process executes at the same time, and which queues it serves in
// addition to the queues of its activities.
func ExampleTaskConfig_queues() {
	open := func(ctx context.Context, defs ...perdure.Definition) (*perdure.App, error) {
		return embedded.Config{Tasks: perdure.TaskConfig{
			Slots:        50,
			Queues:       []string{"gpu-low"},
			DrainTimeout: time.Minute, // after that, running tasks go back to the queue
		}}.Open(ctx, "postgres://db/app", defs...)
	}
	_ = open
}

// An option belongs to the activity, to one call, or to one submission. The option of a call or a
// submission replaces the option of the activity.
func ExampleTaskOption() {
	mail := perdure.NewActivity("mail", func(context.Context, string) (perdure.Void, error) { return perdure.Void{}, nil },
		perdure.OnQueue("mail"), perdure.Limit("smtp"), perdure.Breaker("smtp"), perdure.ScheduleToStart(time.Hour))
	newsletter := perdure.NewWorkflow("newsletter", func(ctx perdure.WorkflowCtx, customers []string) (perdure.Void, error) {
		var sent []*perdure.Future[perdure.Void]
		for _, c := range customers {
			sent = append(sent, mail.Go(ctx, c, perdure.Priority(-10), perdure.FairKey(c, 1)))
		}
		_, err := perdure.All(ctx, sent...)
		return perdure.Void{}, err
	})
	_ = newsletter
}
