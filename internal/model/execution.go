package model

// Status is the state of a run.
type Status uint8

// Statuses. The numbers are stored.
const (
	Running    Status = 1
	Completed  Status = 2
	Failed     Status = 3
	Canceled   Status = 4
	Continued  Status = 5 // the next run of the key has taken over, see Outcome.Next
	Terminated Status = 6 // ended by a client or the engine, without asking its code

	// LastStatus is the highest status that this build knows.
	LastStatus = Terminated
)

var statusNames = map[Status]string{
	Running: "running", Completed: "completed", Failed: "failed", Canceled: "canceled", Continued: "continued",
	Terminated: "terminated",
}

// String returns the word that users see.
func (s Status) String() string {
	if name, ok := statusNames[s]; ok {
		return name
	}
	return "unknown"
}

// ParseStatus reads the word. It reports false for an unknown status.
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

// ReusePolicy says what a start does when a closed execution has the key.
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

// Link names a step of a run, for example the step that waits for the outcome of an execution.
type Link struct {
	Address Address `cbor:"1,keyasint,omitempty"`
	Run     RunID   `cbor:"2,keyasint,omitempty"`
	ID      string  `cbor:"3,keyasint,omitempty"` // the step of that run
}

// Pointer returns a pointer to the link; nil for the zero link.
func (l Link) Pointer() *Link {
	if l == (Link{}) {
		return nil
	}
	return &l
}

// Start is everything that a run begins with. It is stored once, as the row of the run. Event 0 of
// the history is built from it.
type Start struct {
	Address Address
	Run     RunID
	At      Time
	Input   Payload
	// RequestID lets the owner recognise a repeated start of the same key. It may be empty.
	RequestID string
	// Parent is the step that started this run and gets its outcome; zero when a client started it.
	Parent Link
	// OnParentClose is shown to operators. The engine uses the copy that the parent has.
	OnParentClose ParentClosePolicy
	// First is the first run of the chain of runs, and Previous is the run before this one. Both
	// are zero for a first run.
	First, Previous RunID
	// Origin is the digest of the first run's input; empty in a first run. The owner compares the
	// input of a repeated start with it.
	Origin []byte
	// Labels are the labels that the run has from its start on, sorted by name. They are the labels
	// by which the run can be found. The code of the run may change them; see EventLabeled.
	Labels []Label
	// Carried are events that belong to this run from its start, in order: signals and watchers of
	// the run before, signals of a signal-with-start, or the whole past of a fork, retry, reset or
	// import. They become events 1 … n, and are stored inside the row of the run.
	Carried []Event
	// Began is the time of event 0 in the history if the past comes from another run. Zero means
	// that the time is At.
	Began Time
	// Seeds are the runs that seeded the random numbers of the code in the past, in order of
	// position. After the position of the last entry, IdentityRun seeds the random numbers.
	Seeds []Seed
	// Identity is the run whose idempotency keys the steps keep. A retry sets it. It is zero when
	// the steps have their own keys.
	Identity RunID
	// Replaced is the closed run whose key this run took under a reuse policy, without continuing
	// it; zero when there was no such run.
	Replaced RunID
	// Earlier are the runs that may already have executed the steps of this run, under the same
	// idempotency keys, latest first; the run of Identity comes last. They may have been removed
	// since.
	Earlier []RunID
	// Source is where the past comes from; zero without a past.
	Source Source
	// Task is set if the run is a task that stands alone: the run has no code, and ends with the
	// task. If Worker is set, that worker has claimed the task in the commit that starts the run.
	Task   *TaskSpec
	Worker string
	// Trace is the trace context (W3C traceparent) of the client or step that started the run;
	// empty when it is not traced.
	Trace string
	// Begins is the time before which the code does not run; zero when the start was not delayed.
	Begins Time
	// Expires is when the execution times out; zero for never.
	Expires Time
	// Terms apply to the whole execution; nil for none.
	Terms *Terms
	// Attempt is the number of this run among the runs that repeat a failed run with the same
	// input. Both 0 and 1 mean the first. Cause is why the run before failed.
	Attempt int
	Cause   *Failure
}

// Outcome is how a run ended.
type Outcome struct {
	Status  Status
	Output  Payload
	Failure *Failure
	At      Time
	// Seen is the last event that the code had seen when it returned. If the code did not end the
	// run, Seen is the last event of the run. For a reset, it is the last event that the next run
	// keeps. For a task that stands alone and was not terminated, Seen is the claim whose report
	// ended the run, or -1 if no report ended it.
	Seen int64
	// Next is the run that follows if Status is Continued: after continue-as-new, a failed run that
	// is repeated, or a reset.
	Next RunID
	// Leaves is when the run may be removed, if its workflow has its own retention time; zero when
	// the retention time of the engine applies.
	Leaves Time
}
