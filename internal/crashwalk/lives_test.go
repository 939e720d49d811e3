package crashwalk_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// baton is what a run of a relay passes to the next run.
type baton struct {
	Left int
	Got  string
}

var (
	relay    = perdure.DeclareWorkflow[baton, string]("relay")
	dreamer  = perdure.DeclareWorkflow[int, string]("dreamer")
	single   = perdure.DeclareWorkflow[int, string]("single")
	retried  = perdure.DeclareWorkflow[int, int]("retried")
	released = perdure.DeclareWorkflow[int, string]("released")
	stubborn = perdure.DeclareWorkflow[int, string]("stubborn")
	tagged   = perdure.DeclareWorkflow[int, string]("tagged")
	distant  = perdure.DeclareWorkflow[string, string]("distant")
)

// lifeScenarios are about the life of executions and of the processes that serve them.
func lifeScenarios() []*scenario {
	return []*scenario{
		{
			name: "continue as new",
			stages: alone(func(w *world) perdure.Group {
				return perdure.Group{relay.Bind(func(ctx perdure.WorkflowCtx, b baton) (string, error) {
					if b.Got == "" {
						// This sleep lets signals arrive that the code has not received when the
						// run ends.
						if err := ctx.Sleep(time.Second); err != nil {
							return "", err
						}
					}
					v, err := words.Receive(ctx)
					if err != nil {
						return "", err
					}
					b = baton{b.Left - 1, b.Got + v}
					if b.Left == 0 {
						return b.Got, nil
					}
					return "", relay.ContinueAsNew(b)
				})}
			}, func(d *driver) error {
				x, err := start(d, relay, baton{Left: 3}, "k", perdure.RequestID("r"))
				if err != nil {
					return err
				}
				return inOrder(
					func() error { return send(d, words, x.Ref, "a", "s1") },
					func() error { return send(d, words, x.Ref, "b", "s2") },
					func() error { return send(d, words, x.Ref, "c", "s3") },
					func() error { return result(d, x, "abc") },
				)
			}),
			loose: true, // which run gets a signal depends on the time of the takeover
			check: func(w *world, h *histories) error {
				runs := h.of(relay.Execution(perdure.RawKey("k")).Ref)
				if len(runs) != 3 {
					return wrong("%d runs, want 3", len(runs))
				}
				if w.strike.kind == nil && len(runs[1].row.Start.Carried) != 2 {
					return wrong("the second run was handed %d signals, want 2", len(runs[1].row.Start.Carried))
				}
				return nil
			},
		},
		{
			// A query finds a run by the labels of its history, wherever a process dies.
			name:   "labels",
			bodies: map[string]int{"a": 1, "b": 1},
			stages: alone(func(w *world) perdure.Group {
				return perdure.Group{tagged.Bind(func(ctx perdure.WorkflowCtx, round int) (string, error) {
					stage := []string{"a", "b"}[round]
					if _, err := w.step(ctx, stage); err != nil {
						return "", err
					}
					if err := errors.Join(ctx.SetLabel("stage", stage), ctx.SetLabel("draft", "")); err != nil {
						return "", err
					}
					if err := ctx.Sleep(time.Second); err != nil {
						return "", err
					}
					if round == 0 {
						return "", errors.Join(ctx.SetLabel("stage", "next"), tagged.ContinueAsNew(1))
					}
					return stage, ctx.SetLabel("stage", "done")
				})}
			}, ending(tagged, 0, "k", "b", perdure.Labels(map[string]string{"region": "eu", "draft": "yes"}))),
			check: func(w *world, h *histories) error {
				runs := h.of(tagged.Execution(perdure.RawKey("k")).Ref)
				if len(runs) != 2 {
					return wrong("%d runs, want 2", len(runs))
				}

				for i, stage := range []string{"next", "done"} {
					rows, err := w.mem.LoadLabels(context.Background(), []store.RunKey{{Shard: runs[i].row.Shard, Run: runs[i].row.Start.Run}})
					if err != nil {
						return err
					}
					var got []string
					for _, r := range rows {
						got = append(got, r.Label.Name+"="+r.Label.Value)
					}
					if want := "region=eu stage=" + stage; strings.Join(got, " ") != want {
						return wrong("run %d has the labels %v, want %s", i+1, got, want)
					}
				}

				return nil
			},
		},
		{
			name:      "unloaded",
			idleAfter: 500 * time.Millisecond,
			bodies:    map[string]int{"id": 1, "signalled": 1, "rested": 1},
			maybe:     []string{"code"},
			stages: alone(func(w *world) perdure.Group {
				return perdure.Group{dreamer.Bind(func(ctx perdure.WorkflowCtx, _ int) (string, error) {
					w.recordBody("code")
					id := ctx.UUID()
					if was, err := perdure.Do(ctx, "id", func(context.Context) (string, error) {
						w.recordBody("id")
						return id, nil
					}); err != nil || was != id {
						return "", fmt.Errorf("id %s was %s: %w", id, was, err)
					}

					v, err := words.Receive(ctx)
					if err != nil {
						return "", err
					}
					if _, err := w.step(ctx, "signalled"); err != nil {
						return "", err
					}

					if err := ctx.Sleep(2 * time.Second); err != nil {
						return "", err
					}
					rested, err := w.step(ctx, "rested")
					return v + " " + rested, err
				})}
			}, func(d *driver) error {
				x, err := start(d, dreamer, 0, "k")
				if err != nil {
					return err
				}
				return inOrder(
					func() error { return d.sleep(2 * time.Second) },
					func() error { return send(d, words, x.Ref, "woken", "s1") },
					func() error { return result(d, x, "woken rested") },
				)
			}),
			check: func(w *world, _ *histories) error {
				// After an outage, a late event may find the run still in memory, so the code runs
				// less often.
				if n := w.bodies["code"]; n < 3 && (w.strike.kind == nil || w.strike.kind.span == 0) {
					return wrong("the code ran %d times: it was never unloaded", n)
				}
				return nil
			},
		},
		{
			name:   "one key and many clients",
			bodies: map[string]int{"only": 1},
			stages: alone(func(w *world) perdure.Group {
				return perdure.Group{single.Bind(func(ctx perdure.WorkflowCtx, _ int) (string, error) { return w.step(ctx, "only") })}
			}, func(d *driver) error {
				client := func(opts ...perdure.StartOption) func() error {
					return func() error {
						x, err := start(d, single, 7, "k", opts...)
						if err != nil {
							return err
						}
						return result(d, x, "only")
					}
				}

				other := func() error {
					_, err := single.Start(d.client(), 8, perdure.RawKey("k"))
					if err == nil {
						return wrong("the key was used with another input")
					}
					if errors.Is(err, perdure.ErrConflict) {
						return nil
					}
					return d.cause(0, err)
				}

				if err := together(client(), client(perdure.RequestID("r")), client(perdure.ReuseIfFailed), client(perdure.ReuseIfFailed)); err != nil {
					return err
				}
				return other()
			}),
			check: func(_ *world, h *histories) error {
				if n := len(h.of(single.Execution(perdure.RawKey("k")).Ref)); n != 1 {
					return wrong("%d runs, want 1", n)
				}
				return nil
			},
		},
		{
			name:   "one key and three runs",
			bodies: map[string]int{"run 1": 1, "run 2": 1, "run 3": 1},
			stages: alone(func(w *world) perdure.Group {
				return perdure.Group{retried.Bind(func(ctx perdure.WorkflowCtx, _ int) (int, error) {
					self := ctx.Self().Run
					n, err := perdure.Do(ctx, "which", func(context.Context) (int, error) {
						n := w.ordinal(self)
						w.recordBody(fmt.Sprintf("run %d", n))
						return n, nil
					})
					if err == nil && n == 1 {
						err = errors.New("the first one fails")
					}
					return n, err
				})}
			}, func(d *driver) error {
				x := retried.Execution(perdure.RawKey("k"))
				begin := func(opts ...perdure.StartOption) func() error {
					return func() error {
						_, err := start(d, retried, 0, "k", opts...)
						return err
					}
				}

				return inOrder(
					func() error {
						return d.once("fails", func() error {
							if err := begin(perdure.RequestID("r1"))(); err != nil {
								return err
							}
							_, err := x.Result(d.client())
							if err == nil || d.ctx().Err() != nil {
								return d.cause(0, errors.Join(err, errors.New("the first run is to fail")))
							}
							if !strings.Contains(err.Error(), "the first one fails") {
								return err
							}
							return nil
						})
					},
					func() error {
						return d.once("succeeds", func() error {
							if err := together(begin(perdure.ReuseIfFailed, perdure.RequestID("r2")), begin(perdure.ReuseIfFailed, perdure.RequestID("r3"))); err != nil {
								return err
							}
							return current(d, x, 2)
						})
					},
					func() error {
						again := begin(perdure.ReuseAlways, perdure.RequestID("r4"))
						if err := together(again, again); err != nil {
							return err
						}
						return current(d, x, 3)
					},
				)
			}),
			loose: true, // either client may start the second run
			check: func(_ *world, h *histories) error {
				if n := len(h.of(retried.Execution(perdure.RawKey("k")).Ref)); n != 3 {
					return wrong("%d runs, want 3", n)
				}
				return nil
			},
		},
		{
			name:   "blocked by a bad release",
			bodies: map[string]int{"a": 1, "b": 1},
			stages: []stage{
				releasedOnce(),
				{
					define: releasedCode("x"), open: []string{"released/k"},
					drive: func(d *driver) error {
						x := released.Execution(perdure.RawKey("k"))
						if err := send(d, words, x.Ref, "go", "s1"); err != nil {
							return err
						}

						for {
							info, err := d.ps[0].App.Executions().Describe(d.ctx(), x)
							switch {
							case err != nil:
								return d.cause(0, err)
							case info.Status != perdure.Running:
								return wrong("%s is %s", x, info.Status)
							case strings.Contains(info.Reason, "mismatch"), d.w.hasRefused():
								return nil
							}
							if err := d.sleep(time.Second); err != nil {
								return err
							}
						}
					},
				},
				{
					define: releasedCode("a"),
					drive: func(d *driver) error {
						return result(d, released.Execution(perdure.RawKey("k")), "a go b")
					},
				},
			},
		},
		{
			name:   "code that comes later",
			bodies: map[string]int{"served": 1},
			stages: []stage{
				{
					define: func(*world) perdure.Group { return nil }, open: []string{"linear/k"},
					drive: func(d *driver) error {
						_, err := start(d, linear, "", "k")
						return err
					},
				},
				{
					define: func(w *world) perdure.Group {
						return perdure.Group{linear.Bind(func(ctx perdure.WorkflowCtx, _ string) (string, error) { return w.step(ctx, "served") })}
					},
					drive: func(d *driver) error { return result(d, linear.Execution(perdure.RawKey("k")), "served") },
				},
			},
		},
		{
			name:   "cancelled while it waits for the next attempt",
			bodies: map[string]int{"in vain": 1, "sorry": 1},
			stages: alone(func(w *world) perdure.Group {
				return perdure.Group{stubborn.Bind(func(ctx perdure.WorkflowCtx, _ int) (string, error) {
					ctx.OnFailure(func(ctx perdure.WorkflowCtx) error {
						_, err := w.step(ctx, "sorry")
						return err
					})
					return perdure.Do(ctx, "in vain", func(context.Context) (string, error) {
						w.recordBody("in vain")
						return "", errors.New("not today")
					}, perdure.Constant(10, time.Hour))
				})}
			}, func(d *driver) error {
				x, err := start(d, stubborn, 0, "k")
				if err != nil {
					return err
				}
				return inOrder(
					func() error { return d.awaitEvent(x.Ref, model.EventAttemptFailed, "in vain") },
					func() error { return cancel(d, x, "no more") },
					func() error { return ends(d, x, perdure.Canceled, "no more") },
				)
			}),
		},
		{
			name:   "crowd",
			lanes:  2,
			bodies: crowdBodies(),
			stages: alone(func(w *world) perdure.Group {
				return perdure.Group{distant.Bind(func(ctx perdure.WorkflowCtx, name string) (string, error) {
					one, err := w.step(ctx, "one of "+name)
					if err != nil {
						return "", err
					}
					v, err := words.Receive(ctx)
					if err != nil {
						return "", err
					}
					two, err := w.step(ctx, "two of "+name)
					return one + ", " + v + ", " + two, err
				})}
			}, func(d *driver) error {
				var clients []func() error
				for i := range crowd {
					clients = append(clients, func() error {
						name := fmt.Sprintf("c%d", i)
						x, err := start(d, distant, name, name)
						if err != nil {
							return err
						}
						if err := send(d, words, x.Ref, "hi "+name, "s "+name); err != nil {
							return err
						}
						return result(d, x, fmt.Sprintf("one of %s, hi %s, two of %s", name, name, name))
					})
				}
				return together(clients...)
			}),
		},
		{
			// Both processes serve. Shards move from the first to the second while executions run,
			// and each client uses executions that the other process owns. When one process dies,
			// the clients of the other process only notice a delay.
			name:   "two processes",
			bodies: crowdBodies(),
			maybe:  []string{"child of c0", "child of c1", "child of c2", "child of c3", "child of c4", "child of c5"},
			stages: []stage{{
				processes: 2,
				define: func(w *world) perdure.Group {
					return perdure.Group{
						child.Bind(func(ctx perdure.WorkflowCtx, name string) (string, error) { return w.step(ctx, name) }),
						distant.Bind(func(ctx perdure.WorkflowCtx, name string) (string, error) {
							one, err := w.step(ctx, "one of "+name)
							if err != nil {
								return "", err
							}
							if _, err := child.Run(ctx, "child of "+name, perdure.RawKey(name)); err != nil {
								return "", err
							}

							v, err := words.Receive(ctx)
							if err != nil {
								return "", err
							}

							// This step takes a while, so that shards move while it runs. The lane
							// waits for the step.
							two, err := perdure.Do(ctx, "two of "+name, func(ctx context.Context) (string, error) {
								w.recordBody("two of " + name)
								return "two of " + name, sleep(ctx, time.Second)
							})

							return one + ", " + v + ", " + two, err
						}),
					}
				},
				drive: func(d *driver) error {
					var clients []func() error
					for i := range crowd {
						name, here, there := fmt.Sprintf("c%d", i), i%2, (i+1)%2
						clients = append(clients, func() error {
							x, err := startAt(d, here, distant, name, name)
							if err != nil {
								return err
							}
							if err := sleep(d.ctxs[there], time.Duration(i)*500*time.Millisecond); err != nil {
								return err
							}
							if err := sendAt(d, there, words, x.Ref, "hi "+name, "s "+name); err != nil {
								return err
							}
							return resultAt(d, there, x, fmt.Sprintf("one of %s, hi %s, two of %s", name, name, name))
						})
					}

					return together(clients...)
				},
			}},
		},
	}
}

// current checks the result of the current run. Another client may have replaced the run that this
// client started.
func current(d *driver, x perdure.Execution[int], want int) error {
	got, err := x.Result(d.client())
	if err != nil {
		return d.cause(0, err)
	}
	if got != want {
		return wrong("result of %s is %d, want %d", x, got, want)
	}
	return nil
}

// releasedOnce is the stage in which the good release records its first step.
func releasedOnce() stage {
	return stage{
		define: releasedCode("a"), open: []string{"released/k"},
		drive: func(d *driver) error {
			x, err := start(d, released, 0, "k")
			if err != nil {
				return err
			}
			return d.awaitEvent(x.Ref, model.EventStepCompleted, "a")
		},
	}
}

// releasedCode is the code of a release whose first step has the given name.
func releasedCode(first string) func(w *world) perdure.Group {
	return func(w *world) perdure.Group {
		return perdure.Group{released.Bind(func(ctx perdure.WorkflowCtx, _ int) (string, error) {
			a, err := w.step(ctx, first)
			if err != nil {
				return "", err
			}
			v, err := words.Receive(ctx)
			if err != nil {
				return "", err
			}
			b, err := w.step(ctx, "b")
			return a + " " + v + " " + b, err
		})}
	}
}

// crowd is the number of executions of the scenario "two processes".
const crowd = 6

func crowdBodies() map[string]int {
	bodies := map[string]int{}
	for i := range crowd {
		bodies[fmt.Sprintf("one of c%d", i)], bodies[fmt.Sprintf("two of c%d", i)] = 1, 1
	}
	return bodies
}
