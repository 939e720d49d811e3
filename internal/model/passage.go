package model

// InlineQueue is where attempts wait for limits and breakers that run where their workflow runs. It
// is no queue for users, who cannot name it, and no rule for queues selects what is in it.
const InlineQueue = "\x00inline"

// Passage is what came of an attempt that a worker of workflows made itself, for the breaker that
// it passed.
type Passage uint8

// Outcomes of a passage.
const (
	// it did not begin, or its end says nothing about the other side
	PassageNeither   Passage = iota
	PassageSucceeded         // the attempt succeeded
	PassageFailed            // the attempt failed
)
