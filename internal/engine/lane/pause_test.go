package lane_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// A waiting run leaves its worker as soon as it is paused. Whatever arrives, no worker gets the run
// until an operator resumes it.
func TestPauseOfIdleRun(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a := key("a")
	r.park(a)
	r.order(model.MessagePause, a, "pause")
	r.flush()
	r.wantSilence("pause")
	r.settle()
	r.wantAnswer("pause", "")
	if r.holder(a) != 0 || !slices.Contains(r.evictions(), "is paused: because") {
		t.Errorf("held by %d, evicted for %q", r.holder(a), r.evictions())
	}

	r.order(model.MessagePause, a, "again")
	r.signal(a, "s", "signal")
	r.settle()
	r.wantAnswer("again", "")
	r.wantEvents(a, "paused", "signal_received s")
	if row := r.current(a); !row.Parked || len(row.Waits) != 1 || row.Waits[0].Code != model.WaitPaused {
		t.Errorf("stored as parked %v, %v", row.Parked, row.Waits)
	}
	r.wantEmpty()

	r.order(model.MessageResume, a, "resume")
	r.order(model.MessageResume, a, "resume again")
	r.settle()
	r.wantAnswer("resume again", "")
	if r.holder(a) != 1 || r.current(a).Parked {
		t.Errorf("after the resume held by %d, parked %v", r.holder(a), r.current(a).Parked)
	}
	r.wantEvents(a, "paused", "signal_received s", "resumed")
}

// A worker that runs a step may finish the step. The lane records the report, sends the worker no
// further events, and then takes the run from it.
func TestPauseOfBusyRun(t *testing.T) {
	t.Parallel()
	for _, resumed := range []bool{false, true} {
		r := newRig(t)
		r.join(1)
		a := key("a")
		run := r.startRun(a)
		r.turn(a, model.Turn{Running: true, Waits: []model.Reason{{Code: model.WaitStep}}})
		r.settle()
		r.order(model.MessagePause, a, "pause")
		r.settle()
		r.signal(a, "s", "signal")
		r.settle()
		if r.holder(a) != 1 || len(r.held[run].events) != 0 {
			t.Fatalf("held by %d, told %v", r.holder(a), r.held[run].events)
		}

		want := []string{"paused", "signal_received s"}
		if resumed { // while the worker still holds the run
			r.order(model.MessageResume, a, "resume")
			r.settle()
			want = append(want, "resumed")
		}

		gen := r.held[run].gen
		r.turn(a, steps("slow"))
		r.settle()
		want = append(want, "step_completed slow")
		r.wantEvents(a, want...)

		if !resumed {
			r.wantHolder(a, 0)
			r.wantEmpty()
			r.order(model.MessageResume, a, "resume")
			r.settle()
			want = append(want, "resumed")
		}

		r.wantEvents(a, want...)
		if r.holder(a) != 1 || r.held[run].gen == gen || len(r.held[run].events) != len(want) {
			t.Errorf("held by %d with %d events, want %d", r.holder(a), len(r.held[run].events), len(want))
		}

		for _, why := range r.evictions() {
			if strings.Contains(why, "leaves") {
				t.Errorf("it was taken back because %q", why)
			}
		}
	}
}

// A pause is in the same batch as an event that the worker waits for. The worker gets neither.
func TestPauseBesideAnEvent(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a := key("a")
	run := r.park(a)
	r.signal(a, "s", "signal")
	r.order(model.MessagePause, a, "pause")
	r.settle()
	r.wantEvents(a, "signal_received s", "paused")
	if h := r.held[run]; h != nil {
		t.Errorf("it is held, with events %v", h.events)
	}
}

// A resume comes before the pause is stored. The run leaves its worker, and the lane hands it over
// again.
func TestPauseAndResumeInOneBatch(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a := key("a")
	run := r.park(a)
	gen := r.held[run].gen
	r.order(model.MessagePause, a, "pause")
	r.order(model.MessageResume, a, "resume")
	r.settle()
	r.wantEvents(a, "paused", "resumed")
	r.wantHolder(a, 1)
	if h := r.held[run]; h.gen == gen || len(h.events) != 2 {
		t.Errorf("held in generation %d after %d, with %v", h.gen, gen, h.events)
	}
}

// The store refuses a pause, or a row of another run in the same batch.
func TestPauseWithPoison(t *testing.T) {
	t.Parallel()
	a, b := key("a"), key("b")
	for _, own := range []bool{false, true} {
		r := newRig(t)
		r.join(1)
		r.park(a)
		r.startRun(b)
		r.refuse = poison("bad")

		if own {
			r.refuse = func(batch *store.Batch) error {
				if slices.ContainsFunc(batch.Events, func(e store.EventRow) bool { return e.Event.Kind == model.EventPaused }) {
					return store.Errorf(store.Refused, "commit", "no pauses today")
				}
				return nil
			}
		}

		r.order(model.MessagePause, a, "pause")
		r.turn(b, steps("bad"))
		r.settle()

		if own {
			r.wantAnswer("pause", "blocked")
			r.refuse = nil
			r.pass(2 * time.Minute)
			if r.holder(a) == 0 && !r.current(a).Parked {
				t.Error("no worker holds a run that is not paused")
			}
			r.wantEvents(b, "step_completed bad")
			continue
		}

		r.wantAnswer("pause", "")
		r.wantEvents(a, "paused")
		r.wantHolder(a, 0)
	}
}

// A busy run is paused while its last turn is in flight. The store refuses the batch with that turn
// because of another run. The worker has the run again, and gets no events while the run is paused.
func TestPauseWhileATurnIsRefused(t *testing.T) {
	t.Parallel()
	a, b := key("a"), key("b")
	for name, prepare := range map[string]func(r *rig){
		"the pause is on its way": func(r *rig) { r.order(model.MessagePause, a, "pause") },
		"the pause is stored": func(r *rig) {
			r.order(model.MessagePause, a, "pause")
			r.settle()
			r.signal(a, "s", "signal")
		},
		"the resume is on its way": func(r *rig) {
			r.order(model.MessagePause, a, "pause")
			r.settle()
			r.order(model.MessageResume, a, "resume")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.join(1)
			r.runsStep(a)
			r.startRun(b)
			prepare(r)
			r.flush()

			r.turn(a, model.Turn{Close: done()})
			r.turn(b, steps("bad"))
			r.refuse = poison("bad")
			r.settle()
			r.wantStatus(a, model.Completed)
			r.wantHolder(a, 0)
		})
	}
}

// After a running step, the code of a paused run continues as new. The next run is paused too.
func TestContinueWhilePaused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a := key("a")
	r.runsStep(a)
	r.order(model.MessagePause, a, "pause")
	r.settle()
	r.turn(a, model.Turn{Close: &model.Close{Status: model.Continued}})
	r.settle()
	r.wantEvents(a, "paused")
	r.wantHolder(a, 0)
	if why, ok := r.l.Explain(a); ok && why[0].Code != model.WaitPaused {
		t.Errorf("it is explained as %v", why)
	}
	r.wantEmpty()
	r.restart()
	r.join(1)
	r.settle()
	r.wantEmpty()
	r.order(model.MessageResume, a, "resume")
	r.settle()
	r.wantHolder(a, 1)
}

// Timers of a paused run fire, and back-offs end. The code learns this after the resume.
func TestTimersWhilePaused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a := key("a")
	r.startRun(a)
	failed := model.Command{Kind: model.CommandRetry, Delay: 2 * time.Second, Event: model.Event{ID: "try", Attempt: 1}}
	r.turn(a, model.Turn{Commands: []model.Command{timer("nap", r.now.Add(time.Second)), failed}, Waits: []model.Reason{{Code: model.WaitTimer}}})
	r.settle()
	r.turn(a, model.Turn{Waits: []model.Reason{{Code: model.WaitTimer}}})
	r.settle()
	r.order(model.MessagePause, a, "pause")
	r.settle()
	r.pass(time.Minute)
	r.wantEvents(a, "attempt_failed try", "paused", "timer_fired nap")
	r.order(model.MessageResume, a, "resume")
	r.settle()
	r.wantHolder(a, 1)
	r.turn(a, steps("try"))
	r.settle()
	r.wantEvents(a, "attempt_failed try", "paused", "timer_fired nap", "resumed", "step_completed try")
}

// A worker gives up a run at the moment when a back-off ends and the run is paused. The worker does
// not repeat the step, and the run leaves the worker.
func TestPauseOfAReleasedRunWhoseBackOffEnds(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a := key("a")
	run := r.startRun(a)
	waits := []model.Reason{{Code: model.WaitRetry, Name: "try"}}
	failed := model.Command{Kind: model.CommandRetry, Delay: time.Second, Event: model.Event{ID: "try", Attempt: 1}}
	r.turn(a, model.Turn{Commands: []model.Command{failed}, Waits: waits})
	r.settle()
	r.turn(a, model.Turn{Waits: waits}) // the worker has seen that event
	r.settle()
	r.pass(time.Second)
	if h := r.held[run]; len(h.retry) != 1 {
		t.Fatalf("told to repeat %q", h.retry)
	}

	r.order(model.MessagePause, a, "pause")
	r.release(a, "try") // was in flight when the worker got the event
	r.settle()
	r.wantHolder(a, 0)
	r.order(model.MessageResume, a, "resume")
	r.settle()
	r.wantHolder(a, 1)
	r.turn(a, steps("try"))
	r.settle()
	r.wantEvents(a, "attempt_failed try", "paused", "resumed", "step_completed try")
}

// The next owner of a paused run gives it to no worker.
func TestRecoveryOfPausedRun(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(r *rig, a model.Address){
		"held":    func(r *rig, a model.Address) { r.join(1); r.park(a) },
		"busy":    func(r *rig, a model.Address) { r.join(1); r.runsStep(a) },
		"resting": func(r *rig, a model.Address) { r.join(1); r.startResting(a) },
		"new":     func(r *rig, a model.Address) { r.start(a, "start") },
		"alone":   func(r *rig, a model.Address) { r.startRun(a) },
		"blocked": func(r *rig, a model.Address) { r.join(1); r.startBlocked(a) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			a := key("a")
			prepare(r, a)
			r.order(model.MessagePause, a, "pause")
			r.settle()
			r.restart()

			r.join(1)
			r.settle()
			r.signal(a, "s", "signal")
			r.settle()
			r.wantAnswer("signal", "")
			r.wantHolder(a, 0)
			r.wantEmpty()

			r.order(model.MessageResume, a, "resume")
			r.settle()
			r.wantHolder(a, 1)
		})
	}
}

// A worker joins while a run that had no worker is paused. The resume hands over the run.
func TestResumeAfterJoin(t *testing.T) {
	t.Parallel()
	for _, blocked := range []bool{false, true} {
		r := newRig(t)
		a := key("a")
		if blocked {
			r.join(1)
		}
		r.startRun(a)

		if blocked {
			r.block(a)
			r.settle()
		}

		r.order(model.MessagePause, a, "pause")
		r.settle()
		if why, ok := r.l.Explain(a); !ok || why[0].Code != model.WaitPaused {
			t.Errorf("explained as %v", why)
		}
		r.join(2)
		r.settle()
		r.wantHolder(a, 0)
		r.order(model.MessageResume, a, "resume")
		r.settle()
		if r.holder(a) == 0 {
			t.Error("after the resume no worker holds it")
		}
	}
}

// The lane takes a terminated run from its worker once the end of the run is durable. No worker
// gets the run again.
func TestTerminate(t *testing.T) {
	t.Parallel()
	a := key("a")
	for name, prepare := range map[string]func(r *rig){
		"held":         func(r *rig) { r.join(1); r.park(a) },
		"busy":         func(r *rig) { r.join(1); r.runsStep(a) },
		"resting":      func(r *rig) { r.join(1); r.startResting(a) },
		"new":          func(r *rig) { r.join(1); r.start(a, "start") },
		"unserved":     func(r *rig) { r.startRun(a) },
		"on its way":   func(r *rig) { r.join(1); r.startResting(a); r.signal(a, "s", "signal"); r.flush() },
		"being let go": func(r *rig) { r.join(1); r.park(a); r.release(a, "s") },
		"paused": func(r *rig) {
			r.join(1)
			r.park(a)
			r.order(model.MessagePause, a, "pause")
			r.settle()
		},
		"blocked": func(r *rig) { r.join(1); r.startBlocked(a) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			prepare(r)
			if _, err := r.l.Await(a, model.RunID{}, "end"); err != nil {
				t.Fatal(err)
			}
			r.order(model.MessageTerminate, a, "terminate")
			r.flush()
			r.wantSilence("terminate", "end")
			r.settle()
			r.wantAnswer("terminate", "")
			if res := r.answers["end"].Result; res == nil || res.Outcome.Status != model.Terminated || !strings.Contains(res.Outcome.Failure.Message, "because") {
				t.Errorf("the end is told as %+v", r.answers["end"])
			}
			if row := r.current(a); row.Outcome.Status != model.Terminated || r.holder(a) != 0 {
				t.Errorf("%s, held by %d", row.Outcome.Status, r.holder(a))
			}
			r.wantEmpty()

			r.join(2)
			r.settle()
			r.order(model.MessageTerminate, a, "again")
			r.settle()
			r.wantAnswer("again", "conflict")
			r.wantEmpty()
		})
	}
}

// A worker that does not know that the run has ended reports a turn, which has no effect.
func TestTurnAfterTerminate(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a := key("a")
	r.startRun(a)
	r.order(model.MessageTerminate, a, "terminate")
	r.turn(a, steps("late"))
	r.flush()
	if r.holder(a) != 0 {
		r.turn(a, steps("later"))
	}
	r.settle()
	r.wantEvents(a)
	r.wantEmpty()
}

// If the store refuses a terminate, the worker keeps the run.
func TestTerminateWithPoison(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a, b := key("a"), key("b")
	r.park(a)
	r.startRun(b)
	r.refuse = poison("bad")
	r.order(model.MessageTerminate, a, "terminate")
	r.turn(b, steps("bad"))
	r.settle()
	r.wantAnswer("terminate", "")
	if r.current(a).Outcome.Status != model.Terminated || r.holder(a) != 0 {
		t.Errorf("%s, held by %d", r.current(a).Outcome.Status, r.holder(a))
	}
}

// A run never ends in the batch that starts it, because a store need not be able to do that.
func TestTerminateInTheSameBatch(t *testing.T) {
	t.Parallel()
	for _, poisoned := range []bool{false, true} {
		r := newRig(t)
		r.join(1)
		a, b := key("a"), key("b")
		r.startRun(a)
		r.startRun(b)
		refuse := poison("bad")

		r.refuse = func(batch *store.Batch) error {
			for i := range batch.Closes {
				if slices.ContainsFunc(batch.Starts, func(s store.StartRow) bool { return s.Start.Run == batch.Closes[i].Run }) {
					t.Errorf("batch %d begins and ends %s", batch.Number, batch.Closes[i].Run)
				}
			}
			return refuse(batch)
		}

		if poisoned {
			r.turn(b, steps("bad"))
		}
		r.turn(a, model.Turn{Close: &model.Close{Status: model.Continued}})
		r.order(model.MessageTerminate, a, "terminate")
		r.signal(a, "s", "signal")
		r.settle()
		r.wantAnswer("terminate", "")
		r.wantAnswer("signal", "conflict")
		r.wantStatus(a, model.Terminated)
	}
}
