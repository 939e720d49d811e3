package replay_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
)

// TestNewsAtEveryMoment runs programs whose code runs ahead, which means that it continues before
// an outcome is committed. It sends a signal, a cancel request or a promise at every single moment,
// and compares what the code saw with a replay. A step whose outcome was not committed yet is
// neither lost nor executed twice.
func TestNewsAtEveryMoment(t *testing.T) {
	programs := map[string][]op{
		"steps":         {{Kind: "step"}, {Kind: "try"}, {Kind: "step"}, {Kind: "try"}, {Kind: "step"}},
		"labels":        {{Kind: "step"}, {Kind: "label"}, {Kind: "step"}, {Kind: "par", M: 2, Body: []op{{Kind: "label", N: 1}, {Kind: "step"}}}},
		"states":        {{Kind: "state"}, {Kind: "step"}, {Kind: "state", N: 1}, {Kind: "step"}, {Kind: "child"}},
		"versions":      {{Kind: "step"}, {Kind: "version"}, {Kind: "step"}, {Kind: "par", M: 2, Body: []op{{Kind: "version", N: 1}, {Kind: "step"}}}},
		"steps and now": {{Kind: "step"}, {Kind: "now"}, {Kind: "step"}, {Kind: "now"}},
		"steps and end": {{Kind: "step"}},
		"then sleep":    {{Kind: "step"}, {Kind: "sleep", N: 1}, {Kind: "try"}, {Kind: "step"}},
		"then receive":  {{Kind: "step"}, {Kind: "recv"}, {Kind: "step"}, {Kind: "recv"}, {Kind: "step"}},
		"then branch":   {{Kind: "step"}, {Kind: "par", M: 2, Body: []op{{Kind: "try"}, {Kind: "step"}, {Kind: "now"}}}, {Kind: "step"}},
		"branch, now":   {{Kind: "step"}, {Kind: "select", N: 0, M: 2}, {Kind: "now"}, {Kind: "step"}},
		"failures":      {{Kind: "fails"}, {Kind: "try"}, {Kind: "retried", M: 1}, {Kind: "step"}},
		"clean-up":      {{Kind: "cleanup", Body: []op{{Kind: "step"}, {Kind: "try"}, {Kind: "step"}}}, {Kind: "step"}, {Kind: "fails"}},
		"send":          {{Kind: "send"}, {Kind: "step"}, {Kind: "send"}, {Kind: "child"}, {Kind: "step"}},
	}

	news := map[string]func(e *engine){
		"signal": func(e *engine) { e.signal("s0", "x") },
		"cancel": func(e *engine) { e.inject(model.Event{Kind: model.EventCancelRequest}) },
		"other":  func(e *engine) { e.inject(model.Event{Kind: model.EventWatched}) },
	}

	diverged := 0
	for name, ops := range programs {
		for what, send := range news {
			t.Run(name+"/"+what, func(t *testing.T) {
				for moment := 0; ; moment++ {
					var ended bool
					synctest.Test(t, func(t *testing.T) {
						s := newSim(ops, nil, false)
						e := s.e
						s.signals, s.cancels = 0, 0
						e.activate(-1)
						late := 0

						n := 0
						for ; n < 300 && e.end == nil && e.blocked == nil; n++ {
							if n == moment {
								send(e)
							}
							as := s.actions()
							if len(as) == 0 {
								if late++; late > 5 {
									break
								}
								e.signal("s0", "late")
								continue
							}
							as[0]()
						}

						ended = n < moment
						e.stop()
						diverged += e.diverged
						if err := s.checkFinished(); err != nil {
							t.Fatalf("moment %d: %v\n%s", moment, err, dump(e.events))
						}
						if err := s.check(); err != nil {
							t.Fatalf("moment %d: %v\n%s", moment, err, dump(e.events))
						}
					})

					if ended {
						return
					}
				}
			})
		}
	}

	if diverged < 10 {
		t.Errorf("the code was overtaken by news only %d times", diverged)
	}
}

// TestBodyWaitsForCommit checks that a body does not run before the previous outcome is committed.
func TestBodyWaitsForCommit(t *testing.T) {
	bubble(t, func(e *engine, x replay.Ctx) (string, error) {
		return "", steps("a", "b")(e, x)
	}, func(e *engine) {
		e.letGo(0)
		if len(e.bodies) != 0 || len(e.reports) != 1 || e.reports[0].Ahead != 1 {
			t.Fatalf("bodies %d, reports %+v", len(e.bodies), e.reports)
		}
		e.apply()
		if len(e.bodies) != 0 {
			t.Fatal("the second body runs before the first outcome came back")
		}
		e.deliver(1)
		if len(e.bodies) != 1 || e.bodies[0].name != "b" {
			t.Fatal("the second body does not run")
		}
		e.settle()
		e.wantClosed(t, model.Completed, "")
	})
}

// TestTurnAfterRunningAhead checks that what the code asks for after an outcome is in the same
// turn.
func TestTurnAfterRunningAhead(t *testing.T) {
	bubble(t, func(e *engine, x replay.Ctx) (string, error) {
		if _, err := e.step(x, "a"); err != nil {
			return "", err
		}
		return "slept", x.Sleep(time.Hour)
	}, func(e *engine) {
		e.letGo(0)
		if len(e.reports) != 1 {
			t.Fatalf("%d reports", len(e.reports))
		}
		got := fmt.Sprint(e.reports[0].Ahead, len(e.reports[0].Commands), e.reports[0].Commands[1].Kind)
		if want := fmt.Sprint(1, 2, model.CommandStartTimer); got != want {
			t.Errorf("turn %s, want %s", got, want)
		}
		e.settle()
		for id := range e.timers {
			e.fire(id)
		}
		e.settle()
		e.wantClosed(t, model.Completed, "slept")
	})
}

// TestSignalTakenRidesAlong takes a signal and then runs a step. The worker reports both in one
// turn.
func TestSignalTakenRidesAlong(t *testing.T) {
	bubble(t, func(e *engine, x replay.Ctx) (string, error) {
		for range 2 {
			if err := x.Get(x.Next("go")); err != nil {
				return "", err
			}
			if _, err := e.step(x, "a"); err != nil {
				return "", err
			}
		}
		return "done", nil
	}, func(e *engine) {
		for range 2 {
			e.settle()
			e.signal("go", "1")
			e.settle()
		}
		e.wantClosed(t, model.Completed, "done")
		if e.commits != 3 { // one for the first wait, then two with an outcome and a taken signal
			t.Errorf("%d commits, want 3", e.commits)
		}
	})
}

// TestWhatRidesAlongComesTrue records, in the turn with the outcome of a step, everything that such
// a turn may have, and delivers the events one by one. The worker does not execute the code again,
// and does not repeat the requests that followed.
func TestWhatRidesAlongComesTrue(t *testing.T) {
	for name, ask := range map[string]func(e *engine, x replay.Ctx) error{
		"state":   func(_ *engine, x replay.Ctx) error { return x.SetState("s", payload("1"), nil) },
		"label":   func(_ *engine, x replay.Ctx) error { return x.SetLabel("l", "1") },
		"version": func(_ *engine, x replay.Ctx) error { x.Version("v", 1, 2); return nil },
		"signal":  func(_ *engine, x replay.Ctx) error { return x.Get(x.Next("go")) },
		"pin":     func(*engine, replay.Ctx) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				executed := 0
				var e *engine
				e = newEngine(func(x replay.Ctx, _ model.Payload) (model.Payload, error) {
					executed++
					if err := ask(e, x); err != nil {
						return model.Payload{}, err
					}
					if _, err := e.step(x, "a"); err != nil {
						return model.Payload{}, err
					}
					return x.RunChild(replay.Child{Workflow: "kid"})
				})

				e.cfg.Version, e.cfg.Pinned = "v1", map[string]bool{"wf": name == "pin"}
				e.signal("go", "1")
				e.activate(-1)

				for len(e.bodies)+len(e.reports)+int(e.last())-e.told > 0 {
					switch {
					case len(e.bodies) > 0:
						e.letGo(0)
					case len(e.reports) > 0:
						e.apply()
					default:
						e.deliver(1)
					}
				}

				for id := range e.children {
					e.closeChild(id, "kid")
				}
				e.settle()
				e.wantClosed(t, model.Completed, "kid")
				e.stop()
				if err := e.err(); err != nil || executed != 1 {
					t.Errorf("executed %d times, %v\n%s", executed, err, dump(e.events))
				}
			})
		})
	}
}
