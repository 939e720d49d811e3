package lane_test

import (
	"slices"
	"testing"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// An owner dies right after it has stored that a task is canceled, and before it has told the
// worker. The next owner tells the worker.
func TestCancelUnderAnotherOwner(t *testing.T) {
	t.Parallel()
	r, b := newBench(t, 1)
	r.send(theTask("t"), "t")
	r.settle()
	c := b.one()
	r.send(model.Message{Kind: model.MessageCancel, To: c.Ref.Address}, "cancel")
	r.flush()
	r.landUnheard()
	if n := b.takeStops(true); n != 0 {
		t.Fatalf("the worker is told %d times before the owner knows that it is stored", n)
	}

	b.restart()
	r.settle()
	if n := b.takeStops(true); n != 1 {
		t.Errorf("the worker is told %d times that the task is canceled, want once", n)
	}
	b.report(c, failed)
	r.settle()
	r.wantStatus(c.Ref.Address, model.Canceled)
}

// The next owner hands over a claim that its worker did not get. If the task was canceled since,
// the claim says so.
func TestCanceledClaimIsHandedOver(t *testing.T) {
	t.Parallel()
	r, b := newBench(t, 1)
	r.send(theTask("t"), "t")
	r.flush()
	r.landUnheard()
	b.restart()
	r.send(model.Message{Kind: model.MessageCancel, To: taskAt("t")}, "cancel")
	r.flush()

	for len(r.loads) > 0 {
		r.read()
		r.flush()
	}

	r.landUnheard()
	r.told = nil // the calls of the second owner
	b.restart()
	r.settle()
	c := b.one()
	if !c.Canceled {
		t.Error("the claim of a canceled task is handed over as if it were not canceled")
	}
	b.report(c, failed)
	r.settle()
	r.wantStatus(taskAt("t"), model.Canceled)
}

// A batch ends a task and submits another one, which waits for the slot of the first. The store
// refuses the batch because of its size, and the lane applies the inputs again one by one. At that
// time the board does not know that the first task is claimed. The second task must get the slot
// only after the end of the first is stored, because until then the worker executes the first.
func TestRefusedEndOfATaskFreesNoSlot(t *testing.T) {
	t.Parallel()
	r, b := newBench(t, 1)
	r.send(theTask("a"), "a")
	r.settle()
	b.one()

	r.refuse = func(batch *store.Batch) error {
		if len(batch.Starts) > 0 && len(batch.Closes) > 0 {
			return store.Errorf(store.Refused, "commit", "too large")
		}
		if slices.ContainsFunc(batch.Starts, func(s store.StartRow) bool { return s.Start.Worker != "" }) {
			t.Error("the second task is claimed before the end of the first is stored")
		}
		return nil
	}
	r.send(theTask("b"), "b")
	r.order(model.MessageTerminate, taskAt("a"), "terminate")
	r.settle()
	r.wantStatus(taskAt("a"), model.Terminated)
	b.propose()
	r.settle()
	if c, stops := b.one(), b.takeStops(false); c.Ref.Address != taskAt("b") || stops != 1 {
		t.Errorf("the worker has %s and was told %d times to stop", c.Ref, stops)
	}
}
