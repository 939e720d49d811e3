package api

import (
	"time"

	"github.com/perdure/perdure/internal/model"
)

// Times of series.
const (
	// SeriesStep is the shortest step, and every step is a multiple of it.
	SeriesStep = 5 * time.Second
	// DefaultSeriesStep is the step of a request that sets no step.
	DefaultSeriesStep = time.Minute
	// SeriesSpan is how long series reach back.
	SeriesSpan = time.Hour
)

// SeriesRequest asks what happened in a tenant in the last hour.
type SeriesRequest struct {
	Tenant string
	// Step is the length of time of each point; 0 for DefaultSeriesStep.
	Step time.Duration
	// Levels also asks for the state of queues and limits.
	Levels bool
}

// Series are numbers by time. Each node counts what it commits, in memory, and the answer is the
// sum of the live nodes. When a node ends, its counts are lost.
type Series struct {
	// From is the start of the first point. The last point is the current one and may not be
	// complete.
	From  model.Time
	Step  time.Duration
	Lines []SeriesLine
	Nodes []SeriesNode
	// Partial says that a live node has not answered, or that a node has not counted for the whole
	// time.
	Partial bool
	// Queues and Limits are the state of queues and limits, sorted by name, if the request asked
	// for Levels. The reply has at most MaxSeriesOf queues and MaxSeriesOf limits in which
	// something happened within the hour. Cut says that there were more.
	Queues, Limits []SeriesOf
	Cut            bool
}

// MaxSeriesOf is the largest number of queues, and of limits, in a reply.
const MaxSeriesOf = 100

// SeriesOf has the numbers of a queue or a limit. A queue has the numbers of waiting, delayed and
// running tasks, and the seconds that its oldest waiting task has waited. A limit has four numbers
// over all its keys: the permits that tasks hold, the tasks that wait for a permit, the permits
// that the nodes may hand out, and how often the limit has refused a task. All numbers except the
// refusals are the state at the end of each point.
type SeriesOf struct {
	Name  string
	Lines []SeriesLine
}

// SeriesLine has the points of one kind of number, the oldest first.
type SeriesLine struct {
	Name   string
	Points []int64
}

// SeriesNode is a live node.
type SeriesNode struct {
	Node     model.NodeID
	Answered bool
	// Since is when the node started to count.
	Since model.Time
}
