package core

import (
	"fmt"
	"slices"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Bytes estimates the size of the history: the input of the run and all its events, including the
// events that it began with.
func (x *Execution) Bytes() int { return x.bytes }

// Unread estimates the size of the signals that the code has not taken, the updates that it has not
// answered, and the promises that it has not seen.
func (x *Execution) Unread() int { return x.unread }

// MarkAllSeen notes that the code has seen every event. The lane calls it for a run whose stored
// mark says that it is parked.
func (x *Execution) MarkAllSeen() { x.markSeen(x.Next - 1) }

// full returns why the history has no room for another event of this size; empty when there is
// room.
func (x *Execution) full(size int, lim Limits) string {
	switch {
	case x.Next >= lim.Events:
		return fmt.Sprintf("the history of %s has %d events, which is the limit", x.Start.Run, x.Next)
	case x.wouldExceed(size, lim):
		return fmt.Sprintf("the history of %s has %d bytes, and %d more would exceed the limit of %d", x.Start.Run, x.bytes, size, lim.Bytes)
	}
	return ""
}

// wouldExceed reports whether the history would be too large with this many more bytes.
func (x *Execution) wouldExceed(size int, lim Limits) bool {
	return lim.Bytes > 0 && x.bytes+size > lim.Bytes
}

// crowdReason returns why a message of this size may not wait for the code; empty when it may. A
// message that is larger than the limit may wait if no other message waits.
func (x *Execution) crowdReason(size int, lim Limits) string {
	if lim.Unread == 0 || x.unread == 0 || x.unread+size <= lim.Unread {
		return ""
	}
	return fmt.Sprintf("execution %s holds %d bytes of signals, updates and promises that its code has not dealt with, and %d more would exceed the limit of %d",
		x.Start.Address, x.unread, size, lim.Unread)
}

// LimitReached returns the error for callers that wait for a run which has reached a limit; nil
// when it has not.
func LimitReached(a model.Address, blocked *model.Reason) error {
	if blocked == nil || blocked.Code != model.WaitLimit {
		return nil
	}
	return fault.WithHint(fault.New(fault.Exhausted, "execution %s %s", a, blocked),
		"it cannot continue: reset it to an earlier event with code that continues as new in time, or terminate it")
}

// admit refuses a signal, an update or a promise if there is no room for it among the unread
// messages or in the history, or if the run has reached a limit and cannot continue.
func (x *Execution) admit(d *Decision, e *model.Event, lim Limits) bool {
	size := e.Size()
	why := x.crowdReason(size, lim)
	if why == "" {
		why = x.full(size, lim)
	}
	if err := LimitReached(x.Start.Address, x.Blocked); why == "" && err != nil {
		why = err.Error() // there is room, but the code cannot run any further
	}
	if why != "" {
		d.refuse(fault.Exhausted, why)
	}
	return why == ""
}

// noRoomFor returns why the run has no room for the signals that come with a start; empty when
// there is room for all of them.
func (x *Execution) noRoomFor(m *model.Message, lim Limits) string {
	if len(m.With) == 0 {
		return ""
	}
	size, last := bytesOf(m.With), x.Next+int64(len(m.With))-1
	if why := x.floodReason(m.With, lim); why != "" {
		return why
	}
	if last >= lim.Events {
		return fmt.Sprintf("the history of %s has %d events, and %d signals more would exceed the limit of %d", m.To, x.Next, len(m.With), lim.Events)
	}
	if why := lim.bundleReason(m); why != "" {
		return why
	}
	if why := x.crowdReason(size, lim); why != "" {
		return why
	}
	if err := LimitReached(x.Start.Address, x.Blocked); err != nil {
		return err.Error()
	}
	return x.full(size, lim)
}

// bundleReason returns why the signals that come with a start may not wait together, even if
// nothing else waits; empty when they may. A single signal may be larger than the limit: see
// crowdReason.
func (lim Limits) bundleReason(m *model.Message) string {
	if size := bytesOf(m.With); lim.Unread > 0 && size > lim.Unread && len(m.With) > 1 {
		return fmt.Sprintf("a start of %s with signals of %d bytes: it may hold %d", m.To, size, lim.Unread)
	}
	return ""
}

// appendAnswer appends an answer that the run waits for. The core cannot refuse an answer. If the
// history has no room for the output of the answer, appendAnswer replaces the output by a failure.
func (x *Execution) appendAnswer(d *Decision, now model.Time, e model.Event, lim Limits) {
	if size := e.Size(); x.wouldExceed(size, lim) {
		if e.Failure == nil {
			e.Failure = x.noRoom(size, lim)
		}
		e.Output, e.Failure = model.Payload{}, e.Failure.Brief()
		if e.Kind == model.EventChildClosed && e.Status == model.Completed {
			e.Status = model.Failed
		}
	}
	x.append(d, now, e)
}

// noRoom returns the failure that replaces an outcome too large for the history.
func (x *Execution) noRoom(size int, lim Limits) *model.Failure {
	return &model.Failure{
		Kind: fault.Exhausted.String(), Type: model.FailureHistory, Permanent: true,
		Message: fmt.Sprintf("the outcome of %d bytes is dropped: %s", size, x.full(size, lim)),
	}
}

// checkBytes refuses a turn whose events do not fit into the history. A turn that ends the run may
// exceed the limit by half, so that a full run can still end or continue as new.
func (x *Execution) checkBytes(t *model.Turn, lim Limits) error {
	size := 0
	for i := range t.Commands {
		e := &t.Commands[i].Event
		size += e.Size() - e.Failure.Size() + e.Failure.Bounded().Size()
	}
	if t.Close != nil {
		lim.Bytes += lim.Bytes / 2
	}
	if size == 0 || !x.wouldExceed(size, lim) {
		return nil
	}
	return fault.New(fault.Exhausted, "the history of %s has %d bytes, and %d more would exceed the limit of %d: continue as new", x.Start.Run, x.bytes, size, lim.Bytes)
}

// bytesOf estimates the size of events together.
func bytesOf(events []model.Event) (n int) {
	for i := range events {
		n += events[i].Size()
	}
	return n
}

// Large is the size of a history at which operators get a warning: four fifths of the limit.
func (lim Limits) Large() int { return lim.Bytes / 5 * 4 }

// Warning returns a warning about a history that comes close to the limit; nil when it does not.
func (x *Execution) Warning(lim Limits) *model.Reason {
	if lim.Bytes == 0 || x.bytes < lim.Large() || !x.Open() {
		return nil
	}
	return &model.Reason{Code: model.WaitLarge, Detail: fmt.Sprintf("%d of %d bytes; continue as new", x.bytes, lim.Bytes)}
}

// WithWarning returns the waits of the run, followed by the warning if there is one.
func (x *Execution) WithWarning(waits []model.Reason, lim Limits) []model.Reason {
	if w := x.Warning(lim); w != nil {
		return append(slices.Clip(waits), *w)
	}
	return waits
}
