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
