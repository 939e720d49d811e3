package pgproxy

import (
	"slices"
	"strings"
	"time"
)

// Fault is what happens to a request, or to its answer.
type Fault int

const (
	// Reset resets the client's connection before any byte of the request reaches the server, and
	// closes the connection to the server.
	Reset Fault = iota + 1
	// DropReply lets the server process the request, drops the answer, and after that resets the
	// client's connection. When the client sees the error, the outcome is already decided.
	DropReply
	// Orphan resets the client's connection immediately and gives the request to the server after
	// Rule.Delay. So the server commits long after the client has given up, has connected again and
	// has read the database. The connection to the server stays open until the server has answered.
	Orphan
	// Hang lets the server process the request, drops the answer, and leaves the client's
	// connection open and silent, as when a network swallows packets. The connection ends when the
	// client gives up.
	Hang
	// Delay gives the request to the server after Rule.Delay, and the answer to the client.
	Delay
)

// String returns the name of the fault.
func (f Fault) String() string {
	switch f {
	case Reset:
		return "Reset"
	case DropReply:
		return "DropReply"
	case Orphan:
		return "Orphan"
	case Hang:
		return "Hang"
	case Delay:
		return "Delay"
	default:
		return "?"
	}
}

// Hold says which part of a request is delayed.
type Hold int

const (
	// HoldRequest delays the whole request. The server receives nothing before the end of the
	// delay.
	HoldRequest Hold = iota
	// HoldCommit delays only the message that commits (the Sync, or the Execute of COMMIT): the
	// earlier statements of the batch have run and hold their locks during the delay. A request of
	// a single message, such as a simple query, is delayed as a whole.
	HoldCommit
)

// Rule describes a fault that strikes once.
type Rule struct {
	// Fault is what happens.
	Fault Fault
	// Match selects requests; default: [Commits]. While the rule waits, the proxy calls Match for
	// every request, one request at a time. So Match may count without a lock. It must not call the
	// proxy.
	Match func(Request) bool
	// Nth is the number of the matching request that is struck, counted from the injection;
	// default: 1.
	Nth int
	// Delay is how long [Orphan] and [Delay] hold the request.
	Delay time.Duration
	// Until replaces Delay: if it is set, the proxy holds the request until the channel is closed.
	// A test with Until does not depend on the speed of the machine.
	Until <-chan struct{}
	// Hold is what Delay applies to; default: the whole request.
	Hold Hold
}

// Reply is what the server answered to a request that was struck.
type Reply struct {
	// Reached says that the whole request was sent to the server.
	Reached bool
	// Answered says that the server answered completely. It is false if the connection to the
	// server was lost before that.
	Answered bool
	// Tags has the command tags of the statements that completed, such as "INSERT 0 1".
	Tags []string
	// SQLState is the code of the error, if the answer had one.
	SQLState string
}

// Committed reports whether the server confirmed everything in the request. If the request was
// Reached and not Answered, the result is false although the server may have committed.
func (r Reply) Committed() bool {
	return r.Answered && r.SQLState == "" && !slices.Contains(r.Tags, "ROLLBACK")
}

// String describes the reply for the message of a test.
func (r Reply) String() string {
	switch {
	case !r.Reached:
		return "never sent"
	case r.SQLState != "":
		return "error " + r.SQLState
	case !r.Answered:
		return "no answer"
	default:
		return strings.Join(r.Tags, ", ")
	}
}

// Trigger is a rule that waits or has struck.
type Trigger struct {
	rule  Rule
	proxy *Proxy
	left  int // matches until it strikes; protected by proxy.mu

	hit, done chan struct{}
	request   Request // valid when hit is closed
	reply     Reply   // valid when done is closed
}

// Hit is closed when the rule has caught a request, after the immediate effect of the fault on the
// client.
func (t *Trigger) Hit() <-chan struct{} { return t.hit }

// Done is closed when the fault is complete: the server has answered or its connection has ended,
// and the client has been cut off if the fault does that.
func (t *Trigger) Done() <-chan struct{} { return t.done }

// Request returns the request that was caught. It waits for [Trigger.Hit].
func (t *Trigger) Request() Request {
	<-t.hit
	return t.request
}

// Reply returns what the server answered. It waits for [Trigger.Done].
func (t *Trigger) Reply() Reply {
	<-t.done
	return t.reply
}

// Cancel withdraws the rule. It returns false if the rule has already caught a request.
func (t *Trigger) Cancel() bool {
	t.proxy.mu.Lock()
	defer t.proxy.mu.Unlock()
	return t.proxy.disarm(t)
}

// finish records the reply and closes done.
func (t *Trigger) finish(r Reply) {
	t.reply = r
	close(t.done)
}
