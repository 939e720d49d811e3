package lane

import (
	"time"

	"github.com/perdure/perdure/internal/model"
)

// FactKind says what a Fact is about.
type FactKind uint8

// Kinds of facts. The words with a capital letter are fields of Fact that the kind sets.
const (
	FactBatch   FactKind = iota + 1 // N inputs shared a commit
	FactTurn                        // workflow code has taken a turn
	FactStarted                     // a run of a workflow began
	// a run of a workflow ended: Status, Failure, Trace, Since, At
	FactClosed
	// a run stopped until a person changes something: Word is the reason
	FactBlocked
	FactStep // an attempt of step Name, which ran in the process of its workflow, ended: Outcome
	// a task was created: Name and Queue, as in all facts about tasks
	FactSubmitted
	FactClaimed // a worker has an attempt: Since is when the attempt could have started
	// an attempt ended: Outcome, Failure, Since is when it was claimed
	FactAttempt
	FactTimedOut // Word is which time-out of a task passed
	FactDead     // a task failed permanently
	FactRequeued // a dead task was requeued
	FactPurged   // a dead task was purged
	FactTimer    // a timer fired: Since is when it was due
	// the lane decided about a message: Message, Refused; Name and Trace are of the message, Of is
	// the trace of the run
	FactMessage
	FactRemoved // N closed runs were removed
	// operation Name of an entity was called: Outcome, Failure, Trace; Since is when the call
	// arrived, Handed when a worker got it
	FactCall
	// a worker has run N calls of an entity: Since is when it got them
	FactHandOver
	// a section has locked an entity: Since is when the section asked for the lock
	FactLocked
	// a section has lost the lock of an entity: Since is when it got the lock, Word is released or
	// taken
	FactUnlocked
)

// Outcome is how an attempt of a step or task ended.
type Outcome uint8

// Outcomes.
const (
	Completed Outcome = iota + 1
	Retried           // failed, and is repeated
	Failed            // failed, and is not repeated
	TimedOut
	Lost     // its worker went away
	Returned // given back; this uses up no attempt
	Canceled
	Refused // the call did not run
)

// Fact is something that has become durable, for metrics and traces. The lane that decided it
// reports it once, after the commit. Kind says what the fact is about.
type Fact struct {
	Kind    FactKind
	Outcome Outcome
	Status  model.Status
	Message model.MessageKind
	Refused bool
	Again   bool // of an attempt: another attempt follows
	N       int
	Address model.Address
	Run     model.RunID
	Name    string
	Queue   string
	Word    string
	Trace   string
	Of      string
	Failure *model.Failure
	Since   model.Time
	Handed  model.Time
	At      model.Time
}

// Took returns the time between Since and At.
func (f *Fact) Took() time.Duration { return f.At.Sub(f.Since) }
