package loan

import (
	"github.com/perdure/perdure/internal/engine/peer"
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/model"
)

// Node is the life of a node that lends and borrows.
type Node interface {
	// Alive reports whether another node had a lease when the members were last looked at.
	Alive(node model.NodeID) bool
	// LookAround has the members looked at soon. It never waits.
	LookAround()
	// GiveBack has claims begun anew that nobody executes, without an attempt. It never waits.
	GiveBack(claims []model.ClaimRef)
	// Lane is where the run of a claim is decided about; nil when this node does not own it.
	Lane(claim model.ClaimRef) Lane
}

// Lane decides about claims of runs that this node owns. No method waits.
type Lane interface {
	// Attach says who executes a claim.
	Attach(claim model.ClaimRef, worker queue.WorkerID)
	// Report says how a claim of a worker has ended.
	Report(r *model.TaskReport, worker queue.WorkerID)
	// Progress says how far a claim is.
	Progress(claim model.ClaimRef, p model.Payload)
	// Lose says that a claim has gone with the node of its worker.
	Lose(claim model.ClaimRef)
}

// Owner is the life of a node that borrows.
type Owner interface {
	Node
	// Serving reports whether its lease surely holds.
	Serving() bool
	// Hire has a worker of another node on the board, with no slots yet.
	Hire(w *Worker, offer model.TaskOffer, node model.NodeID) Hired
}

// Hired is the session of a worker of another node: which claims count as executed there.
type Hired interface {
	// ID is what the board knows it by.
	ID() queue.WorkerID
	// Lists has it hold what its node says, and what is on its way to it. It returns what it held
	// before and does not hold any more.
	Lists(holds, waiting map[model.ClaimRef]bool) (gone []model.ClaimRef)
	// Lets has it forget a claim.
	Lets(claim model.ClaimRef)
	// Dismiss ends it, and takes the worker from the board.
	Dismiss()
}

// Board is that of the owner, with the tasks that wait and the workers that may have them.
type Board interface {
	// Unserved is what waits for a worker.
	Unserved() []queue.Want
	// Unlend takes slots away that have not been used, and returns what still waits for some.
	Unlend(workers []queue.WorkerID) []queue.Want
	// Holds reports whether a claim is held by nobody or by the worker.
	Holds(worker queue.WorkerID, claim model.ClaimRef) bool
	// Beat says that a worker executes a claim.
	Beat(worker queue.WorkerID, claim model.ClaimRef) bool
	// KeptFor are the nodes whose workers execute what the owner still counts, although the runs
	// are not there any more.
	KeptFor() map[model.NodeID]bool
}

// Slot is how many slots a borrowed worker has for now.
type Slot struct {
	Worker queue.WorkerID
	Count  int
}

// Host is the life of a node that lends.
type Host interface {
	Node
	// Workers are those of its own that take tasks.
	Workers() []Own
}

// Own is a worker of the node that lends. The same worker is always the same value.
type Own interface {
	// Offer is what it takes.
	Offer() *model.TaskOffer
	Slots
	Claims
}

// Slots are those of a worker.
type Slots interface {
	// Idle is how many nothing at home needs.
	Idle() int
	// LendOut takes idle ones from the board, at most so many.
	LendOut(most int) int
	// Regain ends the loan of some; the board hears of it by Rejoin.
	Regain(n int)
	// Rejoin has the board know how many there are now. It proposes.
	Rejoin()
}

// Claims are what a worker has of runs of other nodes.
type Claims interface {
	// Each calls do for every claim that may be of another owner, and tells whether there is news
	// of it.
	Each(do func(claim model.ClaimRef, fresh bool))
	// Deliver hands in news of a claim whose run has become ours.
	Deliver(claim model.ClaimRef)
	// List is what is told to a node: everything of runs that are foreign, or from that node, with
	// news and reports of what it owns, as far as there is room. It returns which those are.
	List(to model.NodeID, foreign, owned func(model.ClaimRef) bool, room *int) (holds []peer.Hold, sent map[model.ClaimRef]uint64)
	// Told forgets news that the owner has heard.
	Told(sent map[model.ClaimRef]uint64)
	// Has reports whether the worker has been handed a claim, and what it reports is not settled.
	Has(claim model.ClaimRef) bool
	// Take hands claims over that a node has made. It reports false when the worker leaves; then it
	// has none of them.
	Take(claims []model.Claim, maker model.NodeID) bool
	// Stop says that the outcome of a claim is not wanted any more; of one that is over the worker
	// does not hear again.
	Stop(claim model.ClaimRef, canceled bool)
	// Settle says that the report of a claim counts, or why not; nobody hears of that twice either.
	Settle(claim model.ClaimRef, err error)
}
