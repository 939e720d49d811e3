package replay_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
)

// TestPreview checks that code continues with events that are not committed, that it starts no step
// and answers no query because of them, and that it does both when they are committed.
func TestPreview(t *testing.T) {
	bubble(t, func(e *engine, x replay.Ctx) (string, error) {
		x.HandleQuery("q", func(model.Payload) (model.Payload, error) { return payload("answer"), nil })
		if err := x.Sleep(time.Hour); err != nil {
			return "", err
		}
		if err := x.Sleep(time.Minute); err != nil {
			return "", err
		}
		return e.step(x, "a")
	}, func(e *engine) {
		for range 2 {
			e.settle()
			for id := range e.timers {
				e.fire(id)
			}
			if !e.mayPreview() {
				t.Fatal("the worker may get no preview")
			}
			e.preview(1)
			if len(e.reports) != 1 || e.reports[0].Seen != e.last() {
				t.Fatalf("reports %+v, want a turn that has seen event %d", e.reports, e.last())
			}
		}

		// The code has reached the step. The turn says so.
		if w := e.reports[0].Waits; len(w) != 1 || w[0].Code != model.WaitStep || e.reports[0].Running {
			t.Errorf("the turn waits for %v, and says that a body runs: %v", w, e.reports[0].Running)
		}
		e.w.Query(e.start.Run, e.gen, model.Query{ID: 7, Name: "q"})
		e.apply()
		if len(e.bodies) != 0 || len(e.answers) != 0 {
			t.Fatalf("%d bodies, %d answers before the commit", len(e.bodies), len(e.answers))
		}
		e.confirm(1)
		if len(e.bodies) != 1 {
			t.Fatal("the step does not begin after the commit")
		}
		e.settle()
		synctest.Wait()
		if got := string(e.answers[7].out.Data); got != "answer" {
			t.Errorf("the query is answered with %q", got)
		}
		e.wantClosed(t, model.Completed, "out-a")
	})
}

// TestPreviewOfTheEnd checks that a run may end because of events that are not committed. If the
// engine takes it back, the worker replays it.
func TestPreviewOfTheEnd(t *testing.T) {
	bubble(t, func(_ *engine, x replay.Ctx) (string, error) {
		return "slept", x.Sleep(time.Hour)
	}, func(e *engine) {
		e.settle()
		for id := range e.timers {
			e.fire(id)
		}
		e.preview(1)
		if len(e.reports) != 1 || e.reports[0].Close == nil {
			t.Fatalf("reports %+v, want the end", e.reports)
		}

		// The store refuses the event, so the engine drops the turn.
		e.events = e.events[:len(e.events)-1]
		e.w.Evict(e.start.Run, e.gen, "refused")
		synctest.Wait()
		e.reactivate(-1)
		e.settle()
		if e.end != nil {
			t.Fatal("the run has ended without its timer")
		}
		for id := range e.timers {
			e.fire(id)
		}
		e.settle()
		e.wantClosed(t, model.Completed, "slept")
	})
}

// TestPreviewsAreDrawn checks that the random programs of this package get previews.
func TestPreviewsAreDrawn(t *testing.T) {
	previews := 0
	for n := range 40 {
		synctest.Test(t, func(t *testing.T) {
			ops := []op{{Kind: "recv"}, {Kind: "child"}, {Kind: "step"}, {Kind: "sleep", N: 1}, {Kind: "step"}}
			s := newSim(ops, []byte{byte(n), byte(3 * n), byte(5 * n), byte(7 * n), byte(n), 1, 2, byte(n), 3, byte(n), 2, 1, 3, 2}, false)
			if err := s.run(); err != nil {
				t.Errorf("choices %d: %v\n%s", n, err, dump(s.e.events))
			}
			previews += s.e.previews
		})
	}
	if previews == 0 {
		t.Error("no program got a preview")
	}
}

// The engine keeps a turn until its batch is committed, and may apply it again. So the worker does
// not use the memory of a turn again because of a preview.
func TestPreviewLeavesTheTurnAlone(t *testing.T) {
	bubble(t, func(e *engine, x replay.Ctx) (string, error) {
		f := x.Timer(time.Hour)
		if _, err := e.step(x, "a"); err != nil {
			return "", err
		}
		if err := x.Wait([]*replay.Future{f}); err != nil {
			return "", err
		}
		return "", x.Sleep(time.Minute)
	}, func(e *engine) {
		for len(e.reports) > 0 {
			e.apply()
		}
		e.letGo(0)
		if len(e.reports) != 1 {
			t.Fatalf("%d reports", len(e.reports))
		}
		turn := e.reports[0]
		e.apply()
		for id := range e.timers {
			e.fire(id)
		}
		e.preview(len(e.events) - e.told)
		if k := turn.Commands[0].Event.Kind; k != model.EventStepCompleted {
			t.Errorf("the turn that is not committed records %s now", k)
		}
		e.settle()
		for id := range e.timers {
			e.fire(id)
		}
		e.settle()
		e.wantClosed(t, model.Completed, "")
	})
}

// slowly is a session that takes turns with an outcome late.
type slowly struct {
	*engine
	free chan struct{}
}

func (s *slowly) Report(ctx context.Context, t model.Turn) error {
	if len(t.Commands) > 0 && t.Commands[0].Event.Kind == model.EventStepCompleted {
		<-s.free
	}
	return s.engine.Report(ctx, t)
}

// A turn says that a step runs as long as the outcome of a step is not reported. Otherwise the
// engine would believe that it can take the run away without repeating a step.
func TestTurnBesideAnUnreportedOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e *engine
		e = newEngine(func(x replay.Ctx, _ model.Payload) (model.Payload, error) {
			x.StepFuture(e.stepOf("s0"))
			x.StepFuture(e.stepOf("s1"))
			if err := x.Sleep(time.Hour); err != nil {
				return model.Payload{}, err
			}
			return model.Payload{}, x.Sleep(time.Minute)
		})
		e.w = replay.NewWorker(replay.Config{Code: map[string]replay.Code{"wf": e.code}})
		s := &slowly{e, make(chan struct{})}
		e.w.Serve(s)
		e.reactivate(-1)
		for len(e.reports) > 0 {
			e.apply()
		}
		e.letGo(0)
		e.letGo(0)
		for id := range e.timers {
			e.fire(id)
		}
		e.deliver(1)
		if len(e.reports) != 1 || !e.reports[0].Running {
			t.Errorf("reports %+v, want a turn that says that a step runs", e.reports)
		}
		close(s.free)
		synctest.Wait()
		e.settle()
		e.stop()
	})
}

// A preview may make the code give up on a step that stores its outcome in a database. The worker
// settles that step after the commit, and says before that a step is about to run.
func TestHurriedBecauseOfAPreview(t *testing.T) {
	tries := 0
	bubble(t, func(e *engine, x replay.Ctx) (string, error) {
		s := e.stepOf("a", failingStep(1, false))
		s.Policy = &replay.Policy{}
		s.Settle = func(_ context.Context, f *model.Failure) (model.Payload, *model.Failure, error) {
			tries++
			return model.Payload{}, f, nil
		}
		_, err := x.WithTimeout(time.Hour).Step(s)
		return "", err
	}, func(e *engine) {
		e.letGo(0)
		e.settle()
		for id := range e.timers {
			e.fire(id)
		}
		e.preview(1)
		for len(e.reports) > 0 {
			e.apply()
		}

		if w := e.waits; tries != 0 || len(w) == 0 || w[0].Code != model.WaitStep {
			t.Errorf("%d tries before the commit, and the run waits for %v, want a step", tries, w)
		}
		e.confirm(1)
		if tries != 1 {
			t.Errorf("%d tries after the commit", tries)
		}
		e.settle()
	})
}
