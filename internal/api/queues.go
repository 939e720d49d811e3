package api

import (
	"context"

	"github.com/perdure/perdure/internal/model"
)

// Queues is what an operator may ask about queues and those who serve them.
type Queues interface {
	// ListWorkers returns the workers of all live nodes.
	ListWorkers(ctx context.Context, tenant string) ([]WorkerInfo, error)
	// ListQueues returns the queues that tasks wait in or that workers serve, by name.
	ListQueues(ctx context.Context, tenant string) (QueueList, error)
}

// WorkerInfo is a worker of a node.
type WorkerInfo struct {
	Node model.NodeID
	Host string // host name and process
	// Name of a worker that executes tasks; empty for the one that runs workflows and entities.
	Name    string
	Version string
	// Workflows that it runs and Entities that it has the code of (services as well, both with
	// their prefix), or Queues and Activities that it executes, Slots at once.
	Workflows, Entities, Queues, Activities []string
	Slots                                   int
	// Limits and Breakers are the names that the code of its activities gives.
	Limits, Breakers []string
	// Draining begins nothing any more.
	Draining bool
}

// QueueList is the queues of a tenant.
type QueueList struct {
	Queues []QueueInfo
	// Counted tells that the owners of all shards have counted. Otherwise the store was looked
	// through: when it has very many open tasks, it tells only those that were submitted on their
	// own, and not which of them wait.
	Counted bool
}

// QueueInfo is how a queue stands.
type QueueInfo struct {
	Name string
	// Open is how many tasks there are; Waiting, Delayed and Claimed are parts of it, and add up to
	// it when they are known.
	Open, Waiting, Delayed, Claimed int
	// Oldest is since when the one waits that waits longest; looked through, when the oldest was
	// submitted. Zero for none.
	Oldest model.Time
	// Workers that serve it, on all nodes, and their slots.
	Workers, Slots int
	Paused         bool
	// Unserved are activities of tasks that wait in it, or may, and that no live process executes,
	// by name.
	Unserved []string
}

// Task is an open task of a run.
type Task struct {
	ID, Activity, Queue string
	Scheduled           model.Time
	// Attempt is how many have begun. Worker has the current one since Since; when it is empty, the
	// next one may begin at Next.
	Attempt int
	Worker  string
	Since   model.Time
	Next    model.Time
	// Failures counts attempts that failed; Last is the last one.
	Failures int
	Last     *model.Failure
	// Progress is what was reported last.
	Progress model.Payload
}
