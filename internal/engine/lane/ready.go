package lane

import (
	"github.com/perdure/perdure/internal/model"
)

// take applies an input, or puts it into the backlog of its address until it can be applied.
func (l *Lane) take(now model.Time, e *entry, in input) {
	in.base().since = now
	l.budget.hold(in)
	if len(e.backlog.inputs) > 0 || !l.ready(e, in) {
		e.backlog.inputs = append(e.backlog.inputs, in)
		l.schedule(e)
		return
	}
	l.apply(now, e, in)
}

// ready reports whether an input can be applied now. If the lane first has to read something, ready
// asks for that read.
func (l *Lane) ready(e *entry, in input) bool {
	switch {
	case e.reading.active || e.pending.starting || e.pending.removing || l.recovery.careful():
		return false
	case l.isKeptFrom(in) || int(e.pending.served) >= l.cfg.PerKey || l.batchFull():
		return false
	}
	return in.ready(l, e)
}

// ready checks for commits first: if an input must wait for a commit, the lane reads nothing for it
// before that commit, because the commit may change the rows.
func (in *messageInput) ready(l *Lane, e *entry) bool {
	if in.early(e) {
		return false
	}
	forced := in.isForced()
	if e.quarantine.why != nil && !forced && !in.isOrder() {
		return true // the lane refuses the input without reading the run
	}

	// A batch deletes rows before it writes rows, so the rows to delete must be committed before.
	// An input about a dead task must wait too, because a batch in flight may change the same dead
	// task.
	if e.dirty() && (in.is(model.MessageDelete) || in.isDeadTaskOrder()) {
		return false
	}

	// The lane answers a repeated request with the remembered answer, so it first looks for one.
	if in.once() && !in.sure(l, e) {
		l.lookUp(e, in)
		return false
	}

	switch {
	case forced && e.isEntity() && !in.mailboxRead(e):
		l.loadMailbox(e, in)
		return false
	case forced: // a removal by force works in any state
		return true
	case e.quarantine.why != nil: // the lane refuses this order
		return true
	}
	return in.hasRows(l, e)
}

// hasRows reports whether the lane knows all rows that the message depends on. It starts the read
// of missing rows.
func (in *messageInput) hasRows(l *Lane, e *entry) bool {
	switch {
	case !e.known && !l.mayAssumeAbsent(e, in):
		l.load(e)
		return false
	case in.needsDeadTask() && in.deadTask == nil:
		l.loadDeadTask(e, in)
		return false
	case in.fate == nil && e.needsFate(in.report()):
		if !e.dirty() { // a batch in flight may have ended the claim
			l.loadFate(e, in, in.report())
		}
		return false
	case e.unread(in):
		if !e.dirty() { // a batch in flight may write data of the same task
			l.loadWritten(e, in)
		}
		return false
	case in.is(model.MessageQuery) && e.known && e.x != nil && !e.x.Open():
		// A worker reads the history of a run that has ended, and must find the end of the run in
		// the store.
		return !e.dirty()
	}

	return true
}

// mayAssumeAbsent reports whether the lane may write a start without reading the address first. The
// store inserts such a start only if the address is unused, and otherwise returns the existing run.
// A start with a remembered answer or timers needs the read, because the store would write the
// answer and the timers even if it does not insert the start.
func (l *Lane) mayAssumeAbsent(e *entry, in *messageInput) bool {
	return in.is(model.MessageStart) && !e.isEntity() && !in.origin.remote() && !in.lookup.checked && !in.once() &&
		in.origin.message.Terms == nil &&
		// if one of these is not true, the lane knows that the address has a run
		!e.reading.history && !e.wait.worker && !e.wait.room && !e.wait.slot && e.hold.free() && e.tasks.posted.len() == 0
}

// serveBacklog applies waiting inputs, entry by entry in turn.
func (l *Lane) serveBacklog(now model.Time) {
	if l.backlog.len() == 0 || l.recovery.careful() {
		return
	}

	for _, e := range l.backlog.take() {
		for l.serveFirst(now, e) {
		}
		if len(e.backlog.inputs) > 0 {
			l.schedule(e)
		} else {
			e.backlog.inputs = nil
			l.maybeDrop(e)
		}
	}
}

// serveFirst applies the first waiting input of an entry. It returns false if no input waits, or if
// the lane cannot apply that input now.
func (l *Lane) serveFirst(now model.Time, e *entry) bool {
	if len(e.backlog.inputs) == 0 || !l.ready(e, e.backlog.inputs[0]) {
		return false
	}
	in := e.backlog.inputs[0]
	e.backlog.inputs[0] = nil
	e.backlog.inputs = e.backlog.inputs[1:]
	l.apply(now, e, in)

	return true
}

func (b *inputBase) ready(l *Lane, e *entry) bool { return l.ensureKnown(e) }
