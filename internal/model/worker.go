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
	Tenant    string // tenant of the runs
	Workflows []string
	// Pinned are the Workflows whose runs only workers of the version that began them continue.
	Pinned  []string
	Version string
}

// TaskWorker executes tasks. The engine calls it, and so does whatever stands between the engine
// and the worker. No method may block.
type TaskWorker interface {
	// Execute hands over claims that are all committed, never more at a time than the worker has
	// slots for.
	Execute(claims []Claim)
	// Stop tells the worker that the engine no longer waits for the outcome of a claim.
	Stop(claim ClaimRef, why StopReason)
	// Settle tells the worker that the engine has stored a report, or why the report counts for
	// nothing: NotOwned when another worker has the claim. A report that is handed in twice is
	// settled twice, with one effect.
	Settle(claim ClaimRef, err error)
}

// StopReason says why the engine no longer waits for a claim.
type StopReason uint8

// Reasons to stop.
const (
	// StopCanceled is a task that was cancelled. It may clean up, and its report counts.
	StopCanceled StopReason = iota + 1
	// StopLost is a claim that timed out, that another worker has, or whose run has ended. Its
	// report counts for nothing.
	StopLost
)
