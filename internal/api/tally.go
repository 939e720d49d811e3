package api

import "github.com/perdure/perdure/internal/model"

// Bounds of a tally.
const (
	DefaultTally = 10_000  // executions that a tally counts
	MaxTally     = 100_000 // executions that a caller may ask it to count
	MaxGroups    = 1000    // groups of one answer
)

// TallyRequest counts executions. It ignores the paging fields of the list request.
type TallyRequest struct {
	ListRequest

	// ByWorkflow, ByStatus and ByReason select the properties by which executions are grouped.
	ByWorkflow, ByStatus, ByReason bool
	// Bound is the largest number of executions to count, the newest first; 0 for DefaultTally.
	Bound int
}

// Tally is a count that stops at a bound.
type Tally struct {
	Count int64
	// AtLeast says that the count has reached its bound. There may be more executions, in total and
	// in every group.
	AtLeast bool
	// Groups are the groups, the largest first. There are none if the request selects no property.
	Groups []TallyGroup
	// Others counts the executions of groups that do not fit into the answer.
	Others int64
}

// TallyGroup counts the executions that have the same properties. A property that the request does
// not select is zero.
type TallyGroup struct {
	Workflow string
	Status   model.Status
	// Reason is the code of the main reason, as far as the store knows it. It is empty for a closed
	// execution.
	Reason model.ReasonCode
	Count  int64
}
