package loan

import (
	"github.com/perdure/perdure/internal/engine/peer"
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/model"
)

// Party is what a Creditor and a Debtor both need of their node.
type Party interface {
	// Alive reports whether another node was a member at the last look. A dead node stays a member
	// until it is fenced.
	Alive(node model.NodeID) bool
	// LookAround makes the node look at the members soon. It never waits.
	LookAround()
	// GiveBack makes the tasks of claims that no worker executes available again. This uses up no
	// attempt. GiveBack never waits.
	GiveBack(claims []model.ClaimRef)
	// Lane returns the lane of a claim's run, or nil if this node does not own the run.
	Lane(claim model.ClaimRef) ClaimLane
}

// ClaimLane decides about claims of runs that this node owns. No method waits.
type ClaimLane interface {
	// Attach tells the lane which worker executes a claim.
	Attach(claim model.ClaimRef, worker queue.WorkerID)
	// Report delivers the outcome of a worker's claim.
	Report(r *model.TaskReport, worker queue.WorkerID)
	// Progress delivers the progress of a claim.
	Progress(claim model.ClaimRef, worker queue.WorkerID, p model.Payload)
	// Lose tells the lane that a claim was lost with the node of its worker.
	Lose(claim model.ClaimRef)
}

// Owner is what a Debtor needs of its node, which borrows.
type Owner interface {
	Party
	// Serving reports whether the lease of the node is certainly valid.
	Serving() bool
	// Hire puts a worker of another node on the board, without slots.
	Hire(w *BorrowedWorker, offer model.TaskOffer, node model.NodeID) Hired
}

// Hired is the session of a worker of another node. It records which claims the worker executes, as
// far as this node knows.
type Hired interface {
	// ID identifies the worker on the board.
	ID() queue.WorkerID
	// SetHeld sets the claims that the worker holds: the claims that the node of the worker lists,
	// and the claims that are on their way to the worker. It returns the claims that the worker no
	// longer holds.
	SetHeld(holds, waiting map[model.ClaimRef]bool) (gone []model.ClaimRef)
	// DropClaim drops a claim.
	DropClaim(claim model.ClaimRef)
	// Dismiss ends the session and removes the worker from the board.
	Dismiss()
}

// Board is the board of the owner, with the waiting tasks and the workers.
type Board interface {
	// UnservedWants returns the kinds of tasks that wait for a worker.
	UnservedWants() []queue.Want
	// Unlend takes unused lent slots from the board, and returns the kinds of tasks that still wait
	// for a worker.
	Unlend(workers []queue.WorkerID) []queue.Want
	// HasClaim reports whether a worker may still report the outcome of a claim: the claim still
	// holds its task, has no report, and does not belong to another worker.
	HasClaim(worker queue.WorkerID, claim model.ClaimRef) bool
	// Beat tells the board that a worker executes a claim. It reports whether the worker still has
	// the claim.
	Beat(worker queue.WorkerID, claim model.ClaimRef) bool
	// KeptFor returns the nodes whose workers execute claims of runs that have moved to another
	// owner, if this node still keeps permits for these claims.
	KeptFor() map[model.NodeID]bool
}

// Slot says how many slots a borrowed worker has at the moment.
type Slot struct {
	Worker queue.WorkerID
	Count  int
}

// Host is what a Creditor needs of its node, which lends.
type Host interface {
	Party
	// Workers returns the task workers of this node.
	Workers() []Own
}

// Own is a worker of the lending node. Two values of Own are equal if they are the same worker.
type Own interface {
	// Offer returns what the worker takes.
	Offer() *model.TaskOffer
	Slots
	Claims
}

// Slots are the slots of a worker.
type Slots interface {
	// Idle returns how many slots the tasks of this node do not need.
	Idle() int
	// LendOut takes at most the given number of idle slots from the board, and returns how many it
	// took.
	LendOut(most int) int
	// Regain ends the loan of n slots. The caller must call Rejoin after it, which tells the board.
	Regain(n int)
	// Rejoin tells the board the current number of slots. After that the board proposes tasks.
	Rejoin()
}

// Claims are the claims of a worker on runs of other nodes.
type Claims interface {
	// Each calls do for each claim that may belong to another owner. fresh says whether there is
	// news about the claim.
	Each(do func(claim model.ClaimRef, fresh bool))
	// Deliver delivers the news about a claim whose run this node owns by now.
	Deliver(claim model.ClaimRef)
	// List returns the claims that a poll lists for the polled node (to): all claims of foreign
	// runs, and all claims that the polled node has made. foreign reports whether the node of the
	// worker does not own the run of a claim, and owned whether the polled node owns it. For the
	// runs that the polled node owns, List adds news and reports as long as they fit into room,
	// which is in bytes. sent says which news and reports are included.
	List(to model.NodeID, foreign, owned func(model.ClaimRef) bool, room *int) (holds []peer.Hold, sent map[model.ClaimRef]uint64)
	// DropSentNews drops news that the owner has received.
	DropSentNews(sent map[model.ClaimRef]uint64)
	// Has reports whether the worker executes a claim, or has reported it and the report is not
	// settled.
	Has(claim model.ClaimRef) bool
	// Take hands over claims that a node has made. It returns false if the worker is leaving. In
	// that case the worker has none of the claims.
	Take(claims []model.Claim, maker model.NodeID) bool
	// Stop ends a claim, because its outcome is no longer needed. It does nothing for a claim that
	// is over.
	Stop(claim model.ClaimRef, canceled bool)
	// Settle tells the worker that the report of a claim is accepted, or why not. A second call
	// does nothing.
	Settle(claim model.ClaimRef, err error)
}
