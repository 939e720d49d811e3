package model

// InlineQueue is where attempts that run in the process of their workflow wait for limits and
// breakers. Users cannot name it, and no rule for queues selects it.
const InlineQueue = "\x00inline"

// Passage is the outcome of an attempt that the worker of a workflow made itself, for the breaker
// that it passed.
type Passage uint8

// Outcomes of a passage.
const (
	// it did not begin, or its end says nothing about the other side
	PassageNeither   Passage = iota
	PassageSucceeded         // the attempt succeeded
	PassageFailed            // the attempt failed
)
