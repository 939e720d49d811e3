package api

import "github.com/perdure/perdure/internal/model"

// Bounds of an explanation.
const (
	DefaultDepth = 8  // the largest distance from the execution, if the request sets none
	MaxDepth     = 32 // the largest distance that a caller may ask for
	// MaxNodes and MaxEdges bound one graph.
	MaxNodes = 200
	MaxEdges = 1000
)

// ExplainRequest asks why an execution makes no progress.
type ExplainRequest struct {
	Target Target
	// Depth is how many edges away from the execution the graph reaches; 0 for DefaultDepth.
	Depth int
}

// Explanation is a graph that shows what waits for what. It follows all reasons; the chain of a
// Description follows only the main reason. The first node is the execution.
type Explanation struct {
	Nodes []ExplainedNode
	Edges []ExplainedEdge
	// Cut says that the graph was cut off at the depth or at another bound.
	Cut bool
	// Alive says which code the live processes have, if code is missing.
	Alive []string
}

// ExplainedNode is something that waits, or that others wait for.
type ExplainedNode struct {
	Of model.Reference
	// Run and Status are set only for an execution.
	Run    model.RunID
	Status model.Status
	// Reasons say why the execution or entity makes no progress, the main reason first.
	Reasons []model.Reason
	// Unknown says why the engine could not read this node; empty if it could.
	Unknown string
}

// HeldBy is the Reason of an edge from a locked entity to the execution that has locked it.
const HeldBy = -1

// ExplainedEdge says that a node waits for another.
type ExplainedEdge struct {
	From, To int // positions of nodes
	// Reason is a position in the reasons of the node From, or HeldBy.
	Reason int
}
