package replay_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
)

// beside starts a second coroutine, so that steps run on their own goroutines.
func beside(x replay.Ctx) {
	x.Go(func(y replay.Ctx) (any, error) { return nil, y.Get(y.Next("never")) })
}

// bothWays runs a test twice: with the body on the goroutine of the coroutine, and with the body on
// another goroutine.
func bothWays(t *testing.T, code func(e *engine, x replay.Ctx) (string, error), test func(t *testing.T, e *engine)) {
	t.Helper()
	for _, parallel := range []bool{false, true} {
		t.Run(fmt.Sprintf("parallel=%v", parallel), func(t *testing.T) {
			bubble(t, func(e *engine, x replay.Ctx) (string, error) {
				if parallel {
					beside(x)
				}
				return code(e, x)
			}, func(e *engine) { test(t, e) })
		})
	}
}

func TestErrorsAreTheSameLiveAndOnReplay(t *testing.T) {
	var texts []string
	bothWays(t, func(e *engine, x replay.Ctx) (string, error) {
		_, err := e.step(x, "a", failingStep(9, true))
		var f *model.Failure
		if !errors.As(err, &f) {
			return "", fmt.Errorf("error is %T", err)
		}
		texts = append(texts, fmt.Sprintf("%s|%s|%s|%v", f.Kind, f.Type, f.Message, f.Permanent))
		return f.Message, x.Sleep(time.Hour)
	}, func(t *testing.T, e *engine) {
		texts = nil
		e.settle()
		e.crash()
		e.activate(-1)
		e.settle()
		if len(texts) != 2 || texts[0] != texts[1] || texts[0] != "|*errors.errorString|boom a|true" {
			t.Errorf("errors %q", texts)
		}
	})
}

func TestRetries(t *testing.T) {
	bothWays(t, func(e *engine, x replay.Ctx) (string, error) {
		out, err := e.step(x, "a", failingStep(2, false), func(s *replay.Step) {
			s.Policy = &replay.Policy{MaxAttempts: 3, Initial: 10 * time.Second}
		})
		return out, err
	}, func(t *testing.T, e *engine) {
		e.settle()
		want := model.Reason{Code: model.WaitRetry, Name: "a", Attempt: 2, Until: e.start.At.Add(10 * time.Second), Detail: "boom a"}
		if e.waits[0] != want {
			t.Errorf("waits %v", e.waits)
		}
		id := e.events[0].ID
		if e.retry("nobody"); len(e.bodies) > 0 {
			t.Error("a step ran for the retry of another step")
		}
		e.retry(id)
		e.settle()
		e.retry(id)
		e.settle()
		e.wantClosed(t, model.Completed, "out-a")
		if got := e.kinds(); got != "attempt_failed a, attempt_failed a, step_completed a" {
			t.Errorf("history %s", got)
		}
		if e.events[1].Due.Sub(e.events[1].At) != 20*time.Second {
			t.Errorf("second back-off %s", e.events[1].Due.Sub(e.events[1].At))
		}
	})
}

// TestRetryToldTwice runs a step once, although the engine has said twice that its back-off is
// over.
func TestRetryToldTwice(t *testing.T) {
	bubble(t, func(e *engine, x replay.Ctx) (string, error) {
		f := x.StepFuture(e.stepOf("a", failingStep(1, false)))
		if err := x.Get(x.Next("go")); err != nil {
			return "", err
		}
		<-e.hold // a coroutine holds the baton
		return "done", x.Get(f)
	}, func(e *engine) {
		e.settle()
		e.signal("go", "1")
		e.deliver(1)
		for range 3 {
			e.w.Retry(e.start.Run, e.gen, e.events[0].ID)
		}
		close(e.hold)
		synctest.Wait()
		if len(e.bodies) != 1 {
			t.Errorf("%d bodies run", len(e.bodies))
		}
		e.settle()
		e.wantClosed(t, model.Completed, "done")
	})
}

func TestBackoffOverCrash(t *testing.T) {
	bubble(t, func(e *engine, x replay.Ctx) (string, error) {
		return e.step(x, "a", failingStep(1, false), func(s *replay.Step) { s.Policy = &replay.Policy{Initial: 3 * time.Millisecond} })
	}, func(e *engine) {
		e.settle()
		e.crash()
		e.activate(-1)
		if len(e.bodies) > 0 {
			t.Fatal("the step ran before its time")
		}
		e.crash()
		for range 4 {
			e.inject(model.Event{Kind: model.EventWatched}) // an event with a later time
		}
		e.activate(-1)
		if len(e.bodies) != 1 {
			t.Fatal("the step does not run although its time has come")
		}

		e.settle()
		e.wantClosed(t, model.Completed, "out-a")
	})
}

func TestPanics(t *testing.T) {
	bothWays(t, func(e *engine, x replay.Ctx) (string, error) {
		_, err := x.Step(&replay.Step{Name: "p", Policy: &replay.Policy{MaxAttempts: 1}, Body: func(context.Context) (model.Payload, error) { panic("ouch") }})
		var f *model.Failure
		if !errors.As(err, &f) || f.Kind != model.FailurePanic || !strings.Contains(f.Stack, "step_test.go") {
			return "", fmt.Errorf("not a panic: %w", err)
		}
		panic(fmt.Errorf("workflow after %w", err))
	}, func(t *testing.T, e *engine) {
		e.settle()
		e.wantClosed(t, model.Failed, "")
		if f := e.end.Failure; f.Kind != model.FailurePanic || f.Message != "panic: workflow after panic: ouch" || !strings.Contains(f.Stack, "step_test.go") {
			t.Errorf("failure %+v", f)
		}
	})
}

// nobodysError is an error that panics, because its inner error is nil.
type nobodysError struct{ inner error }

func (e *nobodysError) Error() string { return e.inner.Error() }
func (e *nobodysError) Unwrap() error { return e.inner }

// If the Error method of an error panics, the worker treats that as a panic of the code that
// returned the error. The panic does no other harm.
func TestErrorsThatPanic(t *testing.T) {
	bothWays(t, func(e *engine, x replay.Ctx) (string, error) {
		_, err := x.Step(&replay.Step{Name: "p", Policy: &replay.Policy{MaxAttempts: 1}, Body: func(context.Context) (model.Payload, error) {
			return model.Payload{}, (*nobodysError)(nil)
		}})
		if f := (*model.Failure)(nil); !errors.As(err, &f) || f.Kind != model.FailurePanic || !strings.Contains(f.Stack, "nobodysError") {
			return "", fmt.Errorf("not a panic: %w", err)
		}
		return "", (*nobodysError)(nil)
	}, func(t *testing.T, e *engine) {
		e.settle()
		e.wantClosed(t, model.Failed, "")
		if f := e.end.Failure; f.Kind != model.FailurePanic || !strings.Contains(f.Stack, "nobodysError") {
			t.Errorf("failure %+v", f)
		}
	})
}

func TestPanicOfACoroutine(t *testing.T) {
	for _, observed := range []bool{false, true} {
		bubble(t, func(e *engine, x replay.Ctx) (string, error) {
			f := x.Go(func(replay.Ctx) (any, error) { panic("ouch") })
			if observed {
				return "seen: " + x.Get(f).Error(), nil
			}
			return "", x.Sleep(time.Hour)
		}, func(e *engine) {
			e.settle()
			if observed {
				e.wantClosed(t, model.Completed, "seen: panic: ouch")
				return
			}
			e.fireAll()
			e.wantClosed(t, model.Failed, "")
		})
	}
}

// TestGoexitIsContained lets user code end its goroutine, as t.FailNow does in a mock.
func TestGoexitIsContained(t *testing.T) {
	t.Run("step", func(t *testing.T) {
		runs := 0
		bothWays(t, func(e *engine, x replay.Ctx) (string, error) {
			out, err := x.Step(&replay.Step{Name: "a", Body: func(ctx context.Context) (model.Payload, error) {
				if runs++; replay.StepFrom(ctx).Attempt() == 1 {
					runtime.Goexit()
				}
				return payload("second"), nil
			}})
			return string(out.Data), err
		}, func(t *testing.T, e *engine) {
			runs = 1
			e.settle()
			if got := e.kinds(); got != "attempt_failed a" {
				t.Fatalf("history %s", got)
			}
			e.retry(e.events[0].ID)
			e.settle()
			e.wantClosed(t, model.Completed, "second")
			if runs != 2 {
				t.Errorf("%d runs", runs)
			}
		})
	})

	t.Run("step after a signal", func(t *testing.T) { // the signal is not taken again
		bubble(t, func(e *engine, x replay.Ctx) (string, error) {
			if err := x.Get(x.Next("go")); err != nil {
				return "", err
			}
			out, err := x.Step(&replay.Step{Name: "a", Policy: &replay.Policy{MaxAttempts: 1}, Body: func(context.Context) (model.Payload, error) {
				runtime.Goexit()
				return model.Payload{}, nil
			}})
			return string(out.Data), err
		}, func(e *engine) {
			e.settle()
			e.signal("go", "1")
			e.settle()
			e.wantClosed(t, model.Failed, "")
		})
	})

	// a child that was asked for before, and is not recorded yet, is not asked for again
	t.Run("step after a child", func(t *testing.T) {
		bubble(t, func(e *engine, x replay.Ctx) (string, error) {
			if _, err := x.StartChild(replay.Child{Workflow: "kid"}); err != nil {
				return "", err
			}
			_, err := x.Step(&replay.Step{Name: "a", Policy: &replay.Policy{MaxAttempts: 1}, Body: func(context.Context) (model.Payload, error) {
				runtime.Goexit()
				return model.Payload{}, nil
			}})
			return "", err
		}, func(e *engine) {
			e.settle()
			e.wantClosed(t, model.Failed, "")
			if got := e.kinds(); got != "child_started kid, step_failed a" {
				t.Errorf("history %s", got)
			}
		})
	})

	t.Run("workflow", func(t *testing.T) {
		bubble(t, func(e *engine, x replay.Ctx) (string, error) {
			x.Cleanup(true, func(y replay.Ctx) error { _, err := e.step(y, "undo"); return err })
			runtime.Goexit()
			return "", nil
		}, func(e *engine) {
			e.settle()
			e.wantClosed(t, model.Failed, "")
			if e.kinds() != "step_completed undo" {
				t.Errorf("history %s", e.kinds())
			}
		})
	})

	t.Run("coroutine", func(t *testing.T) {
		bubble(t, func(e *engine, x replay.Ctx) (string, error) {
			return x.Get(x.Go(func(replay.Ctx) (any, error) { runtime.Goexit(); return nil, nil })).Error(), nil
		}, func(e *engine) {
			e.settle()
			e.wantClosed(t, model.Completed, "workflow code ended its goroutine (runtime.Goexit) instead of returning")
		})
	})

	t.Run("thread", func(t *testing.T) {
		bubble(t, func(e *engine, x replay.Ctx) (string, error) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			return e.step(x, "a")
		}, func(e *engine) {
			e.settle()
			e.wantClosed(t, model.Completed, "out-a")
		})
	})
}

func TestAttemptTimeout(t *testing.T) {
	// The body returns one of these errors when its time is up. If the error is nil, the body
	// ignores the timeout.
	for _, returned := range []error{
		context.DeadlineExceeded, context.Canceled, errors.New("driver: bad connection"),
		&model.Failure{Kind: "mine", Message: "of a call"}, nil,
	} {
		bubble(t, func(e *engine, x replay.Ctx) (string, error) {
			_, err := x.Step(&replay.Step{
				Name: "a", AttemptTimeout: time.Minute, Policy: &replay.Policy{MaxAttempts: 1},
				Body: func(ctx context.Context) (model.Payload, error) {
					if returned != nil {
						<-ctx.Done()
						return model.Payload{}, returned
					}
					<-e.hold
					return payload("late"), nil
				},
			})
			var f *model.Failure
			errors.As(err, &f)
			return f.Kind, nil
		}, func(e *engine) {
			pass(2 * time.Minute)
			e.settle()
			e.wantClosed(t, model.Completed, "timeout")
			close(e.hold)
			synctest.Wait()
			if len(e.events) != 1 {
				t.Errorf("history %s", e.kinds())
			}
		})
	}
}

func TestNoMoreBodiesThanSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(nil)
		e.cfg.MaxSteps = 3
		e.code = func(x replay.Ctx, _ model.Payload) (model.Payload, error) {
			var fs []*replay.Future
			for range 10 {
				fs = append(fs, x.StepFuture(e.stepOf("a")))
			}
			if err := x.Cancel(fs[9]); err != nil {
				return model.Payload{}, err
			}
			return payload("done"), x.All(fs[:9])
		}

		e.activate(-1)
		for range 9 {
			if n := len(e.bodies); n == 0 || n > 3 {
				t.Fatalf("%d bodies run", n)
			}
			e.letGo(len(e.bodies) - 1)
		}

		e.settle()
		e.stop()
		e.wantClosed(t, model.Completed, "done")
	})
}

func TestMissingCode(t *testing.T) {
	bubble(t, func(e *engine, x replay.Ctx) (string, error) {
		_, err := x.Step(&replay.Step{Name: "act"})
		return "", err
	}, func(e *engine) {
		e.settle()
		if e.waits[0].Code != model.WaitWorker || e.waits[0].Name != "act" {
			t.Errorf("waits %v", e.waits)
		}
		pass(time.Minute)
		if e.isReleased() {
			t.Error("a run with work to do was released")
		}
	})
}

// TestCancelRequestInterruptsTheBody cancels the context of a running step.
func TestCancelRequestInterruptsTheBody(t *testing.T) {
	bothWays(t, func(e *engine, x replay.Ctx) (string, error) {
		_, err := x.Step(&replay.Step{Name: "a", Body: func(ctx context.Context) (model.Payload, error) {
			<-ctx.Done()
			return model.Payload{}, ctx.Err()
		}})
		return "", err
	}, func(t *testing.T, e *engine) {
		e.applyAll()
		e.inject(model.Event{Kind: model.EventCancelRequest, Failure: &model.Failure{Message: "enough"}})
		e.deliver(1)
		e.settle()
		e.wantClosed(t, model.Canceled, "")
		if e.end.Failure.Message != "canceled: enough" {
			t.Errorf("failure %+v", e.end.Failure)
		}
	})
}

func TestGuards(t *testing.T) {
	bothWays(t, func(e *engine, x replay.Ctx) (string, error) {
		var inside []string
		_, err := x.Step(&replay.Step{Name: "a", Body: func(context.Context) (model.Payload, error) {
			_, nested := x.Step(&replay.Step{Name: "b"})
			inside = append(inside, x.Sleep(1).Error(), nested.Error(), x.Get(x.Timer(1)).Error(), x.Now().Format(time.DateOnly))
			x.Cleanup(true, nil)
			return model.Payload{}, nil
		}})
		inside = append(inside, err.Error())
		// the function uses the context of its parent
		f := x.Go(func(replay.Ctx) (any, error) { return nil, x.Sleep(1) })
		inside = append(inside, x.Get(f).Error(), replay.Ctx{}.Sleep(1).Error())
		return strings.Join(inside, "\n"), nil
	}, func(t *testing.T, e *engine) {
		e.settle()
		e.wantClosed(t, model.Completed, strings.Join([]string{
			"durable call Sleep inside step a: make it in the workflow, before or after the step",
			"durable call of step b inside step a: make it in the workflow, before or after the step",
			"durable call Get inside step a: make it in the workflow, before or after the step",
			"2026-01-01",
			"durable call Defer inside step a: make it in the workflow, before or after the step",
			"durable call Sleep outside a coroutine of this execution: use the context that the running function was given",
			"durable call Sleep on a context that is not of an execution",
		}, "\n"))
	})
}

// TestLoopWithoutKey expects one warning about steps that only their order distinguishes.
func TestLoopWithoutKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged bytes.Buffer
		e := newEngine(nil)
		e.auto = true
		e.cfg.Logger = slog.New(slog.NewTextHandler(&logged, nil))

		e.code = func(x replay.Ctx, _ model.Payload) (model.Payload, error) {
			body := func(context.Context) (model.Payload, error) { return model.Payload{}, nil }
			for i := range 3 {
				_, _ = x.Step(&replay.Step{Name: "bare", Body: body})
				_, _ = x.Step(&replay.Step{Name: "keyed", Key: fmt.Sprint(i), Keyed: true, Body: body})
				_, _ = x.Step(&replay.Step{Name: "input", Input: &replay.StepInput{Payload: payload("1")}, Body: body})
			}
			return payload(""), nil
		}

		e.activate(-1)
		e.settle()
		e.stop()
		if got := logged.String(); strings.Count(got, "step in a loop has no key") != 1 || !strings.Contains(got, "step=bare") || !strings.Contains(got, "step_test.go:") {
			t.Errorf("log: %s", got)
		}
	})
}

// TestForeignFuture uses a future of another execution of the code.
func TestForeignFuture(t *testing.T) {
	var kept *replay.Future
	bubble(t, func(e *engine, x replay.Ctx) (string, error) {
		if kept == nil {
			kept = x.Timer(time.Hour)
			return "", x.Sleep(time.Hour)
		}
		return x.Get(kept).Error(), nil
	}, func(e *engine) {
		e.crash()
		e.activate(-1)
		e.settle()
		e.wantClosed(t, model.Completed, "Get: future 1 belongs to another execution: wait for it in the execution that created it")
	})
}

// TestTurnsTellWhatRuns checks that every turn says whether a body runs, even if no coroutine waits
// for it. The owner does not take away a run whose body runs.
func TestTurnsTellWhatRuns(t *testing.T) {
	bubble(t, func(e *engine, x replay.Ctx) (string, error) {
		f, g := x.StepFuture(e.stepOf("a")), x.StepFuture(e.stepOf("b"))
		if err := x.Get(x.Next("go")); err != nil {
			return "", err
		}
		return "done", errors.Join(x.Get(f), x.Get(g))
	}, func(e *engine) {
		last := func() model.Turn {
			t.Helper()
			if len(e.reports) != 1 {
				t.Fatalf("%d reports, want 1", len(e.reports))
			}
			return e.reports[0]
		}
		if first := last(); !first.Running || len(first.Waits) != 2 || first.Waits[0].Code != model.WaitSignal || first.Waits[1].Code != model.WaitStep {
			t.Errorf("first turn = %+v, want it to wait for a signal, and to name a step that runs", first)
		}
		e.apply()
		e.signal("another", "x")
		e.deliver(1)
		time.Sleep(time.Second) // until the janitor looks at the run: it reports that a body runs
		synctest.Wait()
		if turn := last(); turn.Seen != 1 || !turn.Running {
			t.Errorf("after a signal that the code does not wait for: %+v, want it seen", turn)
		}
		e.apply()
		e.letGo(0)
		if turn := last(); !turn.Running {
			t.Error("the other body still runs")
		}
		e.apply()
		e.letGo(0)
		if turn := last(); turn.Running {
			t.Error("both bodies have ended")
		}
		e.settle()
		e.signal("go", "x")
		e.settle()
		e.wantClosed(t, model.Completed, "done")
	})
}
