package api

import "github.com/perdure/perdure/internal/model"

// Bounds of a tally.
const (
	DefaultTally = 10_000  // executions that a tally looks at
	MaxTally     = 100_000 // executions that a caller may ask it to look at
	MaxGroups    = 1000    // groups of one answer
)

// TallyRequest counts executions. The paging fields of the list request are ignored.
type TallyRequest struct {
	ListRequest

	// Workflow, Status and Reason say which properties tell groups apart.
	ByWorkflow, ByStatus, ByReason bool
	// Bound is how many executions are counted at most, the newest first; 0 for DefaultTally.
	Bound int
}

// Tally is a count that stops at a bound.
type Tally struct {
	Count int64
	// AtLeast says that the count has reached its bound: there may be more executions, and more of
	// every group.
	AtLeast bool
	// Groups are the largest groups first; none when the request names no property.
	Groups []TallyGroup
	// Others counts the executions of groups that the answer has no room for.
	Others int64
}

// TallyGroup counts the executions that have the same properties. A property that does not tell
// groups apart is zero.
type TallyGroup struct {
	Workflow string
	Status   model.Status
	// Reason is the code of the main reason as far as the store knows it; empty for a closed
	// execution.
	Reason model.ReasonCode
	Count  int64
}
