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

// A node lends slots to an owner that it has not seen in a view of the members yet, because the
// owner is new. Then an older view arrives, from before the owner came, and the node forgets the
// owner. When the node polls the owner again, the owner must accept the poll. Otherwise it would
// never receive the reports of the workers.
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
	creditor.SetMembers(early) // the creditor forgets the owner
	creditor.SetMembers(later)
	if !poll() {
		t.Error("the owner does not answer a node that had forgotten it")
	}
}

// An owner stops a claim that it could not store. Then it stores another claim of the same task
// with the same number, for any worker. The node of the worker must take the second claim.
// Otherwise the owner would take the claim back and make it again, forever. The node does not take
// a claim that was settled. It also does not take a claim from an owner that does not know that the
// claim has ended.
func TestClaimThatIsMadeAgainUnderItsNumber(t *testing.T) {
	t.Parallel()
	now, self, owner, other := time.Unix(1_000_000, 0), model.NodeID{1}, model.NodeID{2}, model.NodeID{3}
	ref := model.ClaimRef{TaskRef: model.TaskRef{Run: model.RunID{7}, ID: "task"}, Claim: 12}
	claim := peer.Entry{Worker: "b", Claim: &model.Claim{Ref: ref}}
	for _, test := range []struct {
		name   string
		before peer.Entry
		by     model.NodeID
		taken  bool
	}{
		{"the same owner has stopped it", peer.Entry{Worker: "a", Stop: &ref}, owner, true},
		{"another owner has stopped it", peer.Entry{Worker: "a", Stop: &ref}, other, false},
		{"the same owner has settled it", peer.Entry{Worker: "a", Settled: &ref}, owner, false},
		{"the same owner has canceled it", peer.Entry{Worker: "a", Stop: &ref, Canceled: true}, owner, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := loan.NewCreditor(loan.CreditorConfig{Self: self, Host: quiet{}, Pace: loan.Standard, Wake: func() {}})
			var members []store.Member
			for _, id := range []model.NodeID{self, owner, other} {
				members = append(members, store.Member{NodeInfo: store.NodeInfo{ID: id}})
			}
			c.SetMembers(&store.View{Members: members})
			numbers := map[model.NodeID]uint64{}

			hear := func(from model.NodeID, e peer.Entry) (fresh int) {
				t.Helper()
				c.HandleKnock(from, &peer.Knock{Poll: true})
				polls, _ := c.Round(now)
				if len(polls) != 1 {
					t.Fatalf("%d polls, want one", len(polls))
				}
				numbers[from]++
				e.N = numbers[from]
				a := &peer.PollReply{Seq: polls[0].Poll.Seq, Stream: model.RunID(from), Entries: []peer.Entry{e}}
				fresh = len(c.HandleReply(now, polls[0], a))
				c.FinishPoll(now, polls[0], a)
				return fresh
			}

			hear(test.by, test.before)
			if taken := hear(owner, claim) == 1; taken != test.taken {
				t.Errorf("the claim is taken: %v, want %v", taken, test.taken)
			}
		})
	}
}
