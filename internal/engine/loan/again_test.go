package loan_test

import (
	"testing"
	"time"

	"github.com/perdure/perdure/internal/engine/loan"
	"github.com/perdure/perdure/internal/engine/peer"
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// quiet is a node on which nothing happens: it has no workers, no claims and no tasks.
type quiet struct{}

func (quiet) Alive(model.NodeID) bool                                             { return true }
func (quiet) LookAround()                                                         {}
func (quiet) GiveBack([]model.ClaimRef)                                           {}
func (quiet) Lane(model.ClaimRef) loan.ClaimLane                                  { return nil }
func (quiet) Serving() bool                                                       { return true }
func (quiet) Hire(*loan.BorrowedWorker, model.TaskOffer, model.NodeID) loan.Hired { return nil }
func (quiet) Workers() []loan.Own                                                 { return nil }
func (quiet) UnservedWants() []queue.Want                                         { return nil }
func (quiet) Unlend([]queue.WorkerID) []queue.Want                                { return nil }
func (quiet) HasClaim(queue.WorkerID, model.ClaimRef) bool                        { return false }
func (quiet) Beat(queue.WorkerID, model.ClaimRef) bool                            { return false }
func (quiet) KeptFor() map[model.NodeID]bool                                      { return nil }

// A node lends slots to an owner that it has not seen in a view yet: the owner is new, and knocks.
// Then a view arrives that was taken before the owner came, so the node forgets the owner. When
// they talk again, the owner must listen: otherwise it never hears what the workers report.
func TestOwnerListensToANodeThatHadForgottenIt(t *testing.T) {
	t.Parallel()
	now, self, owner := time.Unix(1_000_000, 0), model.NodeID{1}, model.NodeID{2}
	nothing := func() {}
	creditor := loan.NewCreditor(loan.CreditorConfig{Self: self, Host: quiet{}, Pace: loan.Standard, Wake: nothing})
	debtor := loan.NewDebtor(loan.DebtorConfig{Owner: quiet{}, Board: quiet{}, Pace: loan.Standard, Wake: nothing, NewStream: func() model.RunID { return model.RunID{1} }})
	early := &store.View{Members: []store.Member{{NodeInfo: store.NodeInfo{ID: self}}}}
	later := &store.View{Members: []store.Member{{NodeInfo: store.NodeInfo{ID: self}}, {NodeInfo: store.NodeInfo{ID: owner}}}}

	poll := func() (answered bool) {
		t.Helper()
		creditor.HandleKnock(owner, &peer.Knock{Poll: true})
		polls, _ := creditor.Round(now)
		if len(polls) != 1 {
			t.Fatalf("%d polls, want one", len(polls))
		}
		p := polls[0]
		debtor.HandlePoll(now, self, &p.Poll, func(a *peer.PollReply) {
			answered = true
			creditor.HandleReply(now, p, a)
			creditor.FinishPoll(now, p, a)
		})
		debtor.Reply(now, self, p.Poll.Seq)
		return answered
	}

	creditor.SetMembers(early)
	for range 3 {
		if !poll() {
			t.Fatal("the owner does not answer")
		}
	}
	creditor.SetMembers(early) // it forgets the owner
	creditor.SetMembers(later)
	if !poll() {
		t.Error("the owner does not answer a node that had forgotten it")
	}
}
