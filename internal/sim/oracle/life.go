package oracle

import (
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/model"
)

// Life is what the checks know about one life of a node, in addition to its rows.
type Life struct {
	Label string
	Lanes []*LaneLog
	Gate  *Admissions // nil if nothing holds tasks back
	Now   func() model.Time
}

// LaneLog is what the checks know about a lane, in addition to the rows of the lane.
type LaneLog struct {
	// Undone is when the lane last applied inputs again, because the store refused a batch, or
	// because the lane split a batch that never finished in time. Clock is the time of the node at
	// that moment.
	Undone int64
	Clock  model.Time
	// Moving has the shards that the lane is giving up, and since when.
	Moving map[model.ShardID]model.Time
}

// Admissions counts the tasks that the gate of a node has let through.
type Admissions struct {
	// Passes counts how often a task got a pass since it last started. Under is the rule set of its
	// last pass.
	Passes map[model.TaskRef]int
	Under  map[model.TaskRef]int
	Sets   []*rule.Set // the rule sets that the board has used
}

// taskWorker is a worker of tasks, as the checks see it.
type taskWorker interface {
	// Offers returns the kinds and queues that the worker offered when it started.
	Offers() *model.TaskOffer
	// Executes reports whether the worker has a claim, in a process that lives.
	Executes(ref model.ClaimRef) bool
	// Node returns the node of the worker's process, or zero if the process has none now.
	Node() model.NodeID
}
