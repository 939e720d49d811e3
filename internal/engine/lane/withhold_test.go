package lane_test

import (
	"testing"

	"github.com/perdure/perdure/internal/model"
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
