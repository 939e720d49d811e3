package lending

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/perdure/perdure/internal/engine/loan"
	"github.com/perdure/perdure/internal/engine/peer"
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// KnockPause is the minimum time between two rounds of a Borrower.
const KnockPause = 5 * time.Millisecond

// BorrowerNode is what a borrower needs of its node.
type BorrowerNode interface {
	loan.Party
	// Serving reports whether the lease of the node is certainly valid.
	Serving() bool
	// Hire puts a worker of another node on the board, without slots.
	Hire(w *LockedWorker, offer model.TaskOffer, node model.NodeID) loan.Hired
}

// Board is the board of the owner, with the waiting tasks and the workers.
type Board interface {
	loan.Board
	Proposer
}

// Proposer is the part of a board that proposes tasks to workers. The caller must not hold a lock
// of this package.
type Proposer interface {
	// Propose proposes the tasks that can start.
	Propose()
	// Lend sets the number of slots of workers of another node.
	Lend(slots []loan.Slot)
	// LetGo frees the permits of claims whose workers, on other nodes, are done or gone.
	LetGo()
}

// Borrower runs the loan.Debtor of a node: its lock, its rounds and its timers.
type Borrower struct {
	self   model.NodeID
	owner  BorrowerNode
	board  Board
	line   peer.Line
	kick   chan struct{} // capacity 1: there is something to do
	others atomic.Pointer[loan.Others]

	mu     sync.Mutex
	debtor *loan.Debtor
}

// hirer implements loan.Owner, which the machine needs, with a BorrowerNode.
type hirer struct {
	BorrowerNode

	b *Borrower
}

// Hire puts a worker on the board. Calls of that worker take the lock of the borrower.
func (h hirer) Hire(w *loan.BorrowedWorker, offer model.TaskOffer, node model.NodeID) loan.Hired {
	return h.BorrowerNode.Hire(&LockedWorker{h.b, w}, offer, node)
}

// NewBorrower returns the borrower of a node. The caller must connect it before it runs.
func NewBorrower(self model.NodeID, owner BorrowerNode, board Board) *Borrower {
	b := &Borrower{self: self, owner: owner, board: board, kick: make(chan struct{}, 1)}
	b.debtor = loan.NewDebtor(loan.DebtorConfig{
		Owner: hirer{owner, b}, Board: board, Pace: loan.Standard, Wake: b.Wake,
		NewStream: func() model.RunID { return model.RunID(uuid.Must(uuid.NewV7())) },
	})
	return b
}

// Connect sets the line to other nodes.
func (b *Borrower) Connect(line peer.Line) { b.line = line }

// HasOthers reports whether other nodes have task workers.
func (b *Borrower) HasOthers() bool {
	others := b.others.Load()
	return others != nil && len(*others) > 0
}

// Covered reports whether a worker of another node could take tasks of this kind.
func (b *Borrower) Covered(w queue.Want) bool {
	others := b.others.Load()
	return others != nil && others.Cover(w)
}

// Wake makes the borrower start a round soon, because a task may wait for a worker.
func (b *Borrower) Wake() {
	select {
	case b.kick <- struct{}{}:
	default:
	}
}

// Run makes rounds until ctx ends.
func (b *Borrower) Run(ctx context.Context) {
	defer b.close()
	timer := time.NewTimer(0)
	defer timer.Stop()

	for {
		select {
		case <-ctx.Done():
			return
		case <-b.kick:
		case <-timer.C:
		}

		again := b.round()
		b.board.Propose()
		if again {
			timer.Reset(loan.Standard.PendAgain)
		} else {
			timer.Stop()
		}

		select {
		case <-ctx.Done():
			return
		case <-time.After(KnockPause):
		}
	}
}

// round sends the knocks that are due. It reports whether Run must make another round after
// loan.Standard.PendAgain even if no caller wakes the borrower before.
func (b *Borrower) round() (again bool) {
	b.mu.Lock()
	calls, again := b.debtor.Round(time.Now())
	b.mu.Unlock()
	for i := range calls {
		b.line.Tell(calls[i].Node, peer.Encode(&calls[i].Knock))
	}
	return again
}

// SetMembers tells the borrower which nodes are members now.
func (b *Borrower) SetMembers(v *store.View) {
	others := loan.OthersOf(v, b.self)
	b.others.Store(&others)
	b.mu.Lock()
	gone := b.debtor.SetMembers(v, others)
	b.mu.Unlock()
	b.board.LetGo()
	b.owner.GiveBack(gone.Back)
	for _, ref := range gone.Lost {
		if l := b.owner.Lane(ref); l != nil {
			l.Lose(ref)
		}
	}
	if len(others) > 0 {
		b.Wake()
	}
}

// close removes all workers of other nodes from the board.
func (b *Borrower) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.debtor.Close()
}

// AskAbout makes the borrower ask another live node whether one of its workers has a claim.
func (b *Borrower) AskAbout(node model.NodeID, ref model.ClaimRef) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.debtor.AskAbout(time.Now(), node, ref)
}

// IsDropped reports whether the node of a claim has said that it does not have the claim. It
// ignores statements from a time when the claim could still be on its way to that node.
func (b *Borrower) IsDropped(ref model.ClaimRef) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.debtor.IsDropped(ref)
}

// HandlePoll handles a poll of another node.
func (b *Borrower) HandlePoll(from model.NodeID, p *peer.Poll, answer func([]byte)) {
	b.mu.Lock()
	terms, taken := b.debtor.HandlePoll(time.Now(), from, p, func(a *peer.PollReply) { answer(peer.Encode(a)) })
	b.mu.Unlock()
	if !taken {
		return
	}
	b.owner.GiveBack(terms.Missing)
	b.board.LetGo()
	b.board.Lend(terms.Lend)
	b.mu.Lock()
	defer b.mu.Unlock()

	if b.debtor.Reply(time.Now(), from, p.Seq) {
		time.AfterFunc(loan.Standard.AnswerWait, func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.debtor.Late(time.Now(), from, p.Seq)
		})
	}
}
