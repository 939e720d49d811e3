package api

import (
	"time"

	"github.com/perdure/perdure/internal/model"
)

// Times of series.
const (
	// SeriesStep is the shortest step, and every step is a multiple of it.
	SeriesStep = 5 * time.Second
	// DefaultSeriesStep is the step of a request that names none.
	DefaultSeriesStep = time.Minute
	// SeriesSpan is how long series reach back.
	SeriesSpan = time.Hour
)

// SeriesRequest asks what happened in a tenant in the last hour.
type SeriesRequest struct {
	Tenant string
	// Step is the length of a point; 0 for DefaultSeriesStep.
	Step time.Duration
	// Levels asks for the state of queues and limits too.
	Levels bool
}

// Series are numbers by time. Each node counts what it commits, in memory, and the answer is the
// sum of the live nodes. What a node counted is gone when it ends.
type Series struct {
	// From is the beginning of the first point. The last point is the current one.
	From  model.Time
	Step  time.Duration
	Lines []SeriesLine
	Nodes []SeriesNode
	// Partial says that a live node has not answered, or that a node has counted for less than the
	// whole time.
	Partial bool
	// Queues and Limits are the state of queues and limits, by name, if the request asked for
	// Levels. The reply has at most MaxSeriesOf queues and MaxSeriesOf limits in which something
	// happened within the hour. Cut says that there were more.
	Queues, Limits []SeriesOf
	Cut            bool
}

// MaxSeriesOf bounds the queues, and the limits, of a reply.
const MaxSeriesOf = 100

// SeriesOf has the numbers of a queue or a limit. A queue has the numbers of waiting, delayed and
// running tasks, and the seconds that its oldest waiting task has waited. A limit has, over all its
// keys, the permits that are held, the tasks that wait for it, the permits that the nodes may hand
// out, and how often it has refused a task. All numbers except the refusals are the state at the
// end of each point.
type SeriesOf struct {
	Name  string
	Lines []SeriesLine
}

// SeriesLine has one kind of number, the oldest point first.
type SeriesLine struct {
	Name   string
	Points []int64
}

// SeriesNode is a live node.
type SeriesNode struct {
	Node     model.NodeID
	Answered bool
	// Since is when the node began to count.
	Since model.Time
}
