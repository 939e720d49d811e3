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

// Series has numbers by time. Each node counts in memory what it commits. The answer adds up the
// counts of the live nodes. When a node ends, its counts are lost.
type Series struct {
	// From is the start of the first point. The last point is the current one and may not be
	// complete.
	From  model.Time
	Step  time.Duration
	Lines []SeriesLine
	Nodes []SeriesNode
	// Partial says that numbers are missing: a live node has not answered, its counts are not
	// complete for the whole time, or it is of an older release that cannot report Levels.
	Partial bool
	// If the request asked for Levels, Queues and Limits have the state of the queues and limits in
	// which something happened within the hour, sorted by name. Each list has at most MaxSeriesOf
	// entries. Cut says that some queues or limits are left out.
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
	// Since is the time from which the counts of the node are complete. It is later than the start
	// of the node if the node had to drop counts. It is zero if the node has not answered.
	Since model.Time
}
