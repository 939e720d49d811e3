package model

// InlineQueue is the queue of steps that run in the process of their workflow. There they wait for
// limits and breakers. Users cannot name this queue, and no rule for queues selects it.
const InlineQueue = "\x00inline"

// AttemptMark separates the id of a step from a counter. Together they identify one attempt of a
// step that runs in the process of its workflow.
const AttemptMark = "\x1f"

// Passage is the outcome of an attempt that the worker of a workflow made itself. The breaker that
// the attempt passed counts it.
type Passage uint8

// Outcomes of a passage.
const (
	// the attempt did not begin, or its end says nothing about the called service
	PassageNeither   Passage = iota
	PassageSucceeded         // the attempt succeeded
	PassageFailed            // the attempt failed
)
