package replay_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
)

// letGoNamed lets the blocked body of a step continue.
func (e *engine) letGoNamed(t *testing.T, name string) {
	t.Helper()
	i := slices.IndexFunc(e.bodies, func(b *body) bool { return b.name == name })
	if i < 0 {
		t.Fatalf("no body of %s is blocked", name)
	}
	e.letGo(i)
}

// say joins values into a line.
func say(args ...any) string { return strings.TrimSuffix(fmt.Sprintln(args...), "\n") }

// kinds returns the history in short form.
func (e *engine) kinds() string {
	var s []string
	for i := range e.events {
		s = append(s, strings.TrimSuffix(e.events[i].Kind.String()+" "+e.events[i].Name, " "))
	}
	return strings.Join(s, ", ")
}

func (e *engine) fireAll() {
	for len(e.timers) > 0 {
		for id := range e.timers {
			e.fire(id)
		}
	}
	e.settle()
}

// applyAll commits everything that was reported.
func (e *engine) applyAll() {
	for len(e.reports) > 0 {
		e.apply()
	}
}

func TestSelectTakesTheSmallestPosition(t *testing.T) {
	bubble(t, func(e *engine, x replay.Ctx) (string, error) {
		fs := []*replay.Future{x.StepFuture(e.stepOf("a")), x.StepFuture(e.stepOf("b")), x.Next("s")}
		if err := x.Sleep(time.Hour); err != nil {
			return "", err
		}

		var order []int
		for range 3 {
			i, err := x.Select(fs)
			if err != nil {
				return "", err
			}
			order = append(order, i)
			if err := x.Get(fs[i]); err != nil {
				return "", err
			}
			fs[i] = x.Promise("never")
		}

		return say(order), nil
	}, func(e *engine) {
		e.letGoNamed(t, "b")
		e.applyAll()
		e.signal("s", "1")
		e.letGoNamed(t, "a")
		e.applyAll()
		e.settle()
		e.fireAll()
		e.wantClosed(t, model.Completed, "[1 2 0]")
	})
}

func TestRaceCancelsTheLosers(t *testing.T) {
	canceled := make(chan error, 1)

	bubble(t, func(e *engine, x replay.Ctx) (string, error) {
		slow := &replay.Step{Name: "slow", Body: func(ctx context.Context) (model.Payload, error) {
			<-ctx.Done()
			canceled <- context.Cause(ctx)
			return payload("too late"), nil
		}}
		fs := []*replay.Future{x.StepFuture(slow), x.StepFuture(e.stepOf("quick")), x.Timer(time.Hour)}
		i, err := x.Race(fs)
		texts := say(i, err, x.Get(fs[0]), x.Get(fs[2]))
		return texts, x.Get(x.Next("go"))
	}, func(e *engine) {
		canceled = make(chan error, 1)
		e.settle()
		if e.end != nil {
			t.Fatal("it has ended")
		}
		e.signal("go", "1")
		if err := <-canceled; !errors.Is(err, replay.ErrCanceled) {
			t.Errorf("cause %v", err)
		}
		e.settle()
		e.wantClosed(t, model.Completed, "1 <nil> canceled canceled")
		if got, want := e.kinds(), "step_completed quick, withdrawn slow, withdrawn, signal_received go, signal_taken go"; got != want {
			t.Errorf("history %q, want %q", got, want)
		}
		if len(e.timers) > 0 {
			t.Error("the timer of a loser is open")
		}
	})
}

func TestAllReturnsTheFirstErrorByPosition(t *testing.T) {
	bubble(t, func(e *engine, x replay.Ctx) (string, error) {
		fs := []*replay.Future{
			x.StepFuture(e.stepOf("a", failingStep(9, true))), x.StepFuture(e.stepOf("b", failingStep(9, true))),
			x.StepFuture(e.stepOf("c")), x.Next("s"),
		}
		if err := x.Sleep(time.Hour); err != nil { // both errors exist when All begins
			return "", err
		}
		err := x.All(fs)
		v, ok := x.TryReceive("s")
		return say(err, x.Get(fs[2]), string(v.Data), ok), nil
	}, func(e *engine) {
		e.signal("s", "kept")
		e.letGoNamed(t, "b")
		e.applyAll()
		e.letGoNamed(t, "a")
		e.applyAll()
		e.deliver(3)
		e.fireAll()
		e.wantClosed(t, model.Completed, "boom b canceled kept true")
	})
}

func TestAllGivesBackASignalThatItHadGot(t *testing.T) {
	bubble(t, func(e *engine, x replay.Ctx) (string, error) {
		err := x.All([]*replay.Future{x.Next("s"), x.StepFuture(e.stepOf("a", failingStep(9, true)))})
		f := x.Next("s")
		return say(err, x.Get(f), string(f.Payload().Data)), nil
	}, func(e *engine) {
		e.signal("s", "1")
		e.deliver(1)
		e.settle()
		e.wantClosed(t, model.Completed, "boom a <nil> 1")
	})
}

func TestFirstNInOrderOfPosition(t *testing.T) {
	bubble(t, func(e *engine, x replay.Ctx) (string, error) {
		var fs []*replay.Future
		for _, n := range []string{"a", "b", "c", "d"} {
			fs = append(fs, x.StepFuture(e.stepOf(n)))
		}
		fs = append(fs, x.StepFuture(e.stepOf("f", failingStep(9, true))))
		is, err := x.FirstN(2, fs)
		_, tooMany := x.FirstN(6, fs)
		_, impossible := x.FirstN(3, fs)
		return say(is, err, fault.KindOf(tooMany), impossible), nil
	}, func(e *engine) {
		for _, n := range []string{"f", "d", "b"} {
			e.letGoNamed(t, n)
			e.applyAll()
		}
		e.settle()
		e.wantClosed(t, model.Completed, "[3 1] <nil> invalid boom f")
	})
}

func TestNothingToWaitFor(t *testing.T) {
	bubble(t, func(e *engine, x replay.Ctx) (string, error) {
		_, s := x.Select(nil)
		_, r := x.Race(nil)
		return say(fault.KindOf(s), fault.KindOf(r), x.All(nil), x.Wait(nil), fault.KindOf(x.Wait([]*replay.Future{nil}))), nil
	}, func(e *engine) {
		e.settle()
		e.wantClosed(t, model.Completed, "invalid invalid <nil> <nil> invalid")
	})
}

func TestTimedOutReceiveConsumesNothing(t *testing.T) {
	bubble(t, func(e *engine, x replay.Ctx) (string, error) {
		y := x.WithTimeout(time.Minute)
		f := y.Next("s")
		err := y.Get(f)
		if e := x.Sleep(time.Hour); e != nil {
			return "", e
		}
		v, ok := x.TryReceive("s")
		_, again := x.TryReceive("s")
		return say(err, y.Err(), x.Err(), string(v.Data), ok, again), nil
	}, func(e *engine) {
		e.settle()
		if len(e.timers) != 1 {
			t.Fatalf("timers %v", e.timers)
		}
		e.fireOne(t)
		e.signal("s", "1")
		e.settle()
		e.fireAll()
		e.wantClosed(t, model.Completed, "timeout timeout <nil> 1 true false")
	})
}

func (e *engine) fireOne(t *testing.T) {
	t.Helper()
	if len(e.timers) != 1 {
		t.Fatalf("timers %v", e.timers)
	}
	for id := range e.timers {
		e.fire(id)
	}
	e.settle()
}

func TestSignalsGoToTheLongestWait(t *testing.T) {
	bubble(t, func(e *engine, x replay.Ctx) (string, error) {
		var got []string
		var fs []*replay.Future
		for _, who := range []string{"a", "b", "c"} {
			fs = append(fs, x.Go(func(y replay.Ctx) (any, error) {
				f := y.Next("s")
				err := y.Get(f)
				got = append(got, who+string(f.Payload().Data))
				return nil, err
			}))
		}
		err := x.All(fs)
		return say(got), err
	}, func(e *engine) {
		for _, v := range []string{"1", "2", "3"} {
			e.signal("s", v)
		}
		e.settle()
		e.wantClosed(t, model.Completed, "[a1 b2 c3]")
		if got := strings.Count(e.kinds(), "signal_taken s"); got != 3 {
			t.Errorf("%d signals are recorded as taken", got)
		}
	})
}

// TestNewsIsNotVisibleBeforeTheNextPark delivers a signal while the code runs.
func TestNewsIsNotVisibleBeforeTheNextPark(t *testing.T) {
	var running, goOn chan struct{}

	bubble(t, func(e *engine, x replay.Ctx) (string, error) {
		if err := x.Sleep(time.Hour); err != nil {
			return "", err
		}
		running <- struct{}{}
		<-goOn
		_, early := x.TryReceive("s")
		if err := x.Sleep(time.Hour); err != nil {
			return "", err
		}
		_, late := x.TryReceive("s")
		return say(early, late), nil
	}, func(e *engine) {
		running, goOn = make(chan struct{}, 1), make(chan struct{})
		e.settle()
		for id := range e.timers {
			e.fire(id)
		}
		e.deliver(1)
		<-running
		e.signal("s", "1")
		e.deliver(1)
		close(goOn)
		synctest.Wait()
		e.settle()
		e.fireAll()
		e.wantClosed(t, model.Completed, "false true")
	})
}

// TestNewsBetweenOutcomeAndTurn delivers a signal after the code has run ahead of an outcome, and
// before the worker reports that outcome.
func TestNewsBetweenOutcomeAndTurn(t *testing.T) {
	var running, goOn chan struct{}
	bubble(t, func(e *engine, x replay.Ctx) (string, error) {
		if _, err := e.step(x, "a"); err != nil {
			return "", err
		}
		running <- struct{}{}
		<-goOn
		_, seen := x.TryReceive("s")
		_, err := e.step(x, "b")
		return say(seen), err
	}, func(e *engine) {
		running, goOn = make(chan struct{}, 2), make(chan struct{})
		e.letGo(0)
		<-running
		e.signal("s", "1")
		e.deliver(1)
		close(goOn)
		synctest.Wait()
		e.settle()
		e.wantClosed(t, model.Completed, "true")
		if e.diverged != 1 {
			t.Errorf("diverged %d times", e.diverged)
		}

		for id, n := range e.ran {
			if n > 1 {
				t.Errorf("step %s ran %d times", id, n)
			}
		}
	})
}

func TestCancelRunsCompensationsInReverse(t *testing.T) {
	var log []string

	bubble(t, func(e *engine, x replay.Ctx) (string, error) {
		log = nil
		defer func() { log = append(log, "plain") }()
		for i := range 3 {
			x.Cleanup(i != 1, func(y replay.Ctx) error {
				_, err := e.step(y, fmt.Sprintf("undo %d", i))
				log = append(log, fmt.Sprintf("undo %d %v", i, err))
				return err
			})
		}
		d := x.Detached()
		err := x.Sleep(time.Hour)
		log = append(log, fmt.Sprintf("%v, detached %v", err, d.Err()))
		return "", fmt.Errorf("giving up: %w", err)
	}, func(e *engine) {
		e.settle()
		e.inject(model.Event{Kind: model.EventCancelRequest, Failure: &model.Failure{Message: "enough"}})
		e.settle()
		e.wantClosed(t, model.Canceled, "")
		if got, want := strings.Join(log, "; "), "canceled, detached <nil>; plain; undo 2 <nil>; undo 1 <nil>; undo 0 <nil>"; got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
		if e.end.Failure.Kind != model.FailureCanceled {
			t.Errorf("failure %+v", e.end.Failure)
		}
	})
}

func TestCleanupOnSuccessAndItsError(t *testing.T) {
	var log []string
	bubble(t, func(e *engine, x replay.Ctx) (string, error) {
		log = nil
		x.Cleanup(true, func(replay.Ctx) error { log = append(log, "failure"); return nil })
		x.Cleanup(false, func(replay.Ctx) error { log = append(log, "fails"); return errors.New("clean-up broke") })
		x.Cleanup(true, func(replay.Ctx) error { log = append(log, "never"); return nil })
		return "fine", nil
	}, func(e *engine) {
		e.settle()
		e.wantClosed(t, model.Failed, "")
		if got := strings.Join(log, ","); got != "fails,failure" {
			t.Errorf("ran %s", got)
		}
	})
}

func TestScopeTimerExistsOnlyWhileSomethingWaits(t *testing.T) {
	bubble(t, func(e *engine, x replay.Ctx) (string, error) {
		y := x.WithTimeout(time.Minute)
		if _, err := e.step(y, "a"); err != nil {
			return "", err
		}
		if _, err := e.step(y, "b"); err != nil {
			return "", err
		}
		if err := x.Get(x.Next("go")); err != nil {
			return "", err
		}
		_, err := e.step(y, "c")
		return say(err), nil
	}, func(e *engine) {
		e.applyAll()
		if len(e.timers) != 1 {
			t.Errorf("parked under the scope: timers %v", e.timers)
		}
		e.settle()
		if len(e.timers) != 0 {
			t.Errorf("nothing waits under the scope: timers %v", e.timers)
		}
		e.signal("go", "1")
		e.deliver(int(e.last()) - e.told)
		e.applyAll()
		e.fireAll() // while the body of c is blocked
		e.wantClosed(t, model.Completed, "timeout")
		if !strings.HasSuffix(e.kinds(), "timer_fired, withdrawn c") {
			t.Errorf("history %s", e.kinds())
		}
	})
}

func TestRootEndsAll(t *testing.T) {
	var after bool
	bubble(t, func(e *engine, x replay.Ctx) (string, error) {
		for range 3 {
			x.Go(func(y replay.Ctx) (any, error) {
				// the durable call ends the deferred function
				defer func() { _ = y.Sleep(time.Hour); after = true }()
				_, err := e.step(y, "never awaited")
				after = true
				return nil, err
			})
		}
		return "root", x.Get(x.Next("go"))
	}, func(e *engine) {
		e.signal("go", "1")
		e.deliver(1)
		e.applyAll()
		e.wantClosed(t, model.Completed, "root")
		if after {
			t.Error("code behind a parking call ran")
		}
	})
}

func TestDeadlockIsSaid(t *testing.T) {
	bubble(t, func(e *engine, x replay.Ctx) (string, error) {
		var b *replay.Future
		a := x.Go(func(y replay.Ctx) (any, error) { return nil, y.Get(b) })
		b = x.Go(func(y replay.Ctx) (any, error) { return nil, y.Get(a) })
		return "", x.Get(a)
	}, func(e *engine) {
		e.settle()
		if len(e.waits) != 1 || e.waits[0].Code != model.WaitNothing {
			t.Errorf("waits %v", e.waits)
		}
	})
}

func TestPromiseIsSettledOnce(t *testing.T) {
	bubble(t, func(e *engine, x replay.Ctx) (string, error) {
		f, g := x.Promise("p"), x.Promise("p")
		if err := x.Cancel(f); err != nil {
			return "", err
		}
		err := x.Get(g)
		h := x.Promise("p")
		return say(x.Get(f), err, string(g.Payload().Data), x.Get(h), string(h.Payload().Data), x.Get(x.Promise("q"))), nil
	}, func(e *engine) {
		e.settle()
		e.inject(model.Event{Kind: model.EventPromiseSettled, Name: "p", Output: payload("1")})
		e.inject(model.Event{Kind: model.EventPromiseSettled, Name: "p", Output: payload("2")})
		e.inject(model.Event{Kind: model.EventPromiseSettled, Name: "q", Failure: &model.Failure{Message: "rejected"}})
		e.settle()
		e.wantClosed(t, model.Completed, "canceled <nil> 1 <nil> 1 rejected")
	})
}
