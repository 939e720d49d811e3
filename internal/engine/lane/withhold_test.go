package lane_test

import (
	"testing"
	"time"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// A claim is stored, and a user ends its task in the same moment, before the claim has left the
// lane. The worker never gets the claim, because its permit is free by now.
func TestClaimThatEndsBeforeItLeaves(t *testing.T) {
	t.Parallel()
	r, b := newBench(t, 0)
	r.send(theTask("t"), "t")
	r.settle()
	b.Slots(r.now, 1, 1)
	b.propose()
	r.flush()
	res, err := r.land()
	r.l.FinishCommit(r.now, res, err)
	r.send(model.Message{Kind: model.MessageTerminate, To: taskAt("t")}, "")
	r.settle()
	if err != nil || len(b.claims()) > 0 {
		t.Errorf("the worker gets a claim that has ended; error %v", err)
	}
	b.wantSlots(0)
}

// A claim is stored, and the lane finds in the same moment that it cannot read the run. The worker
// does not get the claim, because the board frees the permits of the claim. The worker gets it when
// the lane can read the run again.
func TestClaimOfAnUnreadableRun(t *testing.T) {
	t.Parallel()
	r, b := newBench(t, 0)
	r.join(1)
	a := key("a")
	r.startRun(a)
	r.turn(a, commandTurn(taskCommand("t")))
	r.settle()
	r.join(2)
	r.leave(1)
	r.flush() // the lane reads the history for worker 2
	b.Slots(r.now, 1, 1)
	b.propose()
	r.flush()
	res, err := r.land()
	if err != nil {
		t.Fatal(err)
	}

	r.l.FinishCommit(r.now, res, nil)
	for _, ld := range r.loads {
		r.l.FinishLoad(r.now, ld.ID, lane.LoadResult{Err: fault.New(fault.Corrupt, "it cannot be decoded")})
	}
	r.loads = nil
	r.settle()
	if n := len(b.claims()); n > 0 {
		t.Errorf("the worker gets %d claims of a run that the lane has dropped", n)
	}
	r.pass(r.cfg.QuarantineFor + time.Minute)
	c := b.one()
	b.report(c)
	r.settle()
	b.wantSettled(c, "")
	b.wantSlots(0)
}

// The lane has forgotten a run, because the store refused a batch, and a client starts the same
// key. The lane knows from the board that the address has a run, so it reads the address first. If
// it assumed that there is no run, the board would give the slot of the running task to another
// task.
func TestStartBesideARunThatTheLaneHasForgotten(t *testing.T) {
	t.Parallel()
	r, b := newBench(t, 0)
	r.join(1)
	from, a := in(0, 0), in(0, 1)
	r.startRun(from)
	r.startRun(a)
	r.turn(a, commandTurn(taskCommand("t")))
	r.settle()
	b.Slots(r.now, 1, 1)
	b.propose()
	r.settle()
	c := b.one()
	r.release(a, "t")
	r.settle()
	r.wantHolder(a, 0)
	r.send(theTask("waits"), "waits")
	r.settle()

	r.turn(from, commandTurn(signalTo(a, "1", "s")))
	r.flush()
	r.fail(store.Refused) // the lane forgets the run, which gets the signal in this batch
	r.start(a, "again")
	for {
		if r.commit != nil && len(r.commit.Starts) > 0 {
			t.Errorf("in flight is a start of an address that has a run: %+v", r.commit.Starts)
			break
		}
		if len(r.loads) > 0 {
			r.read()
		} else if r.commit != nil {
			r.commitNow()
		} else {
			break
		}
	}
	b.propose()
	r.settle()
	b.wantSlots(1)
	if n := len(b.claims()); n > 0 {
		t.Errorf("a worker with one slot gets %d more tasks", n)
	}
	r.wantAnswer("again", "")
	if n := b.takeStops(false); n > 0 {
		t.Errorf("the worker is told %d times to stop", n)
	}
	b.report(c)
	r.settle()
	b.wantSettled(c, "")
}
