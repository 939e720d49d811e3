package crashwalk_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/model"
)

var (
	fanout  = perdure.DeclareWorkflow[int, int]("fanout")
	square  = perdure.DeclareActivity[int, int]("square")
	chooser = perdure.DeclareWorkflow[int, string]("chooser")
	racer   = perdure.DeclareWorkflow[int, string]("racer")
	runner  = perdure.DeclareActivity[string, string]("runner")
	mixer   = perdure.DeclareWorkflow[int, string]("mixer")
	tap     = perdure.NewSignal[string]("tap")
	saga    = perdure.DeclareWorkflow[string, string]("saga")
)

// fan is how many activities run side by side.
const fan = 20

// groupScenarios are about concurrent steps and abandoned steps.
func groupScenarios() []*scenario {
	squares := map[string]int{}
	for i := range fan {
		squares[fmt.Sprintf("square %d", i)] = 1
	}

	// run is an activity that returns immediately, or when its context is cancelled.
	run := func(w *world) perdure.Binding {
		return runner.Bind(func(ctx context.Context, name string) (string, error) {
			w.recordBody(name)
			if strings.HasPrefix(name, "slow") {
				return name, sleep(ctx, time.Hour)
			}
			return name, nil
		})
	}

	return []*scenario{
		{
			name:     "twenty activities",
			selfless: true,
			bodies:   squares,
			stages: alone(func(w *world) perdure.Group {
				return perdure.Group{
					square.Bind(func(_ context.Context, n int) (int, error) {
						w.recordBody(fmt.Sprintf("square %d", n))
						return n * n, nil
					}),
					fanout.Bind(func(ctx perdure.WorkflowCtx, n int) (int, error) {
						var fs []*perdure.Future[int]
						for i := range n {
							fs = append(fs, square.Go(ctx, i))
						}
						vs, err := perdure.All(ctx, fs...)
						sum := 0
						for _, v := range vs {
							sum += v
						}
						return sum, err
					}),
				}
			}, ending(fanout, fan, "k", 2470)),
		},
		{
			name:   "select",
			bodies: map[string]int{"quick": 1},
			stages: alone(func(w *world) perdure.Group {
				return perdure.Group{run(w), chooser.Bind(func(ctx perdure.WorkflowCtx, _ int) (string, error) {
					var won []string
					step, timer, signal := runner.Go(ctx, "quick"), ctx.Timer(time.Hour), tap.Next(ctx)
					for range 2 { // the step is first, then the signal comes; the timer never wins
						fs := []perdure.Waitable{timer, signal}
						if len(won) == 0 {
							fs = append(fs, step)
						}

						switch f, err := perdure.Select(ctx, fs...); {
						case err != nil:
							return "", err
						case f == step:
							won = append(won, "step")
						case f == timer:
							won = append(won, "timer")
						case f == signal:
							v, err := signal.Get(ctx)
							if err != nil {
								return "", err
							}
							won = append(won, v)
						}
					}

					timer.Cancel(ctx)
					short := ctx.Timer(time.Second)
					if f, err := perdure.Select(ctx, tap.Next(ctx), short); err != nil || f != short {
						return "", fmt.Errorf("the last select: %w", err)
					}

					return strings.Join(append(won, "timer"), " "), nil
				})}
			}, func(d *driver) error {
				x, err := start(d, chooser, 0, "k")
				if err != nil {
					return err
				}
				return inOrder(
					// The step ends before the signal comes.
					func() error { return d.awaitEvent(x.Ref, model.EventStepCompleted, "runner") },
					func() error { return send(d, tap, x.Ref, "tap", "s1") },
					func() error { return result(d, x, "step tap timer") },
				)
			}),
		},
		{
			name:     "race and first of several",
			selfless: true,
			bodies:   map[string]int{"winner": 1, "one": 1, "two": 1},
			maybe:    []string{"slow a", "slow b", "slow c"},
			// A step that has not started when it loses the race leaves no trace.
			ignore: []model.EventKind{model.EventWithdrawn},
			stages: alone(func(w *world) perdure.Group {
				return perdure.Group{run(w), racer.Bind(func(ctx perdure.WorkflowCtx, _ int) (string, error) {
					first, err := perdure.Race(ctx, runner.Go(ctx, "slow a"), runner.Go(ctx, "winner"))
					if err != nil {
						return "", err
					}
					two, err := perdure.FirstN(ctx, 2, runner.Go(ctx, "slow b"), runner.Go(ctx, "one"), runner.Go(ctx, "slow c"), runner.Go(ctx, "two"))
					if err != nil {
						return "", err
					}
					if len(two) != 2 || two[0] == two[1] {
						return "", fmt.Errorf("the first two are %v", two)
					}
					return first + " and two", nil
				})}
			}, ending(racer, 0, "k", "winner and two")),
		},
		{
			name:     "coroutines",
			selfless: true,
			bodies:   map[string]int{"left": 1, "right": 1, "joined": 1},
			stages: alone(func(w *world) perdure.Group {
				return perdure.Group{mixer.Bind(func(ctx perdure.WorkflowCtx, _ int) (string, error) {
					side := func(name string, d time.Duration) *perdure.Future[string] {
						return perdure.Go(ctx, func(ctx perdure.WorkflowCtx) (string, error) {
							if err := ctx.Sleep(d); err != nil {
								return "", err
							}
							return w.step(ctx, name)
						})
					}
					vs, err := perdure.All(ctx, side("left", 2*time.Second), side("right", time.Second))
					if err != nil {
						return "", err
					}
					last, err := w.step(ctx, "joined")
					return strings.Join(append(vs, last), " "), err
				})}
			}, ending(mixer, 0, "k", "left right joined")),
		},
		{
			name:   "cancel with clean-up",
			bodies: map[string]int{"reserve": 1, "charge": 1, "refund": 1, "unreserve": 1, "log": 1},
			stages: alone(sagaCode, func(d *driver) error {
				x, err := start(d, saga, "wait", "k")
				if err != nil {
					return err
				}
				return inOrder(
					func() error { return d.awaitEvent(x.Ref, model.EventStepCompleted, "charge") },
					func() error { return cancel(d, x, "changed my mind") },
					func() error { return ends(d, x, perdure.Canceled, "changed my mind") },
				)
			}),
			check: checkCompensated,
		},
		{
			name:     "failure with clean-up",
			selfless: true,
			bodies:   map[string]int{"reserve": 1, "charge": 1, "refund": 1, "unreserve": 1, "log": 1, "ship": 1},
			stages: alone(sagaCode, func(d *driver) error {
				x, err := start(d, saga, "ship", "k")
				if err != nil {
					return err
				}
				return ends(d, x, perdure.Failed, "no ship")
			}),
			check: checkCompensated,
		},
	}
}

// sagaCode reserves and charges, and undoes both if it is cancelled or cannot ship.
func sagaCode(w *world) perdure.Group {
	return perdure.Group{saga.Bind(func(ctx perdure.WorkflowCtx, end string) (string, error) {
		undo := func(name string) func(perdure.WorkflowCtx) error {
			return func(ctx perdure.WorkflowCtx) error {
				_, err := w.step(ctx, name)
				return err
			}
		}

		ctx.Defer(undo("log"))
		if _, err := w.step(ctx, "reserve"); err != nil {
			return "", err
		}
		ctx.OnFailure(undo("unreserve"))
		if _, err := w.step(ctx, "charge"); err != nil {
			return "", err
		}

		ctx.OnFailure(undo("refund"))
		if end == "wait" {
			return tap.Receive(ctx)
		}
		return perdure.Do(ctx, end, func(context.Context) (string, error) {
			w.recordBody(end)
			return "", perdure.Permanent(errors.New("no ship"))
		})
	})}
}

// checkCompensated checks that the steps were undone in reverse order.
func checkCompensated(_ *world, h *histories) error {
	var order []string
	for _, e := range h.last(saga.Execution(perdure.RawKey("k")).Ref).events {
		if e.Kind == model.EventStepCompleted {
			order = append(order, e.Name)
		}
	}
	if got := strings.Join(order, " "); got != "reserve charge refund unreserve log" {
		return wrong("steps in the order %s", got)
	}
	return nil
}
