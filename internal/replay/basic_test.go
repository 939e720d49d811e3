package replay_test

import (
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bubble runs a test with its own clock and checks the engine at the end.
func bubble(t *testing.T, code func(e *engine, x replay.Ctx) (string, error), test func(e *engine)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var e *engine
		e = newEngine(func(x replay.Ctx, _ model.Payload) (model.Payload, error) {
			out, err := code(e, x)
			return payload(out), err
		})
		e.activate(-1)
		test(e)
		e.stop()
		if err := e.err(); err != nil {
			t.Errorf("%v\n%s", err, dump(e.events))
		}
	})
}

func (e *engine) wantClosed(t *testing.T, status model.Status, out string) {
	t.Helper()
	if e.end == nil {
		t.Fatalf("the run is open: waits %v, blocked %v\n%s", e.waits, e.blocked, dump(e.events))
	}
	if e.end.Status != status || string(e.end.Output.Data) != out {
		t.Errorf("closed as %s with %q, want %s with %q (failure %v)", e.end.Status, e.end.Output.Data, status, out, e.end.Failure)
	}
}

func TestThreeStepsCostThreeCommits(t *testing.T) {
	bubble(t, func(e *engine, x replay.Ctx) (string, error) {
		for _, name := range []string{"a", "b", "c"} {
			if _, err := e.step(x, name); err != nil {
				return "", err
			}
		}
		return "done", nil
	}, func(e *engine) {
		e.settle()
		e.wantClosed(t, model.Completed, "done")
		if e.commits != 3 {
			t.Errorf("%d commits, want 3", e.commits)
		}
	})
}

func TestSleepAndSignal(t *testing.T) {
	bubble(t, func(e *engine, x replay.Ctx) (string, error) {
		if err := x.Sleep(time.Hour); err != nil {
			return "", err
		}
		f := x.Next("go")
		if err := x.Get(f); err != nil {
			return "", err
		}
		return string(f.Payload().Data), nil
	}, func(e *engine) {
		e.settle()
		if len(e.timers) != 1 || e.waits[0].Code != model.WaitTimer {
			t.Errorf("timers %v, waits %v", e.timers, e.waits)
		}

		for id, due := range e.timers {
			if want := e.start.At.Add(time.Hour); due != want {
				t.Errorf("due %s, want %s", due, want)
			}
			e.fire(id)
		}

		e.settle()
		if e.waits[0] != (model.Reason{Code: model.WaitSignal, Name: "go"}) {
			t.Errorf("waits %v", e.waits)
		}
		e.signal("go", "v")
		e.settle()
		e.wantClosed(t, model.Completed, "v")
	})
}

// pass lets time pass, and then waits until everything that was due has happened.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
