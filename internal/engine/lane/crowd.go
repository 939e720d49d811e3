package lane

import (
	"fmt"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// checkCrowd refuses a request of a client if too much waits for its address. There are three
// limits: the number of requests, their bytes, and the time that the first has waited. The limits
// on bytes and time apply only if more requests wait than a batch takes. checkCrowd looks only at
// the backlog of the lane: inputs that are not applied yet. An update that the code has not
// answered has been applied, and may wait as long as its caller likes. For calls of entities see
// whyStalled.
//
// The lane does not refuse a few callers that wait during an outage of the store, however long the
// outage lasts. The lane refuses requests only if the line grows and the inputs in it do not move.
func (l *Lane) checkCrowd(now model.Time, e *entry, in *messageInput) error {
	n := len(e.backlog.inputs)
	if n == 0 || in.isForced() { // an operator can always remove an address
		return nil
	}
	age := now.Sub(e.backlog.inputs[0].base().since)
	switch {
	case n >= l.cfg.MaxBacklog:
	case n > l.cfg.PerKey && age >= l.cfg.MaxWait && !in.isWrite():
		// The lane still accepts data that a task writes: the report of the task follows, and after
		// the report the data could no longer be written.
	case n > l.cfg.PerKey && l.budget.used >= l.cfg.MaxBytes/4 && e.waitingBytes() >= l.cfg.MaxBytes/4:
	default:
		return nil
	}
	return fault.New(fault.Exhausted, "%d requests already wait for %s, the first one for %s: %s", n, e.address, age.Round(time.Millisecond), l.whyWaiting(e))
}

// waitingBytes returns how many bytes wait for the address.
func (e *entry) waitingBytes() (n int) {
	for _, in := range e.backlog.inputs {
		n += in.base().held
	}
	return n
}

// whyWaiting says what keeps the backlog of an entry from being applied.
func (l *Lane) whyWaiting(e *entry) string {
	switch {
	case l.recovery.careful():
		return "a commit was refused or late, and its inputs are applied again in smaller commits"
	case l.recovery.busy():
		return "the store has not taken the last commit"
	case e.reading.active:
		return "it is being read from the store"
	case e.pending.starting:
		return "its start is being committed"
	case e.pending.removing:
		return "its old runs are being removed"
	case e.quarantine.why != nil:
		return "it " + e.quarantine.why.String()
	}
	return "more requests come than commits can take"
}

// maxLine is how long the first call of a line may wait for its turn before the lane refuses
// clients. Operations may take seconds, and a line that moves is no reason to refuse a call.
const maxLine = 30 * time.Second

// whyStalled returns why an entity takes no further call of a client: more than Config.PerKey calls
// wait, and the first of them has waited too long. It is empty when the call may wait. One-way
// calls and calls of workflows have no such bound. For them, only the size of the mailbox counts.
func (l *Lane) whyStalled(now model.Time, e *entry, in *messageInput) string {
	m, n := in.origin.message, e.actor.entity
	if m.Kind != model.MessageCall || m.OneWay || m.Section != "" || in.origin.pair != nil || in.origin.passed || n.MailCount() <= l.cfg.PerKey {
		return ""
	}
	waiting, since := n.Line()
	age := now.Sub(since)
	if waiting <= l.cfg.PerKey || age < maxLine {
		return ""
	}

	why := "calls arrive faster than they run"
	switch {
	case n.Row.Locked():
		why = "it is locked by " + n.Row.Holder.Address.String()
	case l.entityType(e) == nil:
		why = noWorker(e).String()
	}

	return fmt.Sprintf("%d calls and lock requests already wait for %s, the first one for %s: %s", waiting, e.address, age.Round(time.Millisecond), why)
}
