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
	mill   = perdure.DeclareWorkflow[string, string]("mill")
	rest   = perdure.NewSignal[int]("pause")
	grind  = perdure.DeclareActivity[string, string]("grind", perdure.Constant(3, time.Second))
	polish = perdure.DeclareActivity[string, string]("polish", perdure.Constant(1, 0))
)

// miller is a machine whose reactions to events are functions that the scenario provides.
type miller struct {
	perdure.Events
	heard []string
	half  bool

	start     func() perdure.Actions
	completed func(perdure.ActivityCompleted) perdure.Actions
	failed    func(perdure.ActivityFailed) perdure.Actions
	fired     func(perdure.TimerFired) perdure.Actions
	signal    func(perdure.SignalReceived) perdure.Actions
	closed    func(perdure.ChildClosed) perdure.Actions
	canceled  func(string) perdure.Actions
}

func (m *miller) hear(format string, args ...any) {
	m.heard = append(m.heard, fmt.Sprintf(format, args...))
}

func (m *miller) done() perdure.Actions {
	return perdure.Actions{mill.Complete(strings.Join(m.heard, ", "))}
}

func (m *miller) OnStart() perdure.Actions { return m.start() }

func (m *miller) OnActivityCompleted(e perdure.ActivityCompleted) perdure.Actions {
	return m.completed(e)
}

func (m *miller) OnActivityFailed(e perdure.ActivityFailed) perdure.Actions { return m.failed(e) }
func (m *miller) OnTimerFired(e perdure.TimerFired) perdure.Actions         { return m.fired(e) }
func (m *miller) OnSignal(e perdure.SignalReceived) perdure.Actions         { return m.signal(e) }
func (m *miller) OnChildClosed(e perdure.ChildClosed) perdure.Actions       { return m.closed(e) }
func (m *miller) OnCancel(reason string) perdure.Actions                    { return m.canceled(reason) }

// machineScenarios are about event-driven workflows.
func machineScenarios() []*scenario {
	// tools binds the activities. They record their runs, and polish refuses rough input.
	tools := func(w *world) perdure.Group {
		return perdure.Group{
			grind.Bind(func(ctx context.Context, what string) (string, error) {
				if what == "hard" && perdure.Attempt(ctx) == 1 {
					return "", errors.New("jammed")
				}
				w.recordBody("grind " + what)
				return what, nil
			}),
			polish.Bind(func(_ context.Context, what string) (string, error) {
				w.recordBody("polish " + what)
				return "", perdure.Permanent(errors.New("too rough"))
			}),
		}
	}

	return []*scenario{
		{
			name:     "machine with activities and timers",
			selfless: true,
			bodies:   map[string]int{"grind hard": 1, "grind soft": 2, "polish stone": 1},
			stages: alone(func(w *world) perdure.Group {
				return append(tools(w), perdure.BindMachine(mill, func(string) *miller {
					m := &miller{}
					m.start = func() perdure.Actions {
						return perdure.Actions{grind.Schedule("first", "hard"), perdure.StartTimer("too long", time.Hour)}
					}

					m.completed = func(e perdure.ActivityCompleted) perdure.Actions {
						out, err := grind.Result(e)
						m.hear("%s %s %v", e.ID, out, err)
						switch len(m.heard) {
						case 1, 2: // the machine schedules two equal activities
							return perdure.Actions{grind.Schedule("again", "soft")}
						}
						return perdure.Actions{polish.Schedule("last", "stone"), perdure.CancelAction("too long"), perdure.CancelAction("again")}
					}

					m.failed = func(e perdure.ActivityFailed) perdure.Actions {
						m.hear("%s %v", e.ID, e.Err)
						return perdure.Actions{perdure.StartTimer("rest", time.Second)}
					}

					m.fired = func(e perdure.TimerFired) perdure.Actions {
						m.hear("%s", e.ID)
						return m.done()
					}

					return m
				}))
			}, ending(mill, "", "k", "first hard <nil>, again soft <nil>, again soft <nil>, last too rough, rest")),
		},
		{
			name:   "machine with signals and a cancel request",
			bodies: map[string]int{"grind start": 1, "grind undo": 1},
			stages: alone(func(w *world) perdure.Group {
				return append(tools(w), perdure.BindMachine(mill, func(string) *miller {
					m := &miller{}
					m.start = func() perdure.Actions { return perdure.Actions{perdure.StartTimer("long", time.Hour)} }
					m.signal = func(e perdure.SignalReceived) perdure.Actions {
						if word, ok := words.Value(e); ok {
							m.hear("%s", word)
							return perdure.Actions{grind.Schedule("work", "start")}
						}
						n, _ := rest.Value(e)
						m.hear("pause %d", n)
						return nil
					}

					m.completed = func(e perdure.ActivityCompleted) perdure.Actions {
						if e.ID == "undo" {
							return perdure.Actions{perdure.Fail(fmt.Errorf("%s: %w", strings.Join(m.heard, ", "), perdure.ErrCanceled))}
						}
						return nil
					}

					m.canceled = func(reason string) perdure.Actions {
						m.hear("%s", reason)
						return perdure.Actions{grind.Schedule("undo", "undo")}
					}

					return m
				}))
			}, func(d *driver) error {
				x, err := start(d, mill, "", "k")
				if err != nil {
					return err
				}
				return inOrder(
					func() error { return send(d, rest, x.Ref, 1, "s1") },
					func() error { return send(d, words, x.Ref, "go", "s2") },
					func() error { return d.awaitEvent(x.Ref, model.EventStepCompleted, "grind") },
					func() error { return send(d, rest, x.Ref, 2, "s3") },
					func() error { return cancel(d, x, "enough") },
					func() error { return ends(d, x, perdure.Canceled, "pause 1, go, pause 2, enough: canceled") },
				)
			}),
			check: func(_ *world, h *histories) error {
				ref := mill.Execution(perdure.RawKey("k")).Ref
				if n := h.count(ref, model.EventSignalTaken, ""); n != 3 {
					return wrong("%d signals were taken, want 3", n)
				}
				return nil
			},
		},
		{
			name:     "machines and functions as children of each other",
			selfless: true,
			lanes:    2,
			bodies:   map[string]int{"inner": 2, "grind soft": 1},
			stages: alone(func(w *world) perdure.Group {
				return append(tools(w),
					// parent is a function that runs a machine.
					parent.Bind(func(ctx perdure.WorkflowCtx, _ int) (string, error) {
						return mill.Run(ctx, "outer", perdure.RawKey("m"))
					}),
					// child is a function that fails, waits or works.
					child.Bind(func(ctx perdure.WorkflowCtx, name string) (string, error) {
						switch name {
						case "fails":
							return "", errors.New("broken")
						case "waits":
							_, err := never.Receive(ctx)
							return "", err
						}
						return w.step(ctx, "inner")
					}),
					perdure.BindMachine(mill, func(string) *miller {
						m := &miller{}
						m.start = func() perdure.Actions {
							return perdure.Actions{child.Child("named", "works", perdure.RawKey("c")), child.Child("slow", "waits", perdure.RawKey("s"))}
						}

						m.closed = func(e perdure.ChildClosed) perdure.Actions {
							out, err := child.Result(e)
							m.hear("%s %s %v", e.ID, out, err)
							switch e.ID {
							case "named":
								return perdure.Actions{perdure.CancelAction("slow"), child.Child("nameless", "works")}
							case "nameless":
								return perdure.Actions{child.Child("fails", "fails"), grind.Schedule("work", "soft")}
							}
							return m.both()
						}

						m.completed = func(perdure.ActivityCompleted) perdure.Actions { return m.both() }
						return m
					}))
			}, func(d *driver) error {
				x, err := start(d, parent, 0, "p")
				if err != nil {
					return err
				}
				if err := result(d, x, "named inner <nil>, nameless inner <nil>, fails  broken"); err != nil {
					return err
				}
				return d.eventually(func() error { return ends(d, child.Execution(perdure.RawKey("s")), perdure.Canceled, "withdrew") })
			}),
			loose: true, // the activity or the child may be first
			check: func(_ *world, h *histories) error {
				ref := mill.Execution(perdure.RawKey("m")).Ref
				if n := h.count(ref, model.EventChildStarted, "child"); n != 4 {
					return wrong("%d children were started, want 4", n)
				}
				return nil
			},
		},
		{
			name: "machine that continues",
			stages: alone(func(w *world) perdure.Group {
				return perdure.Group{perdure.BindMachine(mill, func(in string) *miller {
					m := &miller{heard: strings.Fields(in)}
					m.start = func() perdure.Actions { return perdure.Actions{perdure.StartTimer("long", time.Hour)} }
					m.signal = func(e perdure.SignalReceived) perdure.Actions {
						word, _ := words.Value(e)
						if m.hear("%s", word); len(m.heard) == 3 {
							return m.done()
						}
						return perdure.Actions{mill.ContinueWith(strings.Join(m.heard, " "))}
					}
					return m
				})}
			}, func(d *driver) error {
				if _, err := start(d, mill, "", "k"); err != nil {
					return err
				}
				ref := mill.Execution(perdure.RawKey("k")).Ref
				return inOrder(
					func() error { return send(d, words, ref, "one", "s1") },
					func() error { return send(d, words, ref, "two", "s2") },
					func() error { return send(d, words, ref, "three", "s3") },
					func() error { return result(d, mill.Execution(perdure.RawKey("k")), "one, two, three") },
				)
			}),
			loose: true, // a signal goes to the current run
			check: func(_ *world, h *histories) error {
				ref := mill.Execution(perdure.RawKey("k")).Ref
				for _, word := range []string{`"one"`, `"two"`, `"three"`} {
					if n := h.takings(ref, word); n != 1 {
						return wrong("signal %s was taken %d times", word, n)
					}
				}
				return nil
			},
		},
	}
}

// both ends the machine at its second call.
func (m *miller) both() perdure.Actions {
	if m.half {
		return m.done()
	}
	m.half = true
	return nil
}
