package loan_test

import (
	"slices"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/engine/loan"
	"github.com/perdure/perdure/internal/engine/peer"
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/model"
)

// hirer is an owner whose board has every claim. It remembers the workers that it has hired.
type hirer struct {
	quiet

	hired map[string]*loan.BorrowedWorker
}

func (h *hirer) Hire(w *loan.BorrowedWorker, offer model.TaskOffer, _ model.NodeID) loan.Hired {
	h.hired[offer.Name] = w
	return session{}
}

func (h *hirer) HasClaim(queue.WorkerID, model.ClaimRef) bool { return true }

// session is the session of a hired worker.
type session struct{}

func (session) ID() queue.WorkerID                                           { return 1 }
func (session) SetHeld(_, _ map[model.ClaimRef]bool) (gone []model.ClaimRef) { return nil }
func (session) DropClaim(model.ClaimRef)                                     {}
func (session) Dismiss()                                                     {}

// An owner has sent a claim to a worker of another node. The owner takes the claim back if that
// node has read all entries, and the worker does not list the claim or has left. While the entry is
// on its way, or the worker lists the claim, the owner takes nothing back.
func TestClaimThatItsWorkerDoesNotHave(t *testing.T) {
	t.Parallel()
	ref := model.ClaimRef{TaskRef: model.TaskRef{Run: model.RunID{7}, ID: "task"}, Claim: 12}
	holds := []peer.PollWorker{{Name: "w", Holds: []peer.Hold{{Ref: ref}}}}
	for _, test := range []struct {
		name    string
		seen    uint64 // the last entry that the node has read
		workers []peer.PollWorker
		missing bool
	}{
		{"the entry is on its way", 0, []peer.PollWorker{{Name: "w"}}, false},
		{"the worker lists it", 1, holds, false},
		{"the worker does not list it", 1, []peer.PollWorker{{Name: "w"}}, true},
		{"the worker has left", 1, nil, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			now, from, stream := time.Unix(1_000_000, 0), model.NodeID{1}, model.RunID{1}
			owner := &hirer{hired: map[string]*loan.BorrowedWorker{}}
			d := loan.NewDebtor(loan.DebtorConfig{Owner: owner, Board: owner, Pace: loan.Standard, Wake: func() {}, NewStream: func() model.RunID { return stream }})
			poll := func(p peer.Poll) loan.Terms {
				t.Helper()
				terms, taken := d.HandlePoll(now, from, &p, func(*peer.PollReply) {})
				if !taken {
					t.Fatal("the owner does not take the poll")
				}
				d.Reply(now, from, p.Seq)
				return terms
			}

			poll(peer.Poll{Seq: 1, Workers: []peer.PollWorker{{Name: "w", Lend: 1}}})
			owner.hired["w"].Execute(now, []model.Claim{{Ref: ref}})
			got := poll(peer.Poll{Seq: 2, Stream: stream, Seen: test.seen, Workers: test.workers}).Missing
			if slices.Contains(got, ref) != test.missing {
				t.Errorf("missing are %v, want the claim: %v", got, test.missing)
			}
		})
	}
}
