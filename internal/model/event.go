package model

// EventKind says what an event of a history is. The numbers are stored and never reused.
type EventKind uint8

// Kinds of events. An event marked (asked) belongs to something that the code asked for, and has
// the ID of that request. The code did not ask for the other events, which may occur anywhere in a
// history. The names with a capital letter are the fields of [Event] that an event of the kind
// sets.
const (
	EventStarted       EventKind = 1 // event 0; built from the row of the run
	EventStepCompleted EventKind = 2 // (asked) a step returned: Input, Output
	EventStepFailed    EventKind = 3 // (asked) the last attempt of a step failed: Input, Failure
	// (asked) an attempt failed, and the next one begins at Due: Attempt, Failure
	EventAttemptFailed EventKind = 4
	EventTimerFired    EventKind = 5 // (asked) a timer or the deadline of a scope: Due
	// (asked) the code gave up on what ID asked for, such as a step, a timer or a child, before its
	// outcome
	EventWithdrawn      EventKind = 6
	EventSignalReceived EventKind = 7  // Name, Input, RequestID
	EventSignalTaken    EventKind = 8  // (asked) the code took the signal of position Ref: Name
	EventPromiseSettled EventKind = 9  // Name, and Output or Failure
	EventChildStarted   EventKind = 10 // (asked) a child was asked for: Target, Input
	// (asked) the outcome of a child or of a watched execution: Status, Output, Failure
	EventChildClosed EventKind = 11
	// (asked) the code sent a message to Target: Name; the answer follows as EventAnswered
	EventSent          EventKind = 12
	EventCancelRequest EventKind = 13 // Failure.Message is the reason
	EventWatched       EventKind = 14 // Watcher wants to know the outcome of this run
	EventClosed        EventKind = 15 // the last event; built from the row of the run
	EventVersionMarked EventKind = 16 // (asked) the code chose version Ref of change Name
	// (asked) the code set state Name to Output, or removed it (no Output)
	EventStateSet EventKind = 17
	// Name, Input, RequestID; Watcher is the step that gets the answer
	EventUpdateReceived EventKind = 18
	// (asked) the code answered the update of position Ref: Output or Failure
	EventUpdateAnswered EventKind = 19
	// (asked) the answer to a message that was sent: Output or Failure
	EventAnswered EventKind = 20
	EventPinned   EventKind = 21 // (asked) only workers of version Name continue the run
	// an operator paused the run: no worker continues it until it is resumed; Failure.Message is
	// the reason
	EventPaused  EventKind = 22
	EventResumed EventKind = 23
	// (asked) the code set label Name to the text Output, or removed it if Output is empty
	EventLabeled EventKind = 24

	// (asked) a task was scheduled: Name is its kind, Input, Task; if Worker is set, that worker
	// has claimed it in the same commit
	EventTaskScheduled EventKind = 25
	// (asked) attempt Attempt of the task begins on Worker; the position is the token of the claim
	EventTaskClaimed EventKind = 26
	// (asked) the worker gave the task back without using up an attempt; workers may claim it again
	// from Due on
	EventTaskReturned EventKind = 27
	// (asked) a time-out ended the attempt: Failure says which; the next attempt begins at Due, or
	// there is none if Due is zero
	EventTaskTimedOut EventKind = 28

	// (asked) the section ID asks for Locks, one after the other in their order
	EventLockAsked EventKind = 29
	// (asked) Target is locked for the section ID: Ref is the fencing token. The code continues
	// when all Locks are granted
	EventLockGranted EventKind = 30
	// (asked) the section Section has ended and holds no lock
	EventUnlocked EventKind = 31

	// an operator removed the signal at position Ref: Name, Seen, RequestID; Failure.Message is the
	// reason
	EventSignalDropped EventKind = 32

	// (asked) the worker noted something for itself: Name, Input, Ref. The engine stores the event
	// and does not interpret it
	EventNoted EventKind = 33

	// LastEventKind is the highest kind that this build knows.
	LastEventKind = EventNoted
)

var eventNames = [...]string{
	EventStarted: "started", EventStepCompleted: "step_completed", EventStepFailed: "step_failed",
	EventAttemptFailed: "attempt_failed", EventTimerFired: "timer_fired", EventWithdrawn: "withdrawn",
	EventSignalReceived: "signal_received", EventSignalTaken: "signal_taken", EventPromiseSettled: "promise_settled",
	EventChildStarted: "child_started", EventChildClosed: "child_closed", EventSent: "sent",
	EventCancelRequest: "cancel_requested", EventWatched: "watched", EventClosed: "closed",
	EventVersionMarked: "version_marked", EventStateSet: "state_set", EventUpdateReceived: "update_received",
	EventUpdateAnswered: "update_answered", EventAnswered: "answered", EventPinned: "pinned", EventPaused: "paused",
	EventResumed: "resumed", EventLabeled: "labeled", EventTaskScheduled: "task_scheduled", EventTaskClaimed: "task_claimed",
	EventTaskReturned: "task_returned", EventTaskTimedOut: "task_timed_out",
	EventLockAsked: "lock_asked", EventLockGranted: "lock_granted", EventUnlocked: "unlocked",
	EventSignalDropped: "signal_dropped", EventNoted: "noted",
}

// String returns the name that the CLI shows.
func (k EventKind) String() string {
	if int(k) < len(eventNames) && eventNames[k] != "" {
		return eventNames[k]
	}
	return "unknown"
}

// Known reports whether this build understands the kind.
func (k EventKind) Known() bool { return int(k) < len(eventNames) && eventNames[k] != "" }

// News reports whether an event of the kind lets the code continue, so that a step may begin. A
// worker answers such an event with a turn, even if the code did nothing. Until that turn arrives,
// the owner must assume that the body of a step runs. Events of other kinds only record what the
// code did itself.
func (k EventKind) News() bool {
	switch k {
	case EventStepCompleted, EventStepFailed, EventAttemptFailed, EventTimerFired, EventSignalReceived, EventPromiseSettled,
		EventChildClosed, EventCancelRequest, EventUpdateReceived, EventAnswered, EventTaskTimedOut, EventLockGranted:
		return true
	case EventStarted, EventClosed, EventWatched, EventSignalTaken, EventChildStarted, EventSent, EventWithdrawn, EventVersionMarked,
		EventStateSet, EventUpdateAnswered, EventPinned, EventPaused, EventResumed, EventLabeled,
		EventTaskScheduled, EventTaskClaimed, EventTaskReturned, EventLockAsked, EventUnlocked, EventSignalDropped, EventNoted:
	}
	return false
}

// Event is one fact of the history of a run. Its Kind says which fields are set. Positions are 0,
// 1, 2, … without a gap; times never decrease.
type Event struct {
	Seq  int64     `cbor:"-"` // Seq, At and Kind are stored as columns
	At   Time      `cbor:"-"`
	Kind EventKind `cbor:"-"`

	// The small fields stand together, because every event of a step is allocated on its own.

	// Status is how a child ended. For an attempt of a task, it is Terminated if the engine ended
	// the attempt without a report of the worker.
	Status Status            `cbor:"11,keyasint,omitempty"`
	Policy ParentClosePolicy `cbor:"14,keyasint,omitempty"`
	// Detached marks a child whose outcome the code never waits for.
	Detached bool `cbor:"16,keyasint,omitempty"`
	// Seen marks a dropped signal whose presence the code may have noticed before the drop.
	Seen bool `cbor:"21,keyasint,omitempty"`

	// ID identifies what the code asked for: coroutine path, name, and key or arguments. See
	// internal/replay/id.go.
	ID      string   `cbor:"1,keyasint,omitempty"`
	Name    string   `cbor:"2,keyasint,omitempty"`
	Attempt int      `cbor:"3,keyasint,omitempty"`
	Input   Payload  `cbor:"4,keyasint,omitzero"`
	Output  Payload  `cbor:"5,keyasint,omitzero"`
	Failure *Failure `cbor:"6,keyasint,omitempty"`
	Due     Time     `cbor:"7,keyasint,omitempty"`
	Ref     int64    `cbor:"8,keyasint,omitempty"`
	Target  Address  `cbor:"9,keyasint,omitzero"`
	Run     RunID    `cbor:"10,keyasint,omitzero"` // run of Target, if known
	// Watcher is the step that waits for an outcome or an answer; nil if there is none. It is a
	// pointer because few events have one. In the event of a child in a past, Watcher.Run is the
	// run that started the child. Copies of the event share the link, so it never changes.
	Watcher *Link `cbor:"12,keyasint,omitempty"`
	// RequestID is the id under which a client sent the message. The owner drops repeated messages
	// with the same id.
	RequestID string `cbor:"13,keyasint,omitempty"`
	// Position is file:line of the call in user code. With it, the report of a replay mismatch can
	// name the line that recorded the event as well as the line of the new code.
	Position string `cbor:"15,keyasint,omitempty"`
	// Task says how a task is executed. Worker is the worker that claims it.
	Task   *TaskSpec `cbor:"17,keyasint,omitempty"`
	Worker string    `cbor:"18,keyasint,omitempty"`
	// Locks are the entities that a section asks for, sorted and without duplicates. Section is the
	// section that makes a call, or that ends.
	Locks   []Address `cbor:"19,keyasint,omitempty"`
	Section string    `cbor:"20,keyasint,omitempty"`
}

// Waiter returns the step that waits for an outcome or an answer; the zero link if there is none.
func (e *Event) Waiter() Link {
	if e.Watcher == nil {
		return Link{}
	}
	return *e.Watcher
}

// TimedOutForGood reports whether the event ends a task because of a time-out, so that no attempt
// follows.
func (e *Event) TimedOutForGood() bool { return e.Kind == EventTaskTimedOut && e.Due == 0 }

// Size estimates the bytes that the event takes in memory and on disk.
func (e *Event) Size() int {
	n := 64 + len(e.ID) + len(e.Name) + e.Input.Size() + e.Output.Size() + len(e.RequestID) + len(e.Position) + len(e.Section)
	for i := range e.Locks {
		n += 32 + len(e.Locks[i].Key)
	}
	return n + e.Failure.Size()
}
