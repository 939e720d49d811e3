package lane_test

import (
	"slices"
	"testing"

	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
)

// reset sends the lane a message that replaces the current run of an address by a run that begins
// with the first events of the old run.
func (r *rig) reset(a model.Address, keep int, token any) {
	r.t.Helper()
	run := r.current(a).Start.Run
	past := r.history(a, run)
	r.send(model.Message{Kind: model.MessageStart, To: a, ToRun: run, Past: &model.Past{
		Events: model.PastOf(past[:keep]), Next: int64(len(past)) + 1, Source: model.Source{Address: a, Run: run, Position: int64(keep)},
	}}, token)
}

// checkTaken checks that another run has replaced a run, and that a worker holds the new run with
// its past.
func (r *rig) checkTaken(a model.Address, old model.RunID, past int) {
	r.t.Helper()
	row := r.row(old)
	cur := r.current(a)
	if row.Outcome.Status != model.Continued || row.Outcome.Next != cur.Start.Run || cur.Start.Previous != old {
		r.t.Fatalf("%s ended as %+v, current is %s", old, row.Outcome, cur.Start.Run)
	}
	if r.held[old] != nil {
		r.t.Error("a worker still holds the run that has given way")
	}
	h := r.held[cur.Start.Run]
	if h == nil || len(h.events) != past {
		r.t.Fatalf("the new run is held as %+v, want it with %d events", h, past)
	}
}

func TestResetTakesTheRunFromItsWorker(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a := key("a")
	old := r.startRun(a)
	r.turn(a, commandTurn(step("one"), step("two"), timer("t", begin+1_000_000)))
	r.settle()
	if sure, err := r.l.Await(a, model.RunID{}, "chain"); err != nil || !sure {
		t.Fatal(sure, err)
	}

	if _, err := r.l.Await(a, old, "run"); err != nil {
		t.Fatal(err)
	}
	stale := *r.held[old]
	r.reset(a, 1, "reset")
	r.wantSilence("reset", "run")
	r.settle()
	r.wantAnswer("reset", "")
	r.checkTaken(a, old, 1)
	if got := r.answers["run"]; got.Result == nil || got.Result.Outcome.Status != model.Continued {
		t.Errorf("who waits for the run heard %+v", got)
	}
	if r.timers(a) != 0 {
		t.Error("timers of the old run are left")
	}

	// A late turn of the old worker changes nothing.
	r.l.Turn(r.now, stale.worker, &model.Turn{Run: old, Generation: stale.gen, Seen: 2, Commands: []model.Command{step("late")}})
	r.settle()
	r.wantEvents(a, "step_completed one")
	r.wantSilence("chain")
	r.turn(a, model.Turn{Close: done()})
	r.settle()
	if got := r.answers["chain"]; got.Result == nil || got.Result.Outcome.Status != model.Completed {
		t.Errorf("who waits for the execution heard %+v", got)
	}
}

// A reset replaces a run while the lane reads its history for a worker. The history comes too late,
// and the lane still hands over the new run.
func TestResetWhileTheRunIsRead(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a := key("a")
	old := r.startRun(a)
	r.turn(a, steps("one"))
	r.settle()
	r.join(2)
	r.l.Leave(r.now, 1)
	r.flush()
	if len(r.loads) != 1 || r.holder(a) != 0 {
		t.Fatalf("loads %v, held by %d", r.loads, r.holder(a))
	}

	r.reset(a, 1, "reset")
	r.flush()
	if r.commit == nil {
		t.Fatal("the reset waits for the read")
	}
	var late []lane.LoadResult
	loads := slices.Clone(r.loads)
	for _, ld := range loads {
		late = append(late, engine.Read(t.Context(), r.st, ld, r.now))
	}
	r.loads = nil
	r.commitNow()
	for i, ld := range loads {
		r.l.FinishLoad(r.now, ld.ID, late[i])
	}
	r.settle()
	r.wantAnswer("reset", "")
	r.checkTaken(a, old, 1)
}

// A blocked run waits for a worker with newer code. After a reset, the new run does not wait for
// such a worker. When another worker joins later, the lane does not hand the new run over again.
func TestResetOfABlockedRun(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a := key("a")
	old := r.startRun(a)
	r.turn(a, steps("one"))
	r.settle()
	r.block(a)
	r.settle()
	r.reset(a, 0, "reset")
	r.settle()
	r.wantAnswer("reset", "")
	r.checkTaken(a, old, 0)
	run := r.current(a).Start.Run
	// the run could continue, but this worker gives it up
	r.l.Release(r.now, 1, &model.Turn{Run: run, Generation: r.held[run].gen})
	r.settle()
	if r.holder(a) == 0 {
		t.Fatal("no worker holds the new run: it waits for a worker that it does not need")
	}

	r.join(2)
	r.settle()
	activations := 0
	for _, c := range r.calls {
		if c.Kind == lane.CallActivate && c.Run != old {
			activations++
		}
	}

	if activations != 2 {
		t.Errorf("the new run was handed over %d times", activations)
	}
}

// A reset does not replace a run that has continued since the caller read its history, because the
// new events would be lost.
func TestResetOfARunThatWentOn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a := key("a")
	old := r.startRun(a)
	r.signal(a, "s", "signal") // on its way to the store when the reset comes
	r.reset(a, 0, "reset")
	r.settle()
	r.wantAnswer("signal", "")
	r.wantAnswer("reset", "conflict")
	if r.current(a).Start.Run != old || r.holder(a) != 1 {
		t.Error("the run was taken from its worker")
	}
}

// A delete waits for the rows of the address that are on their way to the store. A start behind it
// begins a new run, in the same batch.
func TestDeleteThenStart(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a := key("a")
	old := r.startRun(a)
	r.send(model.Message{Kind: model.MessageDelete, To: a, Runs: []model.RunID{old}, RequestID: "0"}, "too early")
	r.settle()
	r.wantAnswer("too early", "conflict")
	r.turn(a, model.Turn{Close: done()})
	remove := model.Message{Kind: model.MessageDelete, To: a, Runs: []model.RunID{old}, RequestID: "1"}
	r.l.Deliver(r.now, &remove, true, "delete") // its id is new, so the lane looks up nothing
	r.start(a, "start")
	r.flush()
	if r.commit == nil || len(r.commit.Closes) != 1 || len(r.commit.Deletes) != 0 {
		t.Fatalf("the first batch is %+v", r.commit)
	}

	r.commitNow()
	if r.commit == nil || len(r.commit.Deletes) != 1 || len(r.commit.Starts) != 1 {
		t.Fatalf("the second batch is %+v", r.commit)
	}
	r.settle()
	r.wantAnswer("delete", "")
	r.wantAnswer("start", "")
	if r.row(old) != nil || r.holder(a) != 1 || r.current(a).Start.Run == old {
		t.Error("the old run is still there")
	}
	r.send(remove, "again")
	r.settle()
	r.wantAnswer("again", "")
	if r.l.PendingBytes() != 0 {
		t.Errorf("%d bytes are held by nothing", r.l.PendingBytes())
	}
}
