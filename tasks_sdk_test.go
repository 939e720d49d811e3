package perdure_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure"
)

func TestQueuedActivity(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	double := perdure.NewActivity("double", func(ctx context.Context, n int) (int, error) {
		if calls.Add(1)%3 == 1 {
			return 0, errors.New("not yet")
		}
		return 2 * n, nil
	}, perdure.OnQueue("math"))

	sum := perdure.NewWorkflow("sum", func(ctx perdure.WorkflowCtx, n int) (int, error) {
		var fs []*perdure.Future[int]
		for i := range n {
			fs = append(fs, double.Go(ctx, i, perdure.StepKey(fmt.Sprint(i))))
		}
		total := 0
		for _, f := range fs {
			v, err := f.Get(ctx)
			if err != nil {
				return 0, err
			}
			total += v
		}
		return total, ctx.Sleep(time.Hour)
	})

	with(t, func(t *testing.T, c perdure.Client, app *perdure.App) {
		got, err := sum.Run(c, 20)
		want(t, got, err, 380)
		x, err := double.Submit(c, 21)
		if err != nil {
			t.Fatal(err)
		}
		got, err = x.Result(c)
		want(t, got, err, 42)
		many, err := double.SubmitMany(c, []int{1, 2, 3})
		if err != nil {
			t.Fatal(err)
		}

		for i, x := range many {
			got, err := x.Result(c)
			want(t, got, err, 2*(i+1))
		}
	}, double, sum)
}

// The next attempt gets the last progress that an attempt reported.
func TestProgressOutlivesAttempts(t *testing.T) {
	t.Parallel()
	copying := perdure.NewActivity("copy", func(ctx context.Context, total int) (int, error) {
		from, _ := perdure.LastProgress[int](ctx)
		for n := from + 1; n <= total; n++ {
			time.Sleep(time.Minute)
			if err := perdure.Heartbeat(ctx, n); err != nil {
				return 0, err
			}
			if n == total/2 && from < n {
				time.Sleep(time.Minute) // long enough for a heartbeat
				return 0, errors.New("the disk is full")
			}
		}
		return from, nil
	}, perdure.OnQueue("disk"), perdure.HeartbeatTimeout(5*time.Minute))

	with(t, func(t *testing.T, c perdure.Client, app *perdure.App) {
		x, err := copying.Submit(c, 10)
		if err != nil {
			t.Fatal(err)
		}
		got, err := x.Result(c)
		want(t, got, err, 5)
	}, copying)
}

// The policy of a submission or a call replaces the policy of the activity.
func TestPolicyOfASubmission(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	work := perdure.NewActivity("work", func(context.Context, int) (int, error) {
		calls.Add(1)
		return 0, errors.New("no")
	}, perdure.OnQueue("q"), perdure.RetryPolicy{MaxAttempts: 7, If: func(error) bool { return false }})

	flow := perdure.NewWorkflow("flow", func(ctx perdure.WorkflowCtx, n int) (int, error) {
		return work.Run(ctx, n, perdure.Constant(4, time.Second))
	})

	with(t, func(t *testing.T, c perdure.Client, app *perdure.App) {
		attempts := func(what string, want int32, result func() error) {
			t.Helper()
			calls.Store(0)
			if err := result(); err == nil {
				t.Errorf("%s succeeded", what)
			}
			if got := calls.Load(); got != want {
				t.Errorf("%s: %d attempts, want %d", what, got, want)
			}
		}

		submit := func(opts ...perdure.StartOption) func() error {
			return func() error {
				x, err := work.Submit(c, 1, opts...)
				if err != nil {
					t.Fatal(err)
				}
				_, err = x.Result(c)
				return err
			}
		}

		attempts("the activity's own policy", 1, submit())
		attempts("that of the submission", 3, submit(perdure.Exponential(3)))
		attempts("that of the call", 4, func() error { _, err := flow.Run(c, 1); return err })

		attempts("that of many submissions", 2*5, func() error {
			xs, err := work.SubmitMany(c, []int{1, 2}, perdure.Constant(5, time.Second))
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range xs {
				_, err = x.Result(c)
			}
			return err
		})

		for name, p := range map[string]perdure.RetryPolicy{
			"If":                   {If: func(error) bool { return true }},
			"ErrorNamed":           {Except: []perdure.ErrorKind{perdure.ErrorType[*perdure.RemoteError]()}},
			"RetryPolicy.Initial":  {Initial: -1},
			"RetryPolicy.MaxAttem": {MaxAttempts: -1},
		} {
			_, err := work.Submit(c, 1, p)
			if !errors.Is(err, perdure.ErrInvalid) || !strings.Contains(err.Error(), name) {
				t.Errorf("a submission with policy %+v: %v, want ErrInvalid that names %s", p, err, name)
			}
		}
	}, work, flow)
}

// The name of an activity may have 200 bytes, also if its tasks are submitted.
func TestSubmitAnActivityWithALongName(t *testing.T) {
	t.Parallel()
	long := perdure.NewActivity(strings.Repeat("n", 200), func(_ context.Context, n int) (int, error) { return n + 1, nil })
	outer := perdure.NewWorkflow("outer", func(ctx perdure.WorkflowCtx, n int) (int, error) {
		x, err := long.Submit(ctx, n)
		if err != nil {
			return 0, err
		}
		return x.Result(ctx)
	})
	with(t, func(t *testing.T, c perdure.Client, _ *perdure.App) {
		x, err := long.Submit(c, 1)
		if err != nil {
			t.Fatal(err)
		}
		got, err := x.Result(c)
		want(t, got, err, 2)
		got, err = outer.Run(c, 2)
		want(t, got, err, 3)
	}, long, outer)
}
