package model

import "time"

// CommandKind says what the code of a workflow asks for.
type CommandKind uint8

// Kinds of commands.
const (
	// append Event as it is: an outcome of a step, a signal taken
	CommandRecord CommandKind = 1
	// append Event (attempt failed) and run the step again after Delay
	CommandRetry CommandKind = 2
	// Event.ID fires at Event.Due, or Delay from now on if that is sooner or Due is zero; no event
	// until then
	CommandStartTimer CommandKind = 3
	// Event.ID is not needed any more; leaves no event (deadline of a scope)
	CommandStopTimer CommandKind = 4
	// the code cancelled Event.ID: append EventWithdrawn, stop its timer, cancel its child
	CommandWithdraw   CommandKind = 5
	CommandStartChild CommandKind = 6 // append Event (child started) and send it on its way
	// append Event (child started, without input) and ask Event.Target for its outcome
	CommandWatch CommandKind = 7
	// append Event (sent) and send Message; its answer comes back
	CommandSend CommandKind = 8
	// append Event (update answered) and tell whoever sent the update
	CommandAnswer CommandKind = 9
	// append Event (task scheduled): a worker of its queue executes it, and its outcome follows
	CommandSchedule CommandKind = 10
	// append Event (lock asked) and ask its Locks for the section Event.ID, one after the other
	CommandLock   CommandKind = 11
	CommandUnlock CommandKind = 12 // append Event (unlocked): the section Event.Section ends
)

// Command is one thing that the code of a workflow asks for.
type Command struct {
	Kind  CommandKind
	Event Event
	// of CommandRetry and CommandStartTimer; zero for a timer that has only Event.Due
	Delay   time.Duration
	Message *Message // of CommandSend
	Reuse   ReusePolicy
	Labels  []Label // of the child that CommandStartChild begins
	Terms   *Terms  // of that child
}

// Close ends a run.
type Close struct {
	Status  Status // Completed, Failed, Canceled or Continued
	Output  Payload
	Failure *Failure
	// Input of the next run, when Continued.
	Input Payload
	// Begun are the positions of updates that the code has begun and not answered: the next run
	// must not begin them again.
	Begun []int64
	// Retain is how long the run is kept, if its workflow has a retention time of its own; zero
	// when that of the engine counts.
	Retain time.Duration
	// Retry is the policy of the workflow for runs that failed; nil when it has none. The policy
	// that the execution was started with goes before it. Final tells that the policy of the
	// workflow finds the failure not worth another run, RetryAfter how long the next one waits at
	// least.
	Retry      *Retry
	Final      bool
	RetryAfter time.Duration
}

// Turn is what a worker reports: outcomes of steps, new requests, the end of the run, and what it
// waits for.
//
// The code may have run ahead of the commit of the first Ahead commands (an outcome that it took
// for granted because nothing else was pending). When other events came in between, the engine
// records those first commands, which are facts, drops the rest of the turn and delivers the
// events; the worker finds its expectation broken, throws its state away and replays.
type Turn struct {
	Run RunID
	// Generation is the activation that this belongs to; a turn of an older one is stale and
	// changes nothing.
	Generation uint64
	// Seen is the position of the last event that the code had been fed.
	Seen     int64
	Commands []Command
	// Ahead is how many of the Commands the code took for granted before the others were made; 0
	// when it did not run ahead.
	Ahead int
	Close *Close
	// Running tells that the body of a step runs: whoever takes the run away now has it run again.
	Running bool
	// Waits says what the run waits for when every coroutine is parked; the first is the main one.
	Waits []Reason
	// Blocked means that the code does not fit the history (replay mismatch) or cannot run; the run
	// is kept as it is.
	Blocked *Reason
}
