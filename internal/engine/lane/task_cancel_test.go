package lane_test

import (
	"testing"

	"github.com/perdure/perdure/internal/model"
)

// An owner dies right after it has stored that a task is canceled, and before it has told the
// worker. The next owner tells it.
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
	r.told = nil // of the second owner
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
