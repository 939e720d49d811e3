package lane

import (
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/model"
)

// Board knows which worker executes which task next. It belongs to the node, and lanes tell it of
// the tasks of their runs. What it says is a proposal: the lane decides, and no worker gets a task
// before its claim is committed.
type Board interface {
	// Reserve finds a worker for a task that is about to be committed, and keeps a slot for it.
	Reserve(now model.Time, it *queue.Item) (id queue.WorkerID, name string, ok bool)
	// Add tells of a task that waits.
	Add(now model.Time, it queue.Item)
	// Proposed reports whether the board still proposes that a worker has a task.
	Proposed(id queue.WorkerID, ref model.TaskRef) bool
	// Overdue reports whether the board still says that a deadline of a claim has passed.
	Overdue(claim model.ClaimRef) bool
	// Hold says that a worker has claimed a task. The history names the worker; id is 0 when it is
	// not a worker of this node. The five parameters are the row of the claim as the board keeps
	// it.
	Hold(now model.Time, it queue.Item, claim int64, id queue.WorkerID, worker string)
	// Remove says that a task is neither waiting nor claimed.
	Remove(now model.Time, ref model.TaskRef, how queue.Outcome)
	// Forget is Remove for a task that leaves memory, because its run does or because another lane
	// owns it now. A worker that executes it goes on.
	Forget(now model.Time, ref model.TaskRef)
	// RetryAfter says that the other side of a claimed task does not want to be called before a
	// time.
	RetryAfter(now model.Time, it *queue.Item, until model.Time)
	// Find returns the worker that a history names, 0 when it is not here, and whether the worker
	// has been handed the claim.
	Find(name string, claim model.ClaimRef) (id queue.WorkerID, has bool)
	// Elsewhere reports whether the worker is with another node that is alive: its report comes by
	// mail.
	Elsewhere(name string) bool
	// Dropped reports whether the node of a worker, which is alive, has said that it does not have
	// the claim: its report will never come.
	Dropped(name string, claim model.ClaimRef) bool
	// Explain says why a task does not move, or that it is being executed.
	Explain(ref model.TaskRef) (model.Reason, bool)
}

// question is the task that the board is asked to find a worker for.
type question struct{ queue.Item }
