package api

import (
	"context"

	"github.com/perdure/perdure/internal/model"
)

// Queues has the calls of operators about queues and the workers that serve them.
type Queues interface {
	// ListWorkers returns the workers of all live nodes.
	ListWorkers(ctx context.Context, tenant string) ([]WorkerInfo, error)
	// ListQueues returns the queues that have open tasks or workers, sorted by name.
	ListQueues(ctx context.Context, tenant string) (QueueList, error)
}

// WorkerInfo is a worker of a node.
type WorkerInfo struct {
	Node model.NodeID
	Host string // host name and process
	// Name is the name of a worker that executes tasks. It is empty for the worker that runs
	// workflows and entities.
	Name    string
	Version string
	// Workflows and Entities are the code that the worker runs. Entities also has the services. The
	// names in Entities have their prefix. A worker of tasks has Queues and Activities instead, and
	// executes Slots tasks at the same time.
	Workflows, Entities, Queues, Activities []string
	Slots                                   int
	// Limits and Breakers are the names of limits and breakers that its activities use.
	Limits, Breakers []string
	// Draining is true when the worker takes no new work.
	Draining bool
	// Alike is how many other remote workers of the node have the same offer. Slots is the sum over
	// this worker and the others.
	Alike int
}

// QueueList is the queues of a tenant.
type QueueList struct {
	Queues []QueueInfo
	// Counted is true if the owners of all shards answered with their counts. Otherwise the counts
	// come from a scan of the store, which reads the histories of open executions. If there are
	// very many, it reads only the histories of the newest ones. Of the other executions it counts
	// only the submitted tasks, and does not find out which of them wait.
	Counted bool
}

// QueueInfo is the state of a queue.
type QueueInfo struct {
	Name string
	// Open counts all open tasks. Waiting, Delayed and Claimed are parts of Open. If they are
	// known, their sum is Open.
	Open, Waiting, Delayed, Claimed int
	// Oldest is when the longest waiting task started to wait. If QueueList.Counted is false, a
	// submitted task whose history was not read counts from its submission. Oldest is zero if there
	// is no such task.
	Oldest model.Time
	// Workers is how many workers serve the queue, on all nodes. Slots is the sum of their slots.
	Workers, Slots int
	Paused         bool
	// Unserved are the activities that no live process executes and whose tasks wait, or may wait,
	// in the queue. They are sorted by name.
	Unserved []string
}

// Task is an open task of a run.
type Task struct {
	ID, Activity, Queue string
	Scheduled           model.Time
	// Attempt counts the attempts that have started. Worker executes the current attempt, and Since
	// is when it started it. If Worker is empty, no worker executes the task, and the next attempt
	// may start at Next.
	Attempt int
	Worker  string
	Since   model.Time
	Next    model.Time
	// Failures counts failed attempts; Last is the latest error.
	Failures int
	Last     *model.Failure
	// Progress is the latest progress that the task reported.
	Progress model.Payload
}
