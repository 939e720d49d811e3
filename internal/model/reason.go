package model

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ReasonCode is the machine-readable part of a Reason.
type ReasonCode string

// Codes of reasons. The names with a capital letter are fields of [Reason].
const (
	WaitTimer   ReasonCode = "timer"   // a timer that is due at Until
	WaitSignal  ReasonCode = "signal"  // signal Name
	WaitPromise ReasonCode = "promise" // promise Name
	WaitChild   ReasonCode = "child"   // child Name, written workflow/key
	WaitStep    ReasonCode = "step"    // step Name is running
	// attempt Attempt of step Name begins at Until; Detail is the last error
	WaitRetry ReasonCode = "retry"
	// no worker offers the code of workflow Name, or the code that Detail names, such as an
	// activity
	WaitWorker ReasonCode = "no_worker"
	WaitOwner  ReasonCode = "no_owner" // no live node owns the shard
	WaitTurn   ReasonCode = "ready"    // could run, waits until a worker takes it
	// every coroutine is parked and nothing is pending: only a signal or a cancel can wake it
	WaitNothing ReasonCode = "nothing"
	// Detail names what was recorded and what the code asked for
	WaitMismatch ReasonCode = "replay_mismatch"
	// Detail names the value, and the type of the code that it does not fit
	WaitType    ReasonCode = "wrong_type"
	WaitPoison  ReasonCode = "quarantined" // Detail is why the store refused rows
	WaitCorrupt ReasonCode = "corrupt"     // Detail names the row that cannot be decoded
	// Detail names the row that only a newer build can read
	WaitNewer ReasonCode = "newer_version"
	WaitLimit ReasonCode = "history_limit" // the history has reached a limit of events or bytes
	// code blocks outside the scheduler; Detail is the stack
	WaitStuck ReasonCode = "code_blocked"
	// it waits until an operator resumes it, or resumes its queue Name; Detail is why it was paused
	WaitPaused ReasonCode = "paused"
	// execution Name, written workflow/key, has not answered the message that Detail describes
	WaitAnswer ReasonCode = "answer"
	// updates Name have arrived, and the code has no handler for them yet
	WaitHandler ReasonCode = "no_handler"
	// every worker that could take the task is busy, or one is about to take it; Name is the queue,
	// Detail is how many tasks are in front of it, if that is known
	WaitLine ReasonCode = "in_line"
	// every worker that has the code of Name is busy; Detail is how many slots these workers have
	WaitSlot ReasonCode = "no_slot"
	WaitTask ReasonCode = "task" // task Name is on queue Detail, or a worker executes it
	// every permit of limit Name is taken; Detail names the holders
	WaitPermit ReasonCode = "limit"
	// limit Name lets the next task begin at Until; Detail is its rate
	WaitRate ReasonCode = "rate"
	// circuit breaker Name lets nothing through before Until; Detail is why
	WaitBreaker ReasonCode = "breaker"
	WaitUpdate  ReasonCode = "update" // the code continues when it receives an update
	WaitLock    ReasonCode = "lock"   // entity Name is locked; Detail names the holder
	// a warning: the history of the run comes close to the limit; Detail is the size
	WaitLarge ReasonCode = "large_history"
	// entity Name, written entity/key, makes the calls in front of this one first; Detail is how
	// many
	WaitMailbox ReasonCode = "mailbox"
	// the code begins at Until; if the run repeats a failed one, Attempt is the number of the
	// attempt that begins, and Detail is the error of the attempt before
	WaitStart ReasonCode = "start"

	// the owner of its shard has no code for Name, but another node has; Detail is as in WaitWorker
	WaitElsewhere ReasonCode = "code_elsewhere"
	// the execution waits for Name, and Name waits for the execution, directly or through others
	WaitCycle ReasonCode = "cycle"
)

// ReasonCodes returns all codes, in the order in which the documentation explains them.
func ReasonCodes() []ReasonCode {
	return []ReasonCode{
		WaitTimer, WaitSignal, WaitPromise, WaitChild, WaitStep, WaitRetry, WaitWorker, WaitOwner, WaitTurn, WaitNothing, WaitMismatch, WaitType, WaitPoison,
		WaitCorrupt, WaitNewer, WaitLimit, WaitStuck, WaitPaused, WaitAnswer, WaitHandler, WaitTask, WaitLine, WaitSlot,
		WaitPermit, WaitRate, WaitBreaker, WaitUpdate, WaitLock, WaitMailbox, WaitLarge, WaitElsewhere, WaitCycle, WaitStart,
	}
}

// Blocks reports whether a run with this reason is blocked: it continues only after an operator has
// changed something.
func (c ReasonCode) Blocks() bool {
	return c == WaitMismatch || c == WaitType || c == WaitPoison || c == WaitCorrupt || c == WaitNewer || c == WaitLimit
}

// Strands reports whether an open run or a task with this main reason continues only after an
// operator has acted: the operator must start a process, deploy code, or repair or remove the run.
func (c ReasonCode) Strands() bool {
	return c.Blocks() || c == WaitWorker || c == WaitElsewhere || c == WaitOwner
}

// Stranded reports whether a run or a task with these reasons continues only after an operator has
// acted. The main reason comes first.
func Stranded(reasons []Reason) bool {
	return len(reasons) > 0 && (reasons[0].Code.Strands() || slices.ContainsFunc(reasons, func(r Reason) bool { return r.Code == WaitOwner }))
}

// WayOut tells an operator how to remove an execution that cannot be read or continued.
const WayOut = "perdure workflow delete --force --export FILE removes it after its rows have been saved"

// EntityWayOut tells an operator how to remove an entity that cannot be read or changed.
const EntityWayOut = "perdure entity delete --force --export FILE removes it after its rows have been saved"

// Reason says why an open execution, task or call makes no progress. The API, the CLI, the console
// and metrics show the same value.
type Reason struct {
	Code    ReasonCode `cbor:"1,keyasint"`
	Name    string     `cbor:"2,keyasint,omitempty"`
	Until   Time       `cbor:"3,keyasint,omitempty"`
	Attempt int        `cbor:"4,keyasint,omitempty"`
	Detail  string     `cbor:"5,keyasint,omitempty"`

	// Where names processes that have the code that the run waits for, or processes that lack it.
	// The engine computes it for each explanation and never stores it.
	Where string `cbor:"-"`
}

// String returns the sentence that operators read.
func (r Reason) String() string {
	switch r.Code {
	case WaitTimer:
		return "waits for a timer until " + r.Until.String()
	case WaitSignal:
		return "waits for signal " + r.Name
	case WaitPromise:
		return "waits for promise " + r.Name
	case WaitChild:
		return "waits for child " + r.Name
	case WaitStep:
		return "runs step " + r.Name
	case WaitRetry:
		text := fmt.Sprintf("retries step %s, attempt %d, at %s", r.Name, r.Attempt, r.Until)
		if r.Detail != "" {
			text += " after: " + r.Detail
		}
		return text
	case WaitWorker:
		return r.where("waits for a worker that offers " + r.code())
	case WaitElsewhere:
		return r.where("waits for its owner to have the code of " + r.code())
	case WaitOwner:
		return r.where("waits for a node to own shard " + r.Name)
	case WaitCycle:
		return "waits for " + r.Name + ", which waits for it: they wait for each other"
	case WaitTurn:
		return "is running, or ready to"
	case WaitNothing:
		return "waits for nothing: every coroutine is parked and nothing is pending"
	case WaitMismatch:
		return "is blocked by a replay mismatch: " + r.Detail
	case WaitType:
		return "is blocked by a value of the wrong type: " + r.Detail + "; it continues with a build that can read it"
	case WaitPoison:
		return "is quarantined: " + r.Detail
	case WaitCorrupt:
		return "cannot be read: " + r.Detail
	case WaitNewer:
		return "cannot be read by this version, and continues when a newer one owns it: " + r.Detail
	case WaitLimit:
		return "has reached the limit of its history: " + r.Detail
	case WaitStuck:
		return "blocks outside durable calls: " + r.Detail
	case WaitPaused:
		text := "is paused"
		if r.Name != "" {
			text = "waits in queue " + r.Name + ", which is paused"
		}
		if r.Detail != "" {
			text += ": " + r.Detail
		}
		return text
	case WaitAnswer:
		return "waits for the answer of " + strings.TrimPrefix(r.Name, EntityPrefix) + " to " + r.Detail
	case WaitHandler:
		return "has update " + r.Name + ", which its code does not handle yet"
	case WaitLine:
		return "waits in line in queue " + r.Name + ": " + r.Detail
	case WaitSlot:
		return "waits for a free slot of a worker with the code of " + r.Name + ": " + r.Detail
	case WaitTask:
		return "waits for task " + r.Name + " of queue " + r.Detail
	case WaitPermit:
		return "waits for limit " + r.Name + ": " + r.Detail
	case WaitRate:
		if r.Until.IsZero() {
			return "waits for the rate of limit " + r.Name + ", " + r.Detail
		}
		return "waits for the rate of limit " + r.Name + ", " + r.Detail + ", until " + r.Until.String()
	case WaitBreaker:
		if r.Until.IsZero() {
			return "waits for circuit breaker " + r.Name + ": " + r.Detail
		}
		return "waits for circuit breaker " + r.Name + " until " + r.Until.String() + ": " + r.Detail
	case WaitUpdate:
		return "waits for an update"
	case WaitLock:
		if r.Detail == "" {
			return "waits for the lock of " + r.Name
		}
		return "waits for the lock of " + r.Name + ", held by " + r.Detail
	case WaitLarge:
		return "has a large history: " + r.Detail
	case WaitMailbox:
		return "waits for " + r.Name + ": " + r.Detail
	case WaitStart:
		if r.Attempt < 2 {
			return "waits for its start time, " + r.Until.String()
		}
		return fmt.Sprintf("begins again, attempt %d, at %s after: %s", r.Attempt, r.Until, r.Detail)
	}

	return strconv.Quote(string(r.Code))
}

// Summary returns what summaries of an execution say: the main reason, which comes first, and the
// updates that its code does not handle yet. It returns an empty text if there is no reason.
func Summary(reasons []Reason) string {
	if len(reasons) == 0 {
		return ""
	}
	texts := []string{reasons[0].String()}
	for _, r := range reasons[1:] {
		if r.Code == WaitHandler {
			texts = append(texts, r.String())
		}
	}
	return strings.Join(texts, "; ")
}

// code names the code that a run waits for.
func (r *Reason) code() string {
	if r.Detail != "" {
		return r.Detail + " " + r.Name
	}
	return "workflow " + r.Name
}

// where adds the processes to a sentence.
func (r *Reason) where(text string) string {
	if r.Where == "" {
		return text
	}
	return text + ": " + r.Where
}
