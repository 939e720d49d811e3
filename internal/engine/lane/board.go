package lane

import (
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/model"
)

// Board knows who executes which task next. It belongs to the node; lanes tell it of the tasks of their runs. What it says is no more than
// a proposal: the lane decides, and nobody gets a task before its claim is committed.
type Board interface {
	// Reserve finds a worker for a task that is about to be committed, and keeps a slot for it.
	Reserve(now model.Time, it *queue.Item) (id queue.WorkerID, name string, ok bool)
	// Add tells of a task that waits.
	Add(now model.Time, it queue.Item)
	// Proposed reports whether the board still proposes that a worker has a task.
	Proposed(id queue.WorkerID, ref model.TaskRef) bool
	// Overdue reports whether the board still says that a deadline of a claim has passed.
	Overdue(claim model.ClaimRef) bool
	// Held tells of a task that is claimed by a worker, as the history names it; it is nobody here when id is 0.
	Held(now model.Time, it queue.Item, claim int64, id queue.WorkerID, worker string)
	// Remove tells that a task is neither any more.
	Remove(now model.Time, ref model.TaskRef, how queue.Outcome)
	// Forget is Remove for a task that leaves memory, because its run does, or is owned by somebody else now. Whoever executes it goes on.
	Forget(now model.Time, ref model.TaskRef)
	// RetryAfter tells what the other side of a claimed task has said: that it is not to be called before a time.
	RetryAfter(now model.Time, it *queue.Item, until model.Time)
	// Find is the worker that a history names, 0 when it is not here, and whether it has been handed the claim.
	Find(name string, claim model.ClaimRef) (id queue.WorkerID, has bool)
	// Elsewhere reports that the worker is with another node which is alive: its report comes by mail.
	Elsewhere(name string) bool
	// Dropped reports that the node of a worker, which is alive, has said that it does not have the claim: nobody will ever report it.
	Dropped(name string, claim model.ClaimRef) bool
	// Explain says why a task does not move, or that it is being executed.
	Explain(ref model.TaskRef) (model.Reason, bool)
}

// question is the task that the board is asked to find a worker for.
type question struct{ queue.Item }
