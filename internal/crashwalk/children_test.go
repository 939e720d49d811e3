package crashwalk_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/model"
)

var (
	parent  = perdure.DeclareWorkflow[int, string]("parent")
	child   = perdure.DeclareWorkflow[string, string]("child")
	orphan  = perdure.DeclareWorkflow[string, string]("orphan")
	never   = perdure.NewSignal[int]("never")
	watcher = perdure.DeclareWorkflow[int, string]("watcher")
)

// childScenarios are about executions that start, await and cancel each other.
func childScenarios() []*scenario {
	// work is a child that runs a step and returns its result.
	work := func(w *world) perdure.Binding {
		return child.Bind(func(ctx perdure.WorkflowCtx, name string) (string, error) { return w.step(ctx, name) })
	}

	// wait is a child that returns only when it is cancelled. It cleans up before it returns.
	wait := func(w *world) perdure.Binding {
		return child.Bind(func(ctx perdure.WorkflowCtx, name string) (string, error) {
			ctx.Defer(func(ctx perdure.WorkflowCtx) error {
				_, err := w.step(ctx, "tidy up")
				return err
			})
			_, err := never.Receive(ctx)
			return "", err
		})
	}

	return []*scenario{
		{
			name:     "child",
			selfless: true,
			lanes:    2,
			bodies:   map[string]int{"named": 1, "nameless": 1},
			stages: alone(func(w *world) perdure.Group {
				return perdure.Group{work(w), parent.Bind(func(ctx perdure.WorkflowCtx, _ int) (string, error) {
					a, err := child.Run(ctx, "named", perdure.RawKey("c1")) // on the other lane
					if err != nil {
						return "", err
					}
					b, err := child.Run(ctx, "nameless")
					return a + " " + b, err
				})}
			}, ending(parent, 0, "p", "named nameless")),
		},
		{
			name:     "failing child",
			selfless: true,
			bodies:   map[string]int{"fail": 1},
			stages: alone(func(w *world) perdure.Group {
				return perdure.Group{
					child.Bind(func(ctx perdure.WorkflowCtx, name string) (string, error) {
						if _, err := w.step(ctx, name); err != nil {
							return "", err
						}
						return "", errors.New("out of paper")
					}),
					parent.Bind(func(ctx perdure.WorkflowCtx, _ int) (string, error) {
						_, err := child.Run(ctx, "fail", perdure.RawKey("c"))
						return fmt.Sprintf("told: %v", err), nil
					}),
				}
			}, ending(parent, 0, "p", "told: out of paper")),
		},
		{
			name:     "child loses against a timer",
			selfless: true,
			bodies:   map[string]int{"tidy up": 1},
			stages: alone(func(w *world) perdure.Group {
				return perdure.Group{wait(w), parent.Bind(func(ctx perdure.WorkflowCtx, _ int) (string, error) {
					x, err := child.Start(ctx, "slow", perdure.RawKey("c"))
					if err != nil {
						return "", err
					}
					f, t := x.Future(ctx), ctx.Timer(2*time.Second)
					won, err := perdure.Select(ctx, f, t)
					if err != nil {
						return "", err
					}

					if won == f {
						return "child", nil
					}
					f.Cancel(ctx)
					if _, err := f.Get(ctx); !errors.Is(err, perdure.ErrCanceled) {
						return "", fmt.Errorf("the cancelled future says: %w", err)
					}

					return "timer", nil
				})}
			}, func(d *driver) error {
				x, err := start(d, parent, 0, "p")
				if err != nil {
					return err
				}
				if err := result(d, x, "timer"); err != nil {
					return err
				}
				return d.eventually(func() error { return ends(d, child.Execution(perdure.RawKey("c")), perdure.Canceled, "withdrew") })
			}),
		},
		{
			name:     "child wins against a timer",
			selfless: true,
			bodies:   map[string]int{"fast": 1},
			stages: alone(func(w *world) perdure.Group {
				return perdure.Group{work(w), parent.Bind(func(ctx perdure.WorkflowCtx, _ int) (string, error) {
					x, err := child.Start(ctx, "fast", perdure.RawKey("c"))
					if err != nil {
						return "", err
					}
					f, t := x.Future(ctx), ctx.Timer(time.Hour)
					won, err := perdure.Select(ctx, f, t)
					if err != nil {
						return "", err
					}
					t.Cancel(ctx)
					if won != f {
						return "timer", nil
					}
					return f.Get(ctx)
				})}
			}, ending(parent, 0, "p", "fast")),
		},
		{
			name:     "abandoned child",
			selfless: true,
			bodies:   map[string]int{"later": 1},
			stages: alone(func(w *world) perdure.Group {
				return perdure.Group{
					orphan.Bind(func(ctx perdure.WorkflowCtx, name string) (string, error) {
						if err := ctx.Sleep(2 * time.Second); err != nil {
							return "", err
						}
						return w.step(ctx, name)
					}),
					parent.Bind(func(ctx perdure.WorkflowCtx, _ int) (string, error) {
						_, err := orphan.Start(ctx, "later", perdure.RawKey("o"), perdure.AbandonChild)
						return "gone", err
					}),
				}
			}, func(d *driver) error {
				x, err := start(d, parent, 0, "p")
				if err != nil {
					return err
				}
				if err := result(d, x, "gone"); err != nil {
					return err
				}
				// The child starts after the parent has ended, when the message of the parent
				// arrives.
				return d.eventually(func() error { return result(d, orphan.Execution(perdure.RawKey("o")), "later") })
			}),
		},
		{
			name:   "cancelled parent",
			bodies: map[string]int{"begin": 1, "tidy up": 1},
			stages: alone(func(w *world) perdure.Group {
				return perdure.Group{wait(w), parent.Bind(func(ctx perdure.WorkflowCtx, _ int) (string, error) {
					if _, err := w.step(ctx, "begin"); err != nil {
						return "", err
					}
					return child.Run(ctx, "slow", perdure.RawKey("c"))
				})}
			}, func(d *driver) error {
				x, err := start(d, parent, 0, "p")
				if err != nil {
					return err
				}
				return inOrder(
					func() error { return d.awaitEvent(x.Ref, model.EventChildStarted, "") },
					func() error { return cancel(d, x, "stop it") },
					func() error { return ends(d, x, perdure.Canceled, "stop it") },
					func() error {
						return d.eventually(func() error { return ends(d, child.Execution(perdure.RawKey("c")), perdure.Canceled, "") })
					},
				)
			}),
			check: func(w *world, h *histories) error {
				if n := h.count(child.Execution(perdure.RawKey("c")).Ref, model.EventCancelRequest, ""); n != 1 {
					return wrong("the child got %d cancel requests", n)
				}
				return nil
			},
		},
		{
			name:   "awaiting other executions",
			lanes:  2,
			bodies: map[string]int{"slow": 1, "done": 1},
			stages: alone(func(w *world) perdure.Group {
				return perdure.Group{
					orphan.Bind(func(ctx perdure.WorkflowCtx, name string) (string, error) {
						if name == "slow" {
							if err := ctx.Sleep(2 * time.Second); err != nil {
								return "", err
							}
						}
						return w.step(ctx, name)
					}),
					watcher.Bind(func(ctx perdure.WorkflowCtx, _ int) (string, error) {
						a, err := orphan.Execution(perdure.RawKey("slow")).Result(ctx)
						if err != nil {
							return "", err
						}
						b, err := orphan.Execution(perdure.RawKey("done")).Result(ctx)
						if err != nil {
							return "", err
						}
						_, err = orphan.Execution(perdure.RawKey("none")).Result(ctx)
						return fmt.Sprintf("%s %s %v", a, b, errors.Is(err, perdure.ErrNotFound)), nil
					}),
				}
			}, func(d *driver) error {
				done, err := start(d, orphan, "done", "done")
				if err != nil {
					return err
				}
				if err := result(d, done, "done"); err != nil {
					return err
				}
				if _, err := start(d, orphan, "slow", "slow"); err != nil {
					return err
				}
				x, err := start(d, watcher, 0, "w")
				if err != nil {
					return err
				}
				return result(d, x, "slow done true")
			}),
			loose: true, // an execution that ended before the request has no watcher
		},
	}
}
