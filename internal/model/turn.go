package model

import "time"

// CommandKind says what the code of a workflow asks for.
type CommandKind uint8

// Kinds of commands.
const (
	// append Event as it is, for example the outcome of a step, or a signal that the code took
	CommandRecord CommandKind = 1
	// append Event (attempt failed) and run the step again after Delay
	CommandRetry CommandKind = 2
	// start timer Event.ID, which fires at Event.Due, or after Delay if that is sooner or Due is
	// zero; the history gets no event until it fires
	CommandStartTimer CommandKind = 3
	// stop timer Event.ID, such as the deadline of a scope, because the code no longer needs it;
	// the history gets no event
	CommandStopTimer CommandKind = 4
	// the code gave up on Event.ID: append EventWithdrawn, stop its timer, cancel its child,
	// release its section
	CommandWithdraw   CommandKind = 5
	CommandStartChild CommandKind = 6 // append Event (child started) and send the start
	// append Event (child started, without input) and ask Event.Target for its outcome
	CommandWatch CommandKind = 7
	// append Event (sent) and send Message; the answer comes later
	CommandSend CommandKind = 8
	// append Event (update answered) and answer the sender of the update
	CommandAnswer CommandKind = 9
	// append Event (task scheduled): a worker of its queue executes it, and its outcome comes later
	CommandSchedule CommandKind = 10
	// append Event (lock asked) and request its Locks for the section Event.ID, one after the other
	CommandLock   CommandKind = 11
	CommandUnlock CommandKind = 12 // append Event (unlocked): the section Event.Section ends
)

// Command is one request of the code of a workflow.
type Command struct {
	Kind  CommandKind
	Reuse ReusePolicy // of the child that CommandStartChild begins
	Event Event
	// set in CommandRetry and CommandStartTimer; zero for a timer that has only Event.Due
	Delay   time.Duration
	Message *Message // the message of CommandSend
	Labels  []Label  // labels of the child that CommandStartChild begins
	Terms   *Terms   // terms of that child
}

// Close ends a run.
type Close struct {
	Status Status // Completed, Failed, Canceled or Continued
	// Final says that the policy of the workflow allows no other run after this failure.
	Final   bool
	Output  Payload
	Failure *Failure
	// Input is the input of the next run, if Status is Continued.
	Input Payload
	// Begun are the positions of updates that the code has begun and not answered. The next run
	// must not begin them again.
	Begun []int64
	// Retain is how long the run is kept, if its workflow has its own retention time; zero when the
	// retention time of the engine applies.
	Retain time.Duration
	// Retry is the policy of the workflow for failed runs; nil when it has none. The policy with
	// which the execution was started takes precedence. RetryAfter is the shortest pause before the
	// next run.
	Retry      *Retry
	RetryAfter time.Duration
}

// Turn is a worker's report: outcomes of steps, new requests, the end of the run, and what the run
// waits for.
//
// The code may run ahead: it continues as if the first Ahead commands of the turn were already
// committed, because nothing else is pending. If other events arrive before that commit, the
// engine records the first Ahead commands, because they are facts. It drops the rest of the turn
// and delivers the events. The worker notices that its assumption was wrong, discards its state and
// replays.
type Turn struct {
	Run RunID
	// Generation is the activation that this turn belongs to. A turn of an older activation is
	// stale and changes nothing.
	Generation uint64
	// Seen is the position of the last event that the worker has passed to the code.
	Seen     int64
	Commands []Command
	// Ahead is how many of the Commands were not committed when the code continued and issued the
	// rest. It is 0 when the code did not run ahead.
	Ahead int
	Close *Close
	// Running says that the body of a step runs. If the engine takes the run away from the worker
	// now, the next worker runs the body again.
	Running bool
	// Waits are what the run waits for when every coroutine is parked; the first is the main one.
	Waits []Reason
	// Blocked says that the code does not fit the history (replay mismatch) or cannot run. The
	// engine keeps the run as it is.
	Blocked *Reason
}
