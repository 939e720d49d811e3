package model

// Activation is a run handed to a worker.
type Activation struct {
	Start      Start
	Generation uint64
	// Events are the events after the start, including carried ones: positions 1, 2, …
	Events []Event
	// Now is the owner's clock.
	Now Time
	// Begun says that the code has run before, although Events may not show it: it waits, or it has
	// timers.
	Begun bool
	// Limits are the limits of the history.
	Limits HistoryLimits
}

// HistoryLimits bound the history of a run; 0 is no bound.
type HistoryLimits struct {
	Events int64
	Bytes  int
}

// Query is a question to the code of a run.
type Query struct {
	ID    uint64
	Name  string
	Input Payload
}

// Offer says which workflows a worker can run.
type Offer struct {
	Name      string // for operators
	Tenant    string // tenant of the runs; empty for the default one
	Workflows []string
	// Pinned are the Workflows whose runs only workers of the version that began them continue.
	Pinned  []string
	Version string
}
