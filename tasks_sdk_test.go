package perdure_test

import (
	"context"
	"errors"
	"fmt"
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

// What an attempt reported last is there for the next one.
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
				time.Sleep(time.Minute) // so that it is told
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
