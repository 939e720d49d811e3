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

	// ByWorkflow, ByStatus and ByReason select the properties that distinguish groups.
	ByWorkflow, ByStatus, ByReason bool
	// Bound is the largest number of executions to count, the newest first; 0 for DefaultTally.
	Bound int
}

// Tally is a count that stops at a bound.
type Tally struct {
	Count int64
	// AtLeast says that the count has reached its bound: there may be more executions, and more of
	// every group.
	AtLeast bool
	// Groups are the groups, the largest first; none when the request names no property.
	Groups []TallyGroup
	// Others counts the executions of groups that the answer has no room for.
	Others int64
}

// TallyGroup counts the executions that have the same properties. A property that does not
// distinguish groups is zero.
type TallyGroup struct {
	Workflow string
	Status   model.Status
	// Reason is the code of the main reason as far as the store knows it; empty for a closed
	// execution.
	Reason model.ReasonCode
	Count  int64
}
