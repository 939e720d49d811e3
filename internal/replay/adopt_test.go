package replay_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
)

// TestNoBodyRepeatsAfterALoss runs random programs, and the server loses the session at any moment.
// No body runs twice, unless the code gave up on it. The history is the same as without a loss.
func TestNoBodyRepeatsAfterALoss(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		ops := genProgram(2).Draw(rt, "program")
		choices := rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(rt, "choices")
		var s *sim
		var err error
		synctest.Test(t, func(*testing.T) {
			s = newSim(ops, choices, false)
			s.losses, s.e.cfg.OwnerRestarts = 4, true
			if err = s.run(); err == nil {
				err = s.check()
			}
		})
		if err != nil {
			rt.Fatalf("%v\n\n%s\n\nhistory:\n%s", err, text(ops), dump(s.e.events))
		}
	})
}

// lossy runs a test like bubble, with a worker whose owner may restart.
func lossy(t *testing.T, code func(e *engine, x replay.Ctx) (string, error), test func(e *engine)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var e *engine
		e = newEngine(func(x replay.Ctx, _ model.Payload) (model.Payload, error) {
			out, err := code(e, x)
			return payload(out), err
		})

		e.cfg.OwnerRestarts = true
		e.activate(-1)
		test(e)
		e.stop()
		if err := e.err(); err != nil {
			t.Errorf("%v\n%s", err, dump(e.events))
		}

		for id, n := range e.ran {
			if n > 1 {
				t.Errorf("the body of %s ran %d times", id, n)
			}
		}
	})
}

// inlineStep is a workflow of one step.
func inlineStep(e *engine, x replay.Ctx) (string, error) { return e.step(x, "a") }

// waiting is a step whose body ends only when its context does.
func waiting(st *replay.Step) {
	inner := st.Body
	st.Body = func(ctx context.Context) (model.Payload, error) {
		if _, err := inner(ctx); err != nil {
			return model.Payload{}, err
		}
		<-ctx.Done()
		return model.Payload{}, context.Cause(ctx)
	}
	st.Policy = &replay.Policy{MaxAttempts: 1}
}

// A new activation waits for the inline body of the lost activation, however often the run is lost.
// An activation that the engine takes back while it waits changes nothing.
func TestActivationsWaitForAnInlineBody(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(e *engine)
	}{
		{"lost once", func(e *engine) { e.lose(); e.reactivate(-1) }},
		{"lost twice", func(e *engine) {
			for range 2 {
				e.lose()
				e.reactivate(-1)
			}
		}},
		{"the successor is evicted", func(e *engine) {
			e.lose()
			e.reactivate(-1)
			e.w.Evict(e.start.Run, e.gen, "moved")
			synctest.Wait()
			e.reactivate(-1)
		}},
		{"the body ends first", func(e *engine) { e.lose(); e.letGo(0); e.reactivate(-1) }},
		{"the outcome was reported", func(e *engine) { e.letGo(0); e.lose(); e.reactivate(-1) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			lossy(t, inlineStep, func(e *engine) {
				c.do(e)
				e.settle()
				e.wantClosed(t, model.Completed, "out-a")
			})
		})
	}
}

// The worker knows whether it keeps something of a lost run: a body that runs, or its outcome. It
// keeps nothing of a run that only waits.
func TestWorkerKnowsWhatItKeeps(t *testing.T) {
	lossy(t, inlineStep, func(e *engine) {
		e.lose()
		body := e.w.Keeps(e.start.Run)
		e.letGo(0)
		if outcome := e.w.Keeps(e.start.Run); !body || !outcome {
			t.Errorf("the worker keeps the body: %t, and its outcome: %t", body, outcome)
		}
		e.reactivate(-1)
		e.settle()
		e.wantClosed(t, model.Completed, "out-a")
	})
	lossy(t, func(_ *engine, x replay.Ctx) (string, error) { return "", x.Sleep(time.Hour) }, func(e *engine) {
		e.lose()
		if e.w.Keeps(e.start.Run) {
			t.Error("the worker keeps something of a run that only waits")
		}
		e.reactivate(-1)
	})
}

// A cancel request reaches the inline body of a lost activation. The request may be in the history
// of the new activation, or arrive while the new activation waits. It also reaches the body if an
// activation in between never began.
func TestCancelReachesTheBodyOfALostRun(t *testing.T) {
	for _, losses := range []int{1, 2} {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprintf("losses=%d late=%v", losses, late), func(t *testing.T) {
				lossy(t, func(e *engine, x replay.Ctx) (string, error) { return e.step(x, "a", waiting) }, func(e *engine) {
					e.letGo(0) // now the body waits for the end of its context
					cancel := func() { e.inject(model.Event{Kind: model.EventCancelRequest}) }
					for i := range losses {
						e.lose()
						if !late && i == losses-1 {
							cancel()
						}
						e.reactivate(-1)
					}

					if late {
						cancel()
					}
					e.settle()
					if e.end == nil || e.end.Status != model.Canceled {
						t.Fatalf("closed as %+v", e.end)
					}
				})
			})
		}
	}
}

// An attempt that waits for a slot when the run is lost has not begun. The next activation runs it.
func TestAttemptsInLineBeginAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e *engine
		e = newEngine(func(x replay.Ctx, _ model.Payload) (model.Payload, error) {
			a, b := x.StepFuture(e.stepOf("a")), x.StepFuture(e.stepOf("b"))
			return payload("done"), errors.Join(x.Get(a), x.Get(b))
		})

		e.cfg.OwnerRestarts, e.cfg.MaxSteps = true, 1
		e.activate(-1)
		e.lose()
		e.reactivate(-1)
		e.settle()
		e.wantClosed(t, model.Completed, "done")
		e.stop()
		if len(e.ran) != 2 || e.err() != nil {
			t.Errorf("ran %v, %v", e.ran, e.err())
		}

		for id, n := range e.ran {
			if n != 1 {
				t.Errorf("%s ran %d times", id, n)
			}
		}
	})
}

// If a lost run is not activated again, the worker stops its bodies after a minute, whether they
// are inline or not. If it is activated in time, its bodies may take as long as they need.
func TestKeptAttemptsExpire(t *testing.T) {
	for _, inline := range []bool{true, false} {
		for _, back := range []bool{true, false} {
			t.Run(fmt.Sprintf("inline=%v back=%v", inline, back), func(t *testing.T) {
				var cause error
				lossy(t, func(e *engine, x replay.Ctx) (string, error) {
					s := e.stepOf("a", waiting)
					body := s.Body
					s.Body = func(ctx context.Context) (model.Payload, error) {
						_, err := body(ctx)
						cause = err
						return payload("late"), nil
					}
					if inline {
						out, err := x.Step(s)
						return string(out.Data), err
					}
					f := x.StepFuture(s)
					return "done", x.Get(f)
				}, func(e *engine) {
					e.letGo(0)
					e.lose()
					pass(30 * time.Second)
					if back {
						e.reactivate(-1)
					}
					pass(time.Hour)
					if !back && !errors.Is(cause, replay.ErrCanceled) || back && cause != nil {
						t.Errorf("the context of the body ended with %v", cause)
					}
				})
			})
		}
	}
}

// Close interrupts the bodies of lost runs: of a run that has not been activated again, and of a
// run whose next activation waits for the body.
func TestCloseEndsBodiesOfLostRuns(t *testing.T) {
	for _, inline := range []bool{true, false} {
		for _, back := range []bool{true, false} {
			t.Run(fmt.Sprintf("inline=%v back=%v", inline, back), func(t *testing.T) {
				lossy(t, func(e *engine, x replay.Ctx) (string, error) {
					if inline {
						return e.step(x, "a", waiting)
					}
					return "", x.Get(x.StepFuture(e.stepOf("a", waiting)))
				}, func(e *engine) {
					e.letGo(0)
					e.lose()
					if back {
						e.reactivate(-1)
					}
				}) // lossy closes the worker, and fails if a goroutine is left
			})
		}
	}
}

// A lost run may hand over its attempts only after Close has interrupted the kept ones, because its
// code parks late. Close interrupts these bodies too, and does not give up on them.
func TestCloseEndsBodiesOfARunThatParksLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		holds, reached := make(chan struct{}), false
		var cause error
		var e *engine
		e = newEngine(func(x replay.Ctx, _ model.Payload) (model.Payload, error) {
			s := e.stepOf("a", waiting)
			body := s.Body
			s.Body = func(ctx context.Context) (out model.Payload, err error) {
				out, err = body(ctx)
				cause = err
				return out, err
			}
			f := x.StepFuture(s)
			if err := x.Get(x.Next("go")); err != nil {
				return model.Payload{}, err
			}
			reached = true
			<-holds
			return model.Payload{}, x.Get(f)
		})

		e.cfg.OwnerRestarts = true
		e.activate(-1)
		e.letGo(0) // now the body waits for the end of its context
		e.signal("go", "1")
		e.deliver(1)
		if !reached {
			t.Fatal("the code has not received the signal")
		}
		e.lose()
		closed := make(chan error, 1)
		go func() { closed <- e.w.Close(context.Background()) }()
		synctest.Wait() // Close has interrupted everything, and waits for the code
		close(holds)
		synctest.Wait()
		if err := <-closed; err != nil || cause == nil {
			t.Errorf("closed with %v, the body ended with %v", err, cause)
		}
	})
}

// The next activation takes the outcome of a kept attempt unchanged: a failed attempt keeps its
// number, and the time limit of a running attempt continues to run.
func TestOutcomesOfLostAttempts(t *testing.T) {
	t.Run("retry", func(t *testing.T) {
		lossy(t, func(e *engine, x replay.Ctx) (string, error) {
			return e.step(x, "a", failingStep(1, false))
		}, func(e *engine) {
			e.lose()
			e.letGo(0)
			e.reactivate(-1)
			e.settle()
			if n := strings.Count(dump(e.events), model.EventAttemptFailed.String()); n != 1 {
				t.Fatalf("%d failed attempts\n%s", n, dump(e.events))
			}

			e.lose() // during the back-off, so the next attempt has not begun
			e.reactivate(-1)
			e.settle()
			for id := range e.retries {
				e.retry(id)
			}
			e.letGo(0)
			e.lose() // the worker has reported the second attempt, and the engine has not stored it
			e.reactivate(-1)
			for id := range e.retries {
				e.retry(id)
			}
			e.settle()
			e.wantClosed(t, model.Completed, "out-a")
		})
	})

	t.Run("time limit", func(t *testing.T) {
		lossy(t, func(e *engine, x replay.Ctx) (string, error) {
			return e.step(x, "a", waiting, func(st *replay.Step) { st.AttemptTimeout = 40 * time.Second })
		}, func(e *engine) {
			e.letGo(0)
			begun := time.Now()
			pass(30 * time.Second)
			e.lose()
			e.reactivate(-1)
			pass(9 * time.Second)
			e.mu.Lock()
			ended := len(e.reports) > 0 && len(e.reports[len(e.reports)-1].Commands) > 0
			e.mu.Unlock()
			if ended {
				t.Fatal("the attempt ended too early")
			}
			pass(2 * time.Second)
			e.settle()
			if e.end == nil || e.end.Status != model.Failed || time.Since(begun) > 45*time.Second {
				t.Fatalf("closed as %+v after %s", e.end, time.Since(begun))
			}
		})
	})

	t.Run("settled elsewhere", func(t *testing.T) {
		lossy(t, func(e *engine, x replay.Ctx) (string, error) {
			return e.step(x, "a", failingStep(9, true), e.settleStep)
		}, func(e *engine) {
			e.lose()
			e.letGo(0)
			e.reactivate(-1)
			e.settle()
			if e.end == nil || e.end.Status != model.Failed || e.settled != 1 {
				t.Fatalf("closed as %+v, settled %d times", e.end, e.settled)
			}
			e.consistent()
		})
	})
}

// ignoring runs a test like bubble, of a step whose body ignores that it is told to end. The test
// fails if the body runs twice. A step that is not inline has a coroutine beside it.
func ignoring(t *testing.T, inline bool, opt func(*replay.Step), test func(e *engine)) {
	t.Helper()
	bubble(t, func(e *engine, x replay.Ctx) (string, error) {
		if inline {
			return e.step(x, "a", opt)
		}
		beside(x)
		f := x.StepFuture(e.stepOf("a", opt))
		return "out-a", x.Get(f)
	}, func(e *engine) {
		test(e)
		e.settle()
		for id, n := range e.ran {
			if n > 1 {
				t.Errorf("the body of %s ran %d times", id, n)
			}
		}
	})
}

// The engine takes a run back while the body of a step runs, which ignores that, and gives the run
// to the same worker again. The step waits for the body, and takes its outcome.
func TestStepWaitsForABodyThatIgnoresItsEnd(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(e *engine)
	}{
		{"taken back once", func(e *engine) { e.takeBack(); e.reactivate(-1) }},
		{"taken back twice", func(e *engine) {
			for range 2 {
				e.takeBack()
				e.reactivate(-1)
			}
		}},
		{"taken back and lost", func(e *engine) { e.takeBack(); e.reactivate(-1); e.lose(); e.reactivate(-1) }},
		{"lost and taken back", func(e *engine) { e.lose(); e.reactivate(-1); e.takeBack(); e.reactivate(-1) }},
		{"the body ends first", func(e *engine) { e.takeBack(); e.letGo(0); e.reactivate(-1) }},
		{"the body takes hours", func(e *engine) {
			e.takeBack()
			pass(time.Hour)
			e.letGo(0)
			pass(30 * time.Second)
			e.reactivate(-1)
		}},
		{"not activated for hours", func(e *engine) { e.takeBack(); pass(time.Hour); e.reactivate(-1); pass(time.Hour) }},
		{"without an eviction", func(e *engine) { e.reactivate(-1) }},
		{"at the same time", func(e *engine) { e.w.Evict(e.start.Run, e.gen, "moved"); e.reactivate(-1) }},
	} {
		for _, inline := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s inline=%v", c.name, inline), func(t *testing.T) {
				ignoring(t, inline, func(*replay.Step) {}, func(e *engine) {
					c.do(e)
					e.settle()
					e.wantClosed(t, model.Completed, "out-a")
				})
			})
		}
	}
}

// A body fails after the engine has taken back its run. It may have failed because it was told to
// end, so the failure is no outcome of the step, and the next activation runs the body again.
func TestFailureOfABodyThatWasToldToEnd(t *testing.T) {
	for _, inline := range []bool{true, false} {
		for _, waits := range []bool{true, false} {
			t.Run(fmt.Sprintf("inline=%v waits=%v", inline, waits), func(t *testing.T) {
				failed := false
				bubble(t, func(e *engine, x replay.Ctx) (string, error) {
					s := e.stepOf("a", func(st *replay.Step) { st.Policy = &replay.Policy{MaxAttempts: 1} })
					body := s.Body
					s.Body = func(ctx context.Context) (model.Payload, error) {
						out, err := body(ctx)
						if !failed {
							failed = true
							return model.Payload{}, errors.New("told to end")
						}
						return out, err
					}
					if inline {
						out, err := x.Step(s)
						return string(out.Data), err
					}
					beside(x)
					f := x.StepFuture(s)
					return "out-a", x.Get(f)
				}, func(e *engine) {
					e.takeBack()
					if !waits {
						e.letGo(0)
					}
					e.reactivate(-1)
					e.settle()
					e.wantClosed(t, model.Completed, "out-a")
				})
			})
		}
	}
}

// A cancel request reaches a step that waits for a body which ignores its end. The code continues
// without the body, and the body does not run again.
func TestCancelWhileAStepWaitsForABody(t *testing.T) {
	ignoring(t, false, func(*replay.Step) {}, func(e *engine) {
		e.takeBack()
		e.reactivate(-1)
		e.inject(model.Event{Kind: model.EventCancelRequest})
		e.deliver(1)
		for len(e.reports) > 0 {
			e.apply()
		}
		if e.end == nil || e.end.Status != model.Canceled {
			t.Fatalf("closed as %+v", e.end)
		}
	})
}

// A worker that closes does not run the body of a step again that waits for an earlier execution of
// the body.
func TestCloseWhileAStepWaitsForABody(t *testing.T) {
	ignoring(t, false, func(st *replay.Step) {
		body := st.Body
		st.Body = func(ctx context.Context) (model.Payload, error) {
			_, _ = body(ctx)
			return model.Payload{}, errors.New("told to end")
		}
	}, func(e *engine) {
		e.takeBack()
		e.reactivate(-1)
		e.w.Drain()
		e.letGo(0)
		if !e.isReleased() || len(e.bodies) > 0 {
			t.Errorf("released: %v, bodies: %d", e.isReleased(), len(e.bodies))
		}
		e.takeBack()
	})
}
