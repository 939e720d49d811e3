package lane

import (
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/model"
)

// Board decides which worker executes which task next. It belongs to the node, and lanes report the
// tasks of their runs to it. It only makes proposals: the lane decides, and no worker gets a task
// before its claim is committed.
type Board interface {
	// Reserve finds a worker for a task that is about to be committed, and keeps a slot for it.
	Reserve(now model.Time, it *queue.Item) (id queue.WorkerID, name string, ok bool)
	// Add reports a waiting task.
	Add(now model.Time, it queue.Item)
	// HasProposal reports whether the board still proposes to give the task to the worker.
	HasProposal(id queue.WorkerID, ref model.TaskRef) bool
	// Overdue reports whether the board still says that a deadline of a claim has passed.
	Overdue(claim model.ClaimRef) bool
	// Hold says that a worker has claimed a task. The history names the worker; id is 0 when it is
	// not a worker of this node. The five parameters are the row of the claim as the board keeps
	// it.
	Hold(now model.Time, it queue.Item, claim int64, id queue.WorkerID, worker string)
	// Remove says that a task is neither waiting nor claimed.
	Remove(now model.Time, ref model.TaskRef, how queue.Outcome)
	// Forget is Remove for a task that leaves memory, because its run does or because another lane
	// owns it now. A worker that executes it continues.
	Forget(now model.Time, ref model.TaskRef)
	// Release says that a worker is done with a claim, and that the end of the claim cannot be
	// stored now, because its run is quarantined. The claim needs no permits any longer: its task
	// cannot start again before the end of the claim is stored.
	Release(now model.Time, id queue.WorkerID, r *model.TaskReport)
	// Quarantine says that no end of a claim at an address can be stored now. Claims there whose
	// workers have reported need no permits any longer, as in Release. The reports may be with
	// another lane or in the store, so the lane cannot name them.
	Quarantine(now model.Time, a model.Address)
	// RetryAfter says that the other side of a claimed task must not be called before a time.
	RetryAfter(now model.Time, it *queue.Item, until model.Time)
	// Find returns the worker that a history names, or 0 when it is not here. has reports whether
	// the worker has been handed the claim.
	Find(name string, claim model.ClaimRef) (id queue.WorkerID, has bool)
	// Elsewhere reports whether the worker belongs to another live node. Its report then arrives as
	// a message.
	Elsewhere(name string) bool
	// IsDropped reports whether the node of a worker, which is alive, has said that it does not
	// have the claim. Its report will then never arrive.
	IsDropped(name string, claim model.ClaimRef) bool
	// Explain returns why a task does not move, or that a worker executes it.
	Explain(ref model.TaskRef) (model.Reason, bool)
}

// question is a task that the lane asks the board to find a worker for.
type question struct{ queue.Item }
