package lane

import (
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/model"
)

// Board decides which worker executes which task next. All lanes of a node share one board and
// report the tasks of their runs to it. The board only makes proposals. The lane decides, and no
// worker gets a task before its claim is committed.
type Board interface {
	// Reserve finds a worker for a task that is about to be committed, and keeps a slot for it.
	Reserve(now model.Time, it *queue.Item) (id queue.WorkerID, name string, ok bool)
	// Add reports a waiting task.
	Add(now model.Time, it queue.Item)
	// HasProposal reports whether the board still proposes to give the task to the worker.
	HasProposal(id queue.WorkerID, ref model.TaskRef) bool
	// Overdue reports whether the board still says that a deadline of a claim has passed.
	Overdue(claim model.ClaimRef) bool
	// Hold records that a worker has claimed a task. The parameter worker is the name of the worker
	// in the history. id is 0 if the worker is not here.
	Hold(now model.Time, it queue.Item, claim int64, id queue.WorkerID, worker string)
	// Remove removes a task that is neither waiting nor claimed any longer.
	Remove(now model.Time, ref model.TaskRef, how queue.Outcome)
	// Forget removes a task that leaves memory, because its run leaves memory or because another
	// lane owns the run now. Unlike Remove, it lets a worker that executes the task continue.
	Forget(now model.Time, ref model.TaskRef)
	// Release frees the permits of a claim whose worker is done. The lane calls it when the end of
	// the claim cannot be stored now, because its run is quarantined. The claim no longer needs its
	// permits, because the task cannot start again before the end of the claim is stored.
	Release(now model.Time, id queue.WorkerID, r *model.TaskReport)
	// Quarantine frees the permits of all claims at an address whose workers have reported. The
	// lane calls it when no end of a claim at the address can be stored now. As with Release, such
	// claims no longer need their permits. The reports may be with another lane or in the store, so
	// the lane cannot name them.
	Quarantine(now model.Time, a model.Address)
	// RetryAfter keeps tasks from calling the outside system of a claimed task before the given
	// time.
	RetryAfter(now model.Time, it *queue.Item, until model.Time)
	// Find returns the worker that a history names, or 0 if the worker is not here. has reports
	// whether the worker has received the claim.
	Find(name string, claim model.ClaimRef) (id queue.WorkerID, has bool)
	// Elsewhere reports whether the worker belongs to another live node. The report of such a
	// worker arrives as a message.
	Elsewhere(name string) bool
	// IsDropped reports whether the node of a worker is alive and has said that it does not have
	// the claim. If so, no report of the worker will arrive.
	IsDropped(name string, claim model.ClaimRef) bool
	// Explain returns why a task does not move, or that a worker executes it.
	Explain(ref model.TaskRef) (model.Reason, bool)
}

// question is a task that the lane asks the board to find a worker for.
type question struct{ queue.Item }
