package lane_test

import (
	"testing"
	"time"

	"github.com/perdure/perdure/internal/model"
)

// The next owner of a shard waits for the end of a claim whose worker belongs to another node. When
// that node says that it does not have the claim, another worker gets the same attempt.
func TestClaimThatItsNodeDoesNotHave(t *testing.T) {
	t.Parallel()
	r, b := newBench(t, 1)
	a := taskAt("t")
	r.send(theTask("t"), "t")
	r.settle()
	lost := b.one()
	b.restart()
	b.away, b.left = true, true
	wait := func() {
		t.Helper()
		r.now = r.now.Add(5 * time.Minute)
		for range 3 { // the lane gives up the claim, and then the board proposes the task
			b.propose()
			r.settle()
		}
	}

	r.settle()
	wait()
	if got := b.claims(); len(got) != 0 {
		t.Fatalf("%d claims are handed over while the node of the first one may have it", len(got))
	}

	b.dropped = true
	wait()
	again := b.one()
	if again.Attempt != lost.Attempt || again.Ref.Claim == lost.Ref.Claim {
		t.Errorf("attempt %d under claim %d is handed over, before it was %d under %d", again.Attempt, again.Ref.Claim, lost.Attempt, lost.Ref.Claim)
	}
	b.report(again)
	r.settle()
	r.wantStatus(a, model.Completed)
}
