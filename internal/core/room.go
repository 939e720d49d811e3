package core

import (
	"fmt"
	"slices"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Bytes is roughly what the history takes: the input of the run and all its events, with those that
// it began with.
func (x *Execution) Bytes() int { return x.bytes }

// Unread is roughly what the signals take that the code has not taken, the updates that it has not
// answered, and the promises that it has not seen.
func (x *Execution) Unread() int { return x.unread }

// Heard notes that the code has seen every event: the stored mark of a run that was read says so.
func (x *Execution) Heard() { x.seen(x.Next - 1) }

// full says why the history has no room for another event of the size; nothing when it has.
func (x *Execution) full(size int, lim Limits) string {
	switch {
	case x.Next >= lim.Events:
		return fmt.Sprintf("the history of %s has %d events, which is the limit", x.Start.Run, x.Next)
	case x.exceeds(size, lim):
		return fmt.Sprintf("the history of %s has %d bytes, and %d more would exceed the limit of %d", x.Start.Run, x.bytes, size, lim.Bytes)
	}
	return ""
}

// exceeds reports whether so many bytes more are too many for the history.
func (x *Execution) exceeds(size int, lim Limits) bool {
	return lim.Bytes > 0 && x.bytes+size > lim.Bytes
}

// crowded says why a message of the size may not wait for the code; nothing when it may. A message
// that is larger than the limit may wait alone.
func (x *Execution) crowded(size int, lim Limits) string {
	if lim.Unread == 0 || x.unread == 0 || x.unread+size <= lim.Unread {
		return ""
	}
	return fmt.Sprintf("execution %s holds %d bytes of signals, updates and promises that its code has not dealt with, and %d more would exceed the limit of %d",
		x.Start.Address, x.unread, size, lim.Unread)
}

// LimitReached is the error of whoever waits for a run that has reached a limit; nil when it has
// not.
func LimitReached(a model.Address, blocked *model.Reason) error {
	if blocked == nil || blocked.Code != model.WaitLimit {
		return nil
	}
	return fault.WithHint(fault.New(fault.Exhausted, "execution %s %s", a, blocked),
		"it does not go on: reset it to an earlier event with code that continues as new in time, or terminate it")
}

// admits refuses a message of a client for which the mailbox or the history has no room.
func (x *Execution) admits(d *Decision, e *model.Event, lim Limits) bool {
	size := e.Size()
	why := x.crowded(size, lim)
	if why == "" {
		why = x.full(size, lim)
	}
	if err := LimitReached(x.Start.Address, x.Blocked); why == "" && err != nil {
		why = err.Error() // there is room, but nobody would hear it
	}
	if why != "" {
		d.refuse(fault.Exhausted, why)
	}
	return why == ""
}

// noRoomFor says why the run cannot take all of the signals that come with a start; nothing when it
// can.
func (x *Execution) noRoomFor(with []model.Event, lim Limits) string {
	size := bytesOf(with)
	if size == 0 {
		return ""
	}
	if why := x.crowded(size, lim); why != "" {
		return why
	}
	if err := LimitReached(x.Start.Address, x.Blocked); err != nil {
		return err.Error()
	}
	return x.full(size, lim)
}

// appendAnswer appends what the run has waited for. An output for which the history has no room is
// replaced by a failure that says so: whoever sent it cannot be refused.
func (x *Execution) appendAnswer(d *Decision, now model.Time, e model.Event, lim Limits) {
	if size := e.Size(); x.exceeds(size, lim) {
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

// noRoom is what takes the place of an outcome that the history has no room for.
func (x *Execution) noRoom(size int, lim Limits) *model.Failure {
	return &model.Failure{
		Kind: fault.Exhausted.String(), Type: model.FailureHistory, Permanent: true,
		Message: fmt.Sprintf("the outcome of %d bytes is dropped: %s", size, x.full(size, lim)),
	}
}

// checkBytes refuses a turn whose events do not fit into the history. The turn that ends the run
// may exceed the limit by half: a run that cannot end cannot continue as new either.
func (x *Execution) checkBytes(t *model.Turn, lim Limits) error {
	size := 0
	for i := range t.Commands {
		e := &t.Commands[i].Event
		size += e.Size() - e.Failure.Size() + e.Failure.Bounded().Size()
	}
	if t.Close != nil {
		lim.Bytes += lim.Bytes / 2
	}
	if size == 0 || !x.exceeds(size, lim) {
		return nil
	}
	return fault.New(fault.Exhausted, "the history of %s has %d bytes, and %d more would exceed the limit of %d: continue as new", x.Start.Run, x.bytes, size, lim.Bytes)
}

// bytesOf is roughly what events take together.
func bytesOf(events []model.Event) (n int) {
	for i := range events {
		n += events[i].Size()
	}
	return n
}

// Large is how many bytes a history has when people are warned of it: four fifths of the limit.
func (lim Limits) Large() int { return lim.Bytes / 5 * 4 }

// Warning is what people should know about the history of the run before it reaches the limit; nil
// when there is nothing to say.
func (x *Execution) Warning(lim Limits) *model.Reason {
	if lim.Bytes == 0 || x.bytes < lim.Large() || !x.Open() {
		return nil
	}
	return &model.Reason{Code: model.WaitLarge, Detail: fmt.Sprintf("%d of %d bytes; continue as new", x.bytes, lim.Bytes)}
}

// Warned is what the run waits for with the warning behind it, if there is one.
func (x *Execution) Warned(waits []model.Reason, lim Limits) []model.Reason {
	if w := x.Warning(lim); w != nil {
		return append(slices.Clip(waits), *w)
	}
	return waits
}
