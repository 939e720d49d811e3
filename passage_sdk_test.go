package perdure_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

// Limits apply to tasks, and also to activities that run in the process of their workflow. An
// attempt that waits for a limit holds no slot, and its reason says what it waits for.
func TestInlineLimits(t *testing.T) {
	t.Parallel()
	m := newMeter()
	work := func(key string) func(context.Context, int) (int, error) {
		return func(ctx context.Context, n int) (int, error) {
			defer m.enter(key)()
			time.Sleep(time.Second)
			return n, nil
		}
	}

	limited := perdure.NewActivity("limited", work("limited"), perdure.Limit("two"))
	queued := perdure.NewActivity("queued", work("limited"), perdure.Limit("two"), perdure.OnQueue("q"))
	paced := perdure.NewActivity("paced", func(context.Context, int) (int, error) { m.enter("paced")(); return 0, nil }, perdure.Limit("pace"))
	free := perdure.NewActivity("free", work("free"))

	flow := perdure.NewWorkflow("flow", func(ctx perdure.WorkflowCtx, n int) (int, error) {
		switch {
		case n < 0:
			return free.Run(ctx, n)
		case n%2 == 0:
			return limited.Run(ctx, n)
		}
		return queued.Run(ctx, n)
	})

	fan := perdure.NewWorkflow("fan", func(ctx perdure.WorkflowCtx, n int) (int, error) {
		var fs []*perdure.Future[int]
		for i := range n {
			fs = append(fs, paced.Go(ctx, i))
		}
		_, err := perdure.All(ctx, fs...)
		return n, err
	})

	giveUp := perdure.NewWorkflow("give up", func(ctx perdure.WorkflowCtx, n int) (int, error) {
		_, err := limited.Run(ctx.WithTimeout(time.Second/2), n)
		if !errors.Is(err, perdure.ErrTimeout) {
			return 0, fmt.Errorf("waited for nothing: %w", err)
		}
		return free.Run(ctx, n)
	})

	synctest.Test(t, func(t *testing.T) {
		app, err := embedded.Config{MaxSteps: 4}.Open(t.Context(), "memory:", limited, queued, paced, free, flow, fan, giveUp)
		must(t, err)
		defer app.Close()
		c := app.With(t.Context())
		must(t, app.Limits().Set(t.Context(), perdure.LimitRule{Name: "two", Concurrency: 2}))
		must(t, app.Limits().Set(t.Context(), perdure.LimitRule{Name: "pace", Rate: 2, Period: time.Second}))
		began := time.Now()

		var xs []perdure.Execution[int]
		for i := range 20 {
			x, err := flow.Start(c, i)
			must(t, err)
			xs = append(xs, x)
		}

		time.Sleep(time.Second / 10)
		other, err := giveUp.Start(c, 100)
		must(t, err)
		got, err := flow.Run(c, -1) // there are only four slots, but waiting attempts hold none
		want(t, got, err, -1)
		if d := time.Since(began); d > 2*time.Second {
			t.Errorf("a step without a limit waited for %s", d)
		}
		time.Sleep(3 * time.Second)

		explained := false
		for _, x := range xs {
			info, err := app.Executions().Describe(t.Context(), x)
			must(t, err)
			explained = explained || info.Status == perdure.Running && strings.Contains(info.Reason, "waits for limit two")
		}

		if !explained {
			t.Error("no reason says what it waits for")
		}

		for i, x := range xs {
			got, err := x.Result(c)
			want(t, got, err, i)
		}

		got, err = other.Result(c)
		want(t, got, err, 100)
		if d := time.Since(began).Round(100 * time.Millisecond); m.peak("limited") != 2 || d < 10*time.Second || d > 11*time.Second {
			t.Errorf("%d at a time, done after %s; want 2 and ten seconds", m.peak("limited"), d)
		}
		began = time.Now()
		got, err = fan.Run(c, 9)
		want(t, got, err, 9)
		if d := time.Since(began); d < 4*time.Second-time.Millisecond {
			t.Errorf("nine beginnings at two per second took %s", d)
		}
		limits, err := app.Limits().List(t.Context())
		must(t, err)

		for _, l := range limits {
			for _, u := range l.Uses {
				if u.Held != 0 || u.Waiting != 0 {
					t.Errorf("limit %s is held by %d and waited for by %d", l.Name, u.Held, u.Waiting)
				}
			}
		}

		queues, err := app.Queues().List(t.Context())
		must(t, err)
		for _, q := range queues {
			if q.Name != "q" && q.Name != perdure.DefaultQueue {
				t.Errorf("there is a queue %q", q.Name)
			}
		}
	})
}

// An open breaker holds attempts back without using them up. This includes activities that run in
// the process of their workflow.
func TestInlineBreaker(t *testing.T) {
	t.Parallel()
	var down atomic.Bool
	var calls atomic.Int32

	call := perdure.NewActivity("call", func(context.Context, int) (int, error) {
		calls.Add(1)
		if down.Load() {
			return 0, errors.New("down")
		}
		return 1, nil
	}, perdure.Breaker("bank"), perdure.Constant(3, time.Millisecond))

	flow := perdure.NewWorkflow("flow", func(ctx perdure.WorkflowCtx, n int) (int, error) { return call.Run(ctx, n) })
	runFlow(t, func(t *testing.T, c perdure.Client, app *perdure.App) {
		must(t, app.Breakers().SetRule(t.Context(), perdure.BreakerRule{Name: "bank", Failures: 2, Reset: 30 * time.Second}))
		down.Store(true)
		x, err := flow.Start(c, 1)
		must(t, err)
		time.Sleep(10 * time.Second)
		if n := calls.Load(); n != 2 {
			t.Errorf("%d calls while it is down, want 2", n)
		}
		info, err := app.Executions().Describe(t.Context(), x)
		if err != nil || !strings.Contains(info.Reason, "circuit breaker bank") {
			t.Errorf("described as %+v, %v", info, err)
		}
		down.Store(false)
		got, err := x.Result(c)
		want(t, got, err, 1)
		if n := calls.Load(); n != 3 {
			t.Errorf("%d calls, want 3", n)
		}
	}, call, flow)
}

// Close waits for bodies that run. It does not wait for steps that wait for a slot, a permit or a
// breaker, because their bodies have not started. The next process runs these steps.
func TestCloseWhileStepsWait(t *testing.T) {
	t.Parallel()
	work := func(context.Context, int) (int, error) { time.Sleep(time.Second); return 1, nil }
	free := perdure.NewActivity("free", work)
	limited := perdure.NewActivity("limited", work, perdure.Limit("none"))
	broken := perdure.NewActivity("broken", work, perdure.Breaker("bank"))
	flow := perdure.NewWorkflow("flow", func(ctx perdure.WorkflowCtx, n int) (int, error) {
		return [...]*perdure.Activity[int, int]{free, free, limited, broken}[n].Run(ctx, n)
	})

	synctest.Test(t, func(t *testing.T) {
		app, err := embedded.Config{MaxSteps: 1}.Open(t.Context(), "memory:", free, limited, broken, flow)
		must(t, err)
		must(t, app.Limits().Set(t.Context(), perdure.LimitRule{Name: "none", Rate: 1, Period: 24 * time.Hour}))
		must(t, app.Breakers().SetRule(t.Context(), perdure.BreakerRule{Name: "bank"}))
		must(t, app.Breakers().Trip(t.Context(), "bank", "maintenance"))
		c := app.With(t.Context())
		_, err = flow.Run(c, 2, perdure.RawKey("takes the only permit of the day"))
		must(t, err)

		for i := range 4 {
			_, err := flow.Start(c, i)
			must(t, err)
		}

		synctest.Wait()
		began := time.Now()
		must(t, app.Close())
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("Close took %s, although only one body ran, for a second", took)
		}
	})
}
