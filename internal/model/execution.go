package model

// Status is the state of a run.
type Status uint8

// Statuses. The numbers are stored.
const (
	Running    Status = 1
	Completed  Status = 2
	Failed     Status = 3
	Canceled   Status = 4
	Continued  Status = 5 // ended by continue-as-new; the next run has the same key
	Terminated Status = 6 // ended from outside, without a word of its code

	// LastStatus is the highest status that this build knows.
	LastStatus = Terminated
)

var statusNames = map[Status]string{
	Running: "running", Completed: "completed", Failed: "failed", Canceled: "canceled", Continued: "continued",
	Terminated: "terminated",
}

// String is the word that users see.
func (s Status) String() string {
	if name, ok := statusNames[s]; ok {
		return name
	}
	return "unknown"
}

// ParseStatus reads the word; ok is false when there is no such status.
func ParseStatus(word string) (s Status, ok bool) {
	for s := Running; s <= LastStatus; s++ {
		if statusNames[s] == word {
			return s, true
		}
	}
	return 0, false
}

// Closed reports whether the run has ended, in whatever way.
func (s Status) Closed() bool { return s > Running }

// ReusePolicy says what a start does when the key was used by a closed execution.
type ReusePolicy uint8

// Policies of reuse. The numbers are stored.
const (
	ReturnExisting ReusePolicy = 0
	ReuseIfFailed  ReusePolicy = 1
	ReuseAlways    ReusePolicy = 2
)

// ParentClosePolicy says what happens to a child when its parent closes.
type ParentClosePolicy uint8

// Policies on the close of a parent. The numbers are stored.
const (
	CancelChild  ParentClosePolicy = 0
	AbandonChild ParentClosePolicy = 1
)

// Link points back to whoever waits for the outcome of an execution: a step of a run.
type Link struct {
	Address Address `cbor:"1,keyasint,omitempty"`
	Run     RunID   `cbor:"2,keyasint,omitempty"`
	ID      string  `cbor:"3,keyasint,omitempty"` // the step of that run
}

// Start is everything that begins a run. It is stored once, as the row of the run;
// event 0 of the history is made from it.
type Start struct {
	Address Address
	Run     RunID
	At      Time
	Input   Payload
	// RequestID deduplicates a repeated start of the same key; may be empty.
	RequestID string
	// Parent is who asked for this run and hears its outcome; zero when a client did.
	Parent Link
	// OnParentClose is told by the parent; stored for people to see.
	OnParentClose ParentClosePolicy
	// First is the first run of the chain, Previous the one before; both zero for a first run.
	First, Previous RunID
	// Origin is the digest of the input of the first run, empty in a first run: a repeated start of
	// the key is compared with it.
	Origin []byte
	// Labels are what the run can be found by from its first moment, sorted by name. Its code may
	// change them; see EventLabeled.
	Labels []Label
	// Carried are events that belong to this run from its first moment, in order: signals and
	// watchers of the run before and those that a signal-with-start brought along, or the whole
	// past of a fork, retry, reset or import. They become events 1 … n without rows of their own.
	Carried []Event
	// Began is the journal time of event 0 when the past is another's; zero when it is At.
	Began Time
	// Seeds are whose random numbers the past was made with, in order of position; behind the last
	// one they are this run's own.
	Seeds []Seed
	// Identity is the run whose idempotency keys the steps keep, set by a retry; zero when they
	// have their own.
	Identity RunID
	// Replaced is the closed run whose place this one took under a reuse policy, without going on
	// with it; zero when there was none.
	Replaced RunID
	// Earlier are the runs in whose name this one makes its steps, the last one first, that of
	// Identity at the end. They may have been removed since.
	Earlier []RunID
	// Source is where the past comes from; zero when there is none.
	Source Source
	// Task makes the run that of a task which stands alone: it has no code, and ends with the task.
	// Worker is who claims it at once.
	Task   *TaskSpec
	Worker string
	// Trace is the trace context (W3C traceparent) that what the run does belongs to: that of
	// whoever started it. Empty when nobody traces.
	Trace string
	// Begins is before when its code does not run; zero when that was not put off.
	Begins Time
	// Expires is when the execution ends as timed out, if it has not ended before; zero for never.
	Expires Time
	// Terms are what the whole execution was started with; nil for nothing special.
	Terms *Terms
	// Attempt counts runs with the same input, one after another because the one before failed; 0
	// is the first one, as 1 is. Cause is why the one before failed.
	Attempt int
	Cause   *Failure
}

// Outcome is how a run ended.
type Outcome struct {
	Status  Status
	Output  Payload
	Failure *Failure
	At      Time
	// Seen is the last event that the code had seen when it returned.
	Seen int64
	// Next is the run that follows after continue-as-new.
	Next RunID
	// Leaves is when the run may be removed, if its workflow has a retention time of its own; zero
	// when that of the engine counts.
	Leaves Time
}
