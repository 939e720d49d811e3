package perduretest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/perduretest"
)

var (
	paint   = perdure.DeclareActivity[string, string]("paint", perdure.OnQueue("gpu"), perdure.Exponential(3), perdure.HeartbeatTimeout(30*time.Second))
	gallery = perdure.NewWorkflow("gallery", func(ctx perdure.WorkflowCtx, names []string) ([]string, error) {
		var fs []*perdure.Future[string]
		for _, n := range names {
			fs = append(fs, paint.Go(ctx, n))
		}
		return perdure.All(ctx, fs...)
	}, perdure.Uses(paint))
)

// TestQueuedActivities runs a workflow whose activities are tasks. One of the tasks fails once, and
// the process dies in the middle of the workflow.
func TestQueuedActivities(t *testing.T) {
	t.Parallel()
	fake := perduretest.NewFake(func(ctx context.Context, name string) (string, error) {
		perduretest.Effect(ctx, "paint "+name)
		return name + "!", nil
	})

	fake.FailFirst(1, errors.New("no paint"))
	perduretest.Run(t, perdure.Group{gallery, paint.Bind(fake.Call)}, func(t *testing.T, env *perduretest.Env) {
		x, err := gallery.Start(env.With(), []string{"a", "b", "c"}, perdure.RawKey("g"))
		if err != nil {
			t.Fatal(err)
		}
		env.Settle()
		env.Restart()
		if got, err := x.Result(env.With()); fmt.Sprint(got) != "[a! b! c!]" || err != nil {
			t.Errorf("%v, %v\n%s", got, err, env.History(x))
		}
	})
}

// TestSubmittedTasks submits, awaits, cancels and fails tasks.
func TestSubmittedTasks(t *testing.T) {
	t.Parallel()
	work := perdure.NewActivity("toil", func(ctx context.Context, how string) (int, error) {
		switch how {
		case "long":
			<-ctx.Done()
			return 0, context.Cause(ctx)
		case "bad":
			return 0, perdure.Permanent(errors.New("bad"))
		case "nap":
			if _, slept := perdure.LastProgress[bool](ctx); !slept {
				if err := perdure.Heartbeat(ctx, true); err != nil {
					return 0, err
				}
				time.Sleep(2 * time.Second) // the answer to a heartbeat brings the cancellation
				return 0, perdure.Snooze(time.Hour)
			}
		}

		return perdure.Attempt(ctx), nil
	}, perdure.OnQueue("toil"))

	perduretest.Run(t, work, func(t *testing.T, env *perduretest.Env) {
		xs, err := work.SubmitMany(env.With(), []string{"fine", "bad", "long", "nap"})
		if err != nil {
			t.Fatal(err)
		}
		if n, err := xs[0].Result(env.With()); n != 1 || err != nil {
			t.Errorf("fine: %d, %v", n, err)
		}
		if _, err := xs[1].Result(env.With()); err == nil || err.Error() != "bad" {
			t.Errorf("bad: %v", err)
		}
		env.Settle()
		if err := xs[2].Cancel(env.With(), "enough"); err != nil {
			t.Fatal(err)
		}

		if _, err := xs[2].Result(env.With()); !errors.Is(err, perdure.ErrCanceled) {
			t.Errorf("long: %v", err)
		}
		if n, err := xs[3].Result(env.With()); n != 1 || err != nil {
			t.Errorf("a nap consumes an attempt: %d, %v", n, err)
		}
	})
}
