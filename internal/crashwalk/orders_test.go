package crashwalk_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

var (
	ordered   = perdure.DeclareWorkflow[int, string]("ordered")
	family    = perdure.DeclareWorkflow[int, string]("family")
	cleaner   = perdure.DeclareWorkflow[int, string]("cleaner")
	pinned    = perdure.DeclareWorkflow[int, string]("pinned", perdure.Pinned())
	versioned = perdure.DeclareWorkflow[int, string]("versioned")
)

// orderScenarios are about orders of operators, and about versions.
func orderScenarios() []*scenario {
	return []*scenario{
		{
			// The running step may finish, and runs once. The next step waits until the execution
			// is resumed.
			name:   "pause around a step",
			bodies: map[string]int{"slow": 1, "next": 1},
			stages: alone(func(w *world) perdure.Group {
				return perdure.Group{ordered.Bind(func(ctx perdure.WorkflowCtx, _ int) (string, error) {
					slow, err := perdure.Do(ctx, "slow", func(ctx context.Context) (string, error) {
						w.recordBody("slow")
						return "slow", sleep(ctx, 3*time.Second)
					})
					if err != nil {
						return "", err
					}
					next, err := w.step(ctx, "next")
					return slow + " " + next, err
				})}
			}, func(d *driver) error {
				x, err := start(d, ordered, 0, "k")
				if err != nil {
					return err
				}
				return inOrder(
					func() error { return d.awaitBody("slow") },
					func() error { return pause(d, x.Ref, "a look") },
					func() error { return checkResting(d, x.Ref, "next") },
					func() error { return resume(d, x.Ref) },
					func() error { return result(d, x, "slow next") },
				)
			}),
			check: pausedOnce,
			loose: true, // a late pause comes after the outcome of the step
		},
		{
			name:      "pause beside timers and signals",
			idleAfter: 300 * time.Millisecond,
			bodies:    map[string]int{"woken": 1},
			stages: alone(func(w *world) perdure.Group {
				return perdure.Group{ordered.Bind(func(ctx perdure.WorkflowCtx, _ int) (string, error) {
					if err := ctx.Sleep(2 * time.Second); err != nil {
						return "", err
					}
					woken, err := w.step(ctx, "woken")
					if err != nil {
						return "", err
					}
					v, err := listen(ctx, 2)
					return woken + " " + v, err
				})}
			}, func(d *driver) error {
				x, err := start(d, ordered, 0, "k")
				if err != nil {
					return err
				}
				return inOrder(
					func() error { return d.until("the timer", d.w.hasTimer) },
					func() error { return pause(d, x.Ref, "maintenance") },
					func() error { return send(d, words, x.Ref, "hello", "s1") },
					func() error { return d.awaitEvent(x.Ref, model.EventTimerFired, "") },
					func() error { return send(d, words, x.Ref, "again", "s2") },
					func() error { return resume(d, x.Ref) },
					func() error { return result(d, x, "woken hello again") },
				)
			}),
			check: pausedOnce,
			loose: true,
		},
		{
			// No process continues a paused run, not even after a takeover.
			name:   "paused over a restart",
			bodies: map[string]int{"first": 1, "second": 1},
			stages: []stage{
				{
					define: pausable, open: []string{"ordered/k"},
					drive: func(d *driver) error {
						x, err := start(d, ordered, 0, "k")
						if err != nil {
							return err
						}
						return inOrder(
							func() error { return d.awaitEvent(x.Ref, model.EventStepCompleted, "first") },
							func() error { return pause(d, x.Ref, "over night") },
						)
					},
				},
				{
					define: pausable, open: []string{"ordered/k"},
					drive: func(d *driver) error {
						x := ordered.Execution(perdure.RawKey("k"))
						return inOrder(
							func() error { return send(d, words, x.Ref, "go", "s1") },
							func() error { return checkResting(d, x.Ref, "second") },
							func() error { return reasonHas(d, x.Ref, "paused: over night") },
						)
					},
				},
				{
					define: pausable,
					drive: func(d *driver) error {
						x := ordered.Execution(perdure.RawKey("k"))
						return inOrder(
							func() error { return resume(d, x.Ref) },
							func() error { return result(d, x, "first go second") },
						)
					},
				},
			},
			check: pausedOnce,
		},
		{
			// A worker that can continue the run joins while the run is paused. When the run is
			// resumed, the engine tries this worker.
			name:   "blocked and paused",
			bodies: map[string]int{"a": 1, "b": 1},
			stages: []stage{
				releasedOnce(),
				{
					define: releasedCode("x"), open: []string{"released/k"},
					drive: func(d *driver) error {
						x := released.Execution(perdure.RawKey("k"))
						return inOrder(
							func() error { return send(d, words, x.Ref, "go", "s1") },
							func() error {
								if d.w.hasRefused() || d.w.hasFact("pause of "+x.String()) {
									return nil
								}
								return reasonHas(d, x.Ref, "mismatch")
							},
							func() error { return pause(d, x.Ref, "until it is repaired") },
						)
					},
				},
				{
					define: releasedCode("a"),
					drive: func(d *driver) error {
						x := released.Execution(perdure.RawKey("k"))
						return inOrder(
							func() error { return resume(d, x.Ref) },
							func() error { return result(d, x, "a go b") },
						)
					},
				},
			},
			check: pausedOnce,
		},
		{
			name:   "terminated with its children",
			lanes:  2,
			bodies: map[string]int{},
			maybe:  []string{"clean-up"},
			stages: alone(func(w *world) perdure.Group {
				return perdure.Group{
					listener.Bind(func(ctx perdure.WorkflowCtx, n int) (string, error) { return listen(ctx, n) }),
					family.Bind(func(ctx perdure.WorkflowCtx, _ int) (string, error) {
						ctx.Defer(func(ctx perdure.WorkflowCtx) error {
							_, err := w.step(ctx, "clean-up")
							return err
						})
						if _, err := listener.Start(ctx, 1, perdure.RawKey("bound")); err != nil {
							return "", err
						}
						if _, err := listener.Start(ctx, 1, perdure.RawKey("free"), perdure.AbandonChild); err != nil {
							return "", err
						}
						if err := ctx.Sleep(time.Hour); err != nil {
							return "", err
						}
						return "too late", nil
					}),
				}
			}, func(d *driver) error {
				x, err := start(d, family, 0, "k")
				if err != nil {
					return err
				}
				bound, free := listener.Execution(perdure.RawKey("bound")), listener.Execution(perdure.RawKey("free"))
				return inOrder(
					func() error { return d.awaitEvent(x.Ref, model.EventChildStarted, "listener") },
					func() error { return terminate(d, x.Ref, "no use") },
					func() error { return ends(d, x, perdure.Terminated, "no use") },
					func() error { return d.eventually(func() error { return ends(d, bound, perdure.Canceled, "") }) },
					func() error { return d.eventually(func() error { return send(d, words, free.Ref, "alone", "s1") }) },
					func() error { return result(d, free, "alone") },
				)
			}),
			check: func(w *world, h *histories) error {
				if w.times("clean-up") > 0 {
					return wrong("the clean-up of a terminated execution ran")
				}
				last := h.last(family.Execution(perdure.RawKey("k")).Ref)
				if last.row.Outcome.Seen != int64(len(last.events)) {
					return wrong("it ended at %d, and has %d events", last.row.Outcome.Seen, len(last.events))
				}
				return nil
			},
		},
		{
			name:   "interrupt and clean-up",
			bodies: map[string]int{"tell closing time": 1, "sweep": 1, "sorry": 1},
			stages: alone(func(w *world) perdure.Group {
				return perdure.Group{cleaner.Bind(func(ctx perdure.WorkflowCtx, _ int) (string, error) {
					ctx.Defer(func(ctx perdure.WorkflowCtx) error {
						_, err := w.step(ctx, "sweep")
						return err
					})

					ctx.OnFailure(func(ctx perdure.WorkflowCtx) error {
						_, err := w.step(ctx, "sorry")
						return err
					})

					ctx.OnInterrupt(func(ctx perdure.WorkflowCtx, reason string) error {
						if err := ctx.Sleep(time.Second); err != nil {
							return err
						}
						_, err := w.step(ctx, "tell "+reason)
						return err
					})

					return listen(ctx, 1)
				})}
			}, func(d *driver) error {
				x, err := start(d, cleaner, 0, "k")
				if err != nil {
					return err
				}
				return inOrder(
					func() error { return d.sleep(500 * time.Millisecond) },
					func() error { return cancel(d, x, "closing time") },
					func() error { return ends(d, x, perdure.Canceled, "closing time") },
				)
			}),
		},
		{
			name:   "pinned over a restart with another version",
			bodies: map[string]int{"first of one": 1, "second of one": 1},
			stages: []stage{
				{
					version: "one", define: pinnedCode("one"), open: []string{"pinned/k"},
					drive: func(d *driver) error {
						x, err := start(d, pinned, 0, "k")
						if err != nil {
							return err
						}
						return d.awaitEvent(x.Ref, model.EventStepCompleted, "first of one")
					},
				},
				{
					version: "two", define: pinnedCode("two"), open: []string{"pinned/k"},
					drive: func(d *driver) error {
						x := pinned.Execution(perdure.RawKey("k"))
						return inOrder(
							func() error { return send(d, words, x.Ref, "go", "s1") },
							func() error { return reasonHas(d, x.Ref, "version one") },
						)
					},
				},
				{
					version: "one", define: pinnedCode("one"),
					drive: func(d *driver) error {
						return result(d, pinned.Execution(perdure.RawKey("k")), "first of one go second of one")
					},
				},
			},
			check: func(_ *world, h *histories) error {
				if n := h.count(pinned.Execution(perdure.RawKey("k")).Ref, model.EventPinned, "one"); n != 1 {
					return wrong("it was pinned %d times", n)
				}
				return nil
			},
		},
		{
			name:   "version marks over releases",
			bodies: map[string]int{"old": 1, "new": 2, "end": 3},
			stages: []stage{
				{
					define: versionedCode(0), open: []string{"versioned/old"},
					drive: func(d *driver) error {
						x, err := start(d, versioned, 0, "old")
						if err != nil {
							return err
						}
						return d.awaitEvent(x.Ref, model.EventStepCompleted, "old")
					},
				},
				{
					define: versionedCode(1), open: []string{"versioned/old", "versioned/new"},
					drive: func(d *driver) error {
						x, err := start(d, versioned, 0, "new")
						if err != nil {
							return err
						}
						return d.awaitEvent(x.Ref, model.EventStepCompleted, "new")
					},
				},
				{
					define: versionedCode(1),
					drive: func(d *driver) error {
						last, err := start(d, versioned, 0, "last")
						if err != nil {
							return err
						}
						for _, key := range []string{"old", "new", "last"} {
							x := versioned.Execution(perdure.RawKey(key))
							if err := send(d, words, x.Ref, "go", "s1"); err != nil {
								return err
							}
						}
						return inOrder(
							func() error { return result(d, versioned.Execution(perdure.RawKey("old")), "old end") },
							func() error { return result(d, versioned.Execution(perdure.RawKey("new")), "new end") },
							func() error { return result(d, last, "new end") },
						)
					},
				},
			},
		},
	}
}

// pausable has two steps and waits for a word between them.
func pausable(w *world) perdure.Group {
	return perdure.Group{ordered.Bind(func(ctx perdure.WorkflowCtx, _ int) (string, error) {
		first, err := w.step(ctx, "first")
		if err != nil {
			return "", err
		}
		v, err := listen(ctx, 1)
		if err != nil {
			return "", err
		}
		second, err := w.step(ctx, "second")
		return first + " " + v + " " + second, err
	})}
}

// pinnedCode is the code of one version.
func pinnedCode(version string) func(w *world) perdure.Group {
	return func(w *world) perdure.Group {
		return perdure.Group{pinned.Bind(func(ctx perdure.WorkflowCtx, _ int) (string, error) {
			first, err := w.step(ctx, "first of "+version)
			if err != nil {
				return "", err
			}
			v, err := listen(ctx, 1)
			if err != nil {
				return "", err
			}
			second, err := w.step(ctx, "second of "+version)
			return first + " " + v + " " + second, err
		})}
	}
}

// versionedCode is the code before and after a change of its first step.
func versionedCode(newest int) func(w *world) perdure.Group {
	return func(w *world) perdure.Group {
		return perdure.Group{versioned.Bind(func(ctx perdure.WorkflowCtx, _ int) (string, error) {
			name := "old"
			if newest == 1 && ctx.Version("first step", 0, 1) == 1 {
				name = "new"
			}
			first, err := w.step(ctx, name)
			if err != nil {
				return "", err
			}
			if _, err := listen(ctx, 1); err != nil {
				return "", err
			}
			end, err := w.step(ctx, "end")
			return first + " " + end, err
		})}
	}
}

// pause pauses an execution, unless an earlier drive has done so.
func pause(d *driver, to perdure.Ref, why string) error {
	return d.once("pause of "+to.String(), func() error {
		if err := d.ps[0].App.Executions().Pause(d.ctx(), to, why); err != nil {
			return d.cause(0, fmt.Errorf("pause %s: %w", to, err))
		}
		d.acknowledge("pause of "+to.String(), func(h *histories) error {
			if h.count(to, model.EventPaused, "") == 0 {
				return wrong("the pause of %s was acknowledged and is nowhere", to)
			}
			return nil
		})
		return nil
	})
}

// resume resumes an execution, unless an earlier drive has done so.
func resume(d *driver, to perdure.Ref) error {
	return d.once("resume of "+to.String(), func() error {
		// A conflict means that the execution has continued and ended.
		if err := d.ps[0].App.Executions().Resume(d.ctx(), to); err != nil && !errors.Is(err, perdure.ErrConflict) {
			return d.cause(0, fmt.Errorf("resume %s: %w", to, err))
		}
		d.acknowledge("resume of "+to.String(), func(h *histories) error {
			if h.count(to, model.EventResumed, "") == 0 {
				return wrong("the resume of %s was acknowledged and is nowhere", to)
			}
			return nil
		})
		return nil
	})
}

// terminate ends an execution. A repeated call finds that the execution has ended.
func terminate(d *driver, to perdure.Ref, why string) error {
	err := d.ps[0].App.Executions().Terminate(d.ctx(), to, why)
	if err != nil && !errors.Is(err, perdure.ErrConflict) {
		return d.cause(0, fmt.Errorf("terminate %s: %w", to, err))
	}
	d.acknowledge("end of "+to.String(), func(h *histories) error {
		if got := h.last(to).row.Outcome.Status; got != model.Terminated {
			return wrong("%s was terminated, but is %s", to, got)
		}
		return nil
	})
	return nil
}

// checkResting checks that a step does not start while its execution is paused.
func checkResting(d *driver, to perdure.Ref, step string) error {
	if d.w.hasFact("resume of " + to.String()) {
		return nil
	}
	if err := d.sleep(6 * time.Second); err != nil {
		return err
	}
	if n := d.w.times(step); n > 0 {
		h, err := d.w.read()
		if err == nil && h.count(to, model.EventResumed, "") == 0 {
			return wrong("step %s of %s ran while it was paused", step, to)
		}
	}
	return nil
}

// reasonHas waits until the reason of an execution contains a text.
func reasonHas(d *driver, to perdure.Ref, text string) error {
	for {
		info, err := d.ps[0].App.Executions().Describe(d.ctx(), to)
		switch {
		case err != nil:
			return d.cause(0, err)
		case info.Status != perdure.Running:
			return wrong("%s is %s", to, info.Status)
		case strings.Contains(info.Reason, text):
			return nil
		}
		if err := d.sleep(time.Second); err != nil {
			return fmt.Errorf("%q is the reason of %s, want %q: %w", info.Reason, to, text, err)
		}
	}
}

// hasTimer reports whether a timer is open, or has fired.
func (w *world) hasTimer() bool {
	timers, err := w.mem.LoadTimers(context.Background(), allShards(), store.TimerMark{}, math.MaxInt64, 1)
	if err == nil && len(timers) > 0 {
		return true
	}
	h, err := w.read()
	return err == nil && slices.ContainsFunc(h.runs, func(r *history) bool { return r.count(model.EventTimerFired, "") > 0 })
}

// pausedOnce checks that the execution was paused once and resumed once, and which events happened
// during the pause.
func pausedOnce(_ *world, h *histories) error {
	for _, r := range h.runs {
		paused, steps := false, 0
		for i := range r.events {
			switch e := &r.events[i]; e.Kind {
			case model.EventPaused:
				paused = true
			case model.EventResumed:
				paused = false
			case model.EventStepCompleted:
				if paused {
					steps++
				}
			case model.EventSignalTaken:
				if paused && i > 0 && r.events[i-1].Kind != model.EventPaused {
					return wrong("event %d takes a signal while the run is paused", e.Seq)
				}
			default:
			}
		}

		if n, m := r.count(model.EventPaused, ""), r.count(model.EventResumed, ""); n != 1 || m != 1 || steps > 1 {
			return wrong("%d pauses, %d resumes, %d steps in between", n, m, steps)
		}
	}

	return nil
}
