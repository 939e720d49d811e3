package replay_test

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
)

// reactions are the things that random event-driven code may do after an event.
var reactions = []string{"step", "step", "step", "fails", "retried", "timer", "timer", "child", "withdraw", "nothing", "now"}

// genMachine generates a program that reacts to one event after the other.
func genMachine() *rapid.Generator[[]op] {
	reaction := rapid.Custom(func(t *rapid.T) op {
		return op{Kind: rapid.SampledFrom(reactions).Draw(t, "kind"), N: rapid.IntRange(0, 3).Draw(t, "n"), M: rapid.IntRange(1, 3).Draw(t, "m")}
	})
	return rapid.Custom(func(t *rapid.T) []op {
		return []op{{
			Kind: "machine", N: rapid.IntRange(0, 3).Draw(t, "n"), M: rapid.IntRange(1, 12).Draw(t, "events"),
			Body: rapid.SliceOfN(reaction, 1, 10).Draw(t, "reactions"),
		}}
	})
}

// machine runs random event-driven code: it begins N things, and after each of M events it does
// what the next reaction says.
func (p *interp) machine(x replay.Ctx, me string, o op) error {
	b := x.Inbox()
	var pending []*replay.Future
	next := 0

	react := func() {
		r := o.Body[next%len(o.Body)]
		next++
		p.log(me, "does %s", r)

		switch r.Kind {
		case "step", "fails", "retried":
			s := p.stepOf(r)
			if r.M > 1 { // repeat a key, sometimes while an earlier timer is pending
				s.Key, s.Keyed = "k", true
			}
			pending = append(pending, b.Step(s))
		case "timer":
			pending = append(pending, b.Timer(fmt.Sprint("t", r.N%2), time.Duration(r.M)*time.Minute, 0))
		case "child":
			pending = append(pending, b.Child(replay.Child{Workflow: "kid", Step: fmt.Sprint("c", r.N%2), Input: payload(`"` + fmt.Sprint(r.M) + `"`)}))
		case "withdraw":
			if len(pending) > 0 {
				f := pending[r.N%len(pending)]
				b.Withdraw(f)
				pending = slices.DeleteFunc(pending, func(g *replay.Future) bool { return g == f })
			}
		case "now":
			p.log(me, "now %v", x.Now())
		}
	}
	for range o.N {
		react()
	}

	waits := x
	for range o.M {
		f, err := b.Next(waits)
		if err != nil {
			p.log(me, "cancelled: %v, %q", err, x.CancelReason())
			waits = x.Detached()
			react()
			continue
		}
		i := slices.Index(pending, f)
		p.log(me, "hears of %d %q: %q %v", i, f.Name(), f.Payload().Data, f.Err())
		if i >= 0 {
			pending = slices.Delete(pending, i, i+1)
		}
		react()
	}

	return nil
}

// TestLiveMachineEqualsReplay runs random event-driven programs against random schedules, with
// crashes and evictions.
func TestLiveMachineEqualsReplay(t *testing.T) {
	for _, faults := range []bool{false, true} {
		t.Run(fmt.Sprintf("faults=%v", faults), func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				ops := genMachine().Draw(rt, "program")
				choices := rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(rt, "choices")
				if s, err := simulate(t, ops, choices, faults, nil); err != nil {
					rt.Fatalf("%v\n\n%s\n\nhistory:\n%s", err, text(ops), dump(s.e.events))
				}
			})
		})
	}
}

// hear returns the next event as text.
func hear(b *replay.Inbox, x replay.Ctx) string {
	f, err := b.Next(x)
	switch {
	case err != nil:
		return "ended: " + err.Error() + " " + x.CancelReason()
	case f.Err() != nil:
		return fmt.Sprintf("%v failed: %v", f.Handle, f.Err())
	case f.Name() != "":
		return "signal " + f.Name() + " " + string(f.Payload().Data)
	}
	return fmt.Sprintf("%v %s", f.Handle, f.Payload().Data)
}

func handle(f *replay.Future, name string) *replay.Future {
	f.Handle = name
	return f
}

func TestInboxIsInTheOrderOfTheHistory(t *testing.T) {
	bubble(t, func(e *engine, x replay.Ctx) (string, error) {
		if err := x.Sleep(time.Hour); err != nil { // signals arrive before the inbox is there
			return "", err
		}
		b := x.Inbox()
		handle(b.Step(e.stepOf("a")), "a")
		handle(b.Step(e.stepOf("b", failingStep(9, true))), "b")
		handle(b.Timer("t", time.Hour, 0), "t")
		handle(b.Child(replay.Child{Workflow: "kid", Step: "c", Input: payload("1")}), "c")
		handle(b.Failed(replay.ErrTimeout), "wrong")
		var heard []string
		for range 8 {
			heard = append(heard, hear(b, x))
		}
		return strings.Join(heard, "; "), nil
	}, func(e *engine) {
		e.signal("y", "1")
		e.signal("x", "2")
		e.applyAll()
		e.fireTimer(t)
		e.applyAll()
		e.deliver(int(e.last()) - e.told)
		e.letGoNamed(t, "b")
		e.applyAll()
		e.signal("x", "3")
		for id := range e.children {
			e.closeChild(id, "kid")
		}
		e.fireTimer(t)
		e.letGoNamed(t, "a")
		e.applyAll()
		e.settle()
		e.wantClosed(t, model.Completed, "signal y 1; signal x 2; wrong failed: timeout; b failed: boom b; signal x 3; c kid; t ; a out-a")
	})
}

// fireTimer fires the one open timer and delivers nothing yet.
func (e *engine) fireTimer(t *testing.T) {
	t.Helper()
	for id := range e.timers {
		e.fire(id)
		return
	}
	t.Fatal("no timer is open")
}

func TestCancelRequestEndsTheWaitOnly(t *testing.T) {
	bubble(t, func(e *engine, x replay.Ctx) (string, error) {
		b := x.Inbox()
		handle(b.Step(e.stepOf("a")), "a")
		heard := []string{hear(b, x)}
		y := x.Detached()
		handle(b.Step(e.stepOf("undo")), "undo")
		heard = append(heard, hear(b, y), hear(b, y))
		return strings.Join(heard, "; "), nil
	}, func(e *engine) {
		e.inject(model.Event{Kind: model.EventCancelRequest, Failure: &model.Failure{Message: "why"}})
		e.settle()
		e.wantClosed(t, model.Completed, "ended: canceled why; a out-a; undo out-undo")
	})
}

func TestInboxSaysWhatItWaitsFor(t *testing.T) {
	bubble(t, func(e *engine, x replay.Ctx) (string, error) {
		b := x.Inbox()
		for i := range 20 {
			b.Timer(fmt.Sprint(i), time.Hour, 0)
		}
		late := b.Step(e.stepOf("late"))
		hear(b, x)
		b.Withdraw(late)
		hear(b, x)
		return "", nil
	}, func(e *engine) {
		running := func() bool {
			return slices.ContainsFunc(e.waits, func(r model.Reason) bool { return r.Code == model.WaitStep && r.Name == "late" })
		}
		e.applyAll()
		if len(e.waits) != 16 || !running() {
			t.Errorf("waits %v, want 16 and the running step among them", e.waits)
		}
		e.signal("s", "1")
		e.deliver(1)
		e.applyAll()
		if len(e.waits) != 16 || running() {
			t.Errorf("waits %v, want 16 and no withdrawn step among them", e.waits)
		}
		e.signal("s", "2")
		e.settle()
	})
}

// processorTime returns the CPU time that this process has used so far. Unlike the clock, it does
// not count the work of other processes.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// A wait costs the same, however many futures are pending. So ten times as many futures take ten
// times as long, not a hundred times as long.
func TestInboxOfThousands(t *testing.T) {
	hearOf := func(n int) time.Duration {
		began := processorTime(t)
		synctest.Test(t, func(t *testing.T) {
			e := newEngine(func(x replay.Ctx, _ model.Payload) (model.Payload, error) {
				b := x.Inbox()
				for i := range n {
					b.Child(replay.Child{Workflow: "kid", Step: fmt.Sprint(i), Input: payload("1")})
				}
				for range n {
					if _, err := b.Next(x); err != nil {
						return model.Payload{}, err
					}
				}
				return payload("done"), nil
			})

			e.activate(-1)
			e.applyAll()
			for i := range n {
				e.append(model.Event{Kind: model.EventChildClosed, ID: e.events[i].ID, Status: model.Completed, Output: payload("kid")})
			}
			e.deliver(2 * n)
			e.applyAll()
			e.wantClosed(t, model.Completed, "done")
			e.stop()
		})

		return processorTime(t) - began
	}

	fastest := func(n int) time.Duration { return min(hearOf(n), hearOf(n), hearOf(n)) }
	small, large := fastest(500), fastest(5000)
	t.Logf("500 take %s, 5000 take %s", small, large)
	if large > 30*small {
		t.Errorf("5000 take %s, which is more than 30 times the %s of 500", large, small)
	}
}
