package sim

import (
	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// event appends an event to a history and checks that it is allowed there.
func (l *ledger) event(b *store.Batch, row *store.EventRow) {
	l.owns(b, row.Shard)
	r := l.runs[row.Run]
	if r == nil {
		l.fail("I3: event %d of %s, which never began", row.Event.Seq, row.Run)
	}
	e := &row.Event
	if want := int64(len(r.events) + 1); e.Seq != want {
		l.fail("I3: event %d of %s stands where %d belongs", e.Seq, row.Run, want)
	}
	last := r.start.Zero()
	if n := len(r.events); n > 0 {
		last = r.events[n-1].At
	}
	if e.At < last {
		l.fail("I3: event %d of %s is older than the one before", e.Seq, row.Run)
	}
	if !r.open() && (r.outcome.At < e.At || !closes(b, row.Run)) {
		l.fail("I2: event %d (%s) of %s after its end", e.Seq, e.Kind, row.Run)
	}
	r.events = append(r.events, *e)

	if r.address.quarantined {
		r.address.quarantined = false
		l.s.did(opWentOn)
	}

	l.fact(b, r, e)
}

func closes(b *store.Batch, id model.RunID) bool {
	for i := range b.Closes {
		if b.Closes[i].Run == id {
			return true
		}
	}
	return false
}

func starts(b *store.Batch, id model.RunID) bool {
	for i := range b.Starts {
		if b.Starts[i].Start.Run == id {
			return true
		}
	}
	return false
}

// fact checks one event against earlier events of the same thing.
func (l *ledger) fact(b *store.Batch, r *run, e *model.Event) {
	if r.tasks != nil || e.Kind == model.EventTaskScheduled {
		if l.taskFact(b, r, e) {
			return
		}
	}

	var h *history
	if bi, ai, ok := parseAsk(e.ID); ok {
		h = &r.asks[bi][ai]
	}

	once := func(flag *bool, what string) {
		if *flag {
			l.fail("I2: %s of %s %s twice", e.ID, r.id, what)
		}
		if h.withdrawn {
			l.fail("I9: %s of %s %s after it was withdrawn", e.ID, r.id, what)
		}
		*flag = true
	}

	switch e.Kind {
	case model.EventStepCompleted, model.EventStepFailed:
		once(&h.outcome, "has an outcome")
		l.s.did(opStep)
		if e.Kind == model.EventStepFailed {
			l.s.did(opStepFailed)
		}
	case model.EventAttemptFailed:
		if h.outcome || h.withdrawn || e.Attempt != h.attempts+1 {
			l.fail("I10: attempt %d of %s of %s after attempt %d", e.Attempt, e.ID, r.id, h.attempts)
		}
		h.attempts = e.Attempt
		l.s.did(opRetry)
	case model.EventTimerFired:
		l.fired(b, r, e, h)
	case model.EventWithdrawn:
		if h.withdrawn {
			l.fail("I2: %s of %s is withdrawn twice", e.ID, r.id)
		}
		h.withdrawn = true
		l.sectionOver(b, r, e.ID)
		l.s.did(opWithdrawn)
	case model.EventSignalReceived:
		l.signal(r.address, e)
	case model.EventSignalTaken:
		once(&h.taken, "takes a signal")
		if e.Ref < 1 || e.Ref > int64(len(r.events)) || r.events[e.Ref-1].Kind != model.EventSignalReceived || r.events[e.Ref-1].Name != e.Name {
			l.fail("I11: event %d of %s takes signal %d, which is none", e.Seq, r.id, e.Ref)
		}
		for i := range r.events[:len(r.events)-1] {
			if o := &r.events[i]; o.Kind == model.EventSignalTaken && o.Ref == e.Ref {
				l.fail("I11: signal %d of %s is taken twice", e.Ref, r.id)
			}
		}
		l.s.did(opTaken)
	case model.EventSignalDropped:
		l.fail("I11: event %d of %s drops a signal, and no operator has asked for it", e.Seq, r.id)
	case model.EventPromiseSettled:
		if _, twice := r.settled[e.Name]; twice {
			l.fail("I9: promise %s of %s is settled twice", e.Name, r.id)
		}
		if r.settled == nil {
			r.settled = map[string]string{}
		}
		r.settled[e.Name] = string(e.Output.Data)
		l.s.did(opSettled)
	case model.EventChildStarted:
		once(&h.started, "is started")
		l.s.did(opChild)
	case model.EventChildClosed:
		once(&h.closed, "is closed")
		if !h.started {
			l.fail("I2: the outcome of %s of %s, which was not asked for", e.ID, r.id)
		}
		l.outcome(r, e)
	case model.EventSent:
		once(&h.sent, "is sent")
		l.s.did(opSent)
	case model.EventLabeled:
		once(&h.sent, "is labeled")
		l.s.did(opLabeled)
	case model.EventAnswered:
		once(&h.answered, "is answered")
		if !h.sent {
			l.fail("I2: the answer to %s of %s, which was not sent", e.ID, r.id)
		}
		l.answeredStep(r, e)
		l.s.did(opAnswered)
	case model.EventStateSet, model.EventVersionMarked:
		once(&h.noted, "is noted")
		if e.Kind == model.EventStateSet {
			l.s.did(opState)
		} else {
			l.s.did(opMarked)
		}
	case model.EventUpdateReceived:
		l.updated(r, e)
	case model.EventUpdateAnswered:
		l.updateAnswered(b, r, e)
	case model.EventPaused, model.EventResumed:
		l.pause(r, e)
	case model.EventCancelRequest:
		if r.cancel {
			l.fail("I2: %s is canceled twice", r.id)
		}
		r.cancel = true
		l.s.did(opCanceled)
	case model.EventWatched:
		for i := range r.events[:len(r.events)-1] {
			if o := &r.events[i]; o.Kind == model.EventWatched && o.Watcher == e.Watcher {
				l.fail("I2: %s is watched twice by the same step", r.id)
			}
		}
		l.s.did(opWatched)
	case model.EventLockAsked:
		once(&h.sent, "is asked")
		l.lockAsked(b, r, e)
	case model.EventLockGranted:
		l.lockGranted(b, r, e)
	case model.EventUnlocked:
		if x := r.sections[e.Section]; x == nil || x.over {
			l.fail("L23: section %s of %s ends, which is not open", e.Section, r.id)
		}
		l.sectionOver(b, r, e.Section)
	case model.EventPinned:
		l.pinned(r, e)
	case model.EventStarted, model.EventClosed, model.EventTaskScheduled, model.EventTaskClaimed, model.EventTaskReturned, model.EventTaskTimedOut:
		l.fail("I3: a %s is stored as event %d of %s", e.Kind, e.Seq, r.id)
	}
}

// fired checks a timer that fires (I8).
func (l *ledger) fired(b *store.Batch, r *run, e *model.Event, h *history) {
	if h == nil {
		l.fail("I8: timer %q of %s fires, which is none of the program", e.ID, r.id)
	}
	if _, retry := core.RetryOf(e.ID); retry || h.fired || h.withdrawn {
		l.fail("I8: timer %q of %s fires again, or after it was withdrawn", e.ID, r.id)
	}
	h.fired = true
	l.s.did(opTimerFired)
	i := r.timer(e.ID)
	if i < 0 && l.s.plan.restart > 0 {
		return // it was moved in this batch to a time that has passed
	}

	if i < 0 {
		l.fail("I8: timer %q of %s fires and was not open", e.ID, r.id)
	}
	due := r.timers[i].Due
	if l.s.plan.restart > 0 {
		due = e.Due // a timer that was moved in this batch is not in the store
	}
	if e.Due != due || e.At < due {
		l.fail("I8: timer %q of %s fires at %s and is due at %s", e.ID, r.id, e.At, due)
	}
	if ahead := int64(e.At - l.s.fairTime()); ahead > 0 {
		l.fail("I8: timer %q of %s fires %d µs before its time by the store's clock", e.ID, r.id, ahead)
	}
	if !stops(b, r.id, e.ID) {
		l.fail("I8: timer %q of %s fires and stays", e.ID, r.id)
	}
}

// stops reports whether the batch removes the timer.
func stops(b *store.Batch, id model.RunID, timer string) bool {
	for i := range b.StopTimers {
		if b.StopTimers[i].Run == id && b.StopTimers[i].ID == timer {
			return true
		}
	}
	for _, k := range b.StopAll {
		if k.Run == id {
			return true
		}
	}
	return false
}

// signal records an accepted signal. Each is in exactly one history (I11).
func (l *ledger) signal(a *address, e *model.Event) {
	id := signalID(e.Input)
	if id == 0 {
		l.fail("I11: %s received a signal that nobody sent", a.name)
	}
	if l.signals[id] != nil {
		l.fail("I11: signal %x to %s is received twice", id, a.name)
	}
	l.signals[id] = &received{address: a, order: len(l.signals)}
	l.s.did(opSignal)
}

// outcome checks that a parent gets the real outcome of its child.
func (l *ledger) outcome(r *run, e *model.Event) {
	if e.Run.IsZero() {
		if e.Status != model.Failed || e.Failure == nil {
			// A closed run answers without its id.
			c := l.addresses[e.Target]
			if c == nil || len(c.runs) == 0 {
				l.fail("I9: %s hears an outcome of %s, which never ran", r.id, e.Target)
			}
		}
		l.s.did(opBounced)
		return
	}

	c := l.runs[e.Run]
	if c == nil || c.open() || c.outcome.Status != e.Status || string(c.outcome.Output.Data) != string(e.Output.Data) {
		l.fail("I4: %s hears an outcome of %s that is not in the store", r.id, e.Run)
	}
	l.s.did(opChildClosed)
}

// channel returns the channel of a pair of shards.
func (l *ledger) channel(to, from model.ShardID) *channel {
	k := [2]model.ShardID{to, from}
	c := l.pairs[k]
	if c == nil {
		c = &channel{}
		l.pairs[k] = c
	}
	return c
}

// message adds a message to its channel. Positions have no gap.
func (l *ledger) message(b *store.Batch, row *store.MessageRow) {
	l.owns(b, row.From)
	c := l.channel(row.To, row.From)
	if want := int64(len(c.rows) + 1); row.Seq != want {
		l.fail("messages from shard %d to shard %d: position %d stands where %d belongs", row.From, row.To, row.Seq, want)
	}
	if row.To != row.Message.To.Shard(l.s.plan.shards) {
		l.fail("a message to %s is sent to shard %d", row.Message.To, row.To)
	}
	c.rows = append(c.rows, *row)
	l.sent(&row.Message)
}

// consume advances a cursor. Each message before it must have had its effect in the same batch.
func (l *ledger) consume(b *store.Batch, row *store.CursorRow) {
	l.owns(b, row.To)
	c := l.channel(row.To, row.From)
	if row.Prev != c.next || row.Next <= row.Prev || row.Next > int64(len(c.rows)) {
		l.fail("cursor from shard %d to shard %d moves from %d to %d, stands at %d of %d", row.From, row.To, row.Prev, row.Next, c.next, len(c.rows))
	}

	var before *received
	for i := row.Prev; i < row.Next; i++ {
		m := &c.rows[i].Message
		if !l.putOff(b, m) {
			l.effect(b, m)
		}
		l.s.did(opMessage)
		got := l.signals[signalID(m.Input)]
		if m.Kind != model.MessageSignal || got == nil || got.address.sick {
			continue
		}
		if before != nil && before.address == got.address && before.order > got.order {
			l.fail("I11: two signals from shard %d to %s arrive in the wrong order", row.From, m.To)
		}
		before = got
	}

	c.next = row.Next
}

// putOff reports whether the batch defers the message, because its address is quarantined.
func (l *ledger) putOff(b *store.Batch, m *model.Message) bool {
	for i := range b.Deferred {
		if d := &b.Deferred[i].Message; d.Kind == m.Kind && d.To == m.To && d.From == m.From && d.ID == m.ID && d.Name == m.Name {
			return true
		}
	}
	return false
}

// effect checks that a consumed message has had its effect.
func (l *ledger) effect(b *store.Batch, m *model.Message) {
	if m.To.IsEntity() {
		l.arrived(b, m)
		return
	}

	if m.Kind == model.MessageGrant {
		l.grantArrived(b, m)
		return
	}

	a := l.address(m.To)
	r := a.current
	if r != nil && m.Kind != model.MessageStart && m.Kind != model.MessageClosed && starts(b, r.id) {
		return // perhaps there was no run before
	}

	switch m.Kind {
	case model.MessageStart:
		if r == nil {
			l.fail("E42: the start of %s was consumed and there is no run", m.To)
		}
	case model.MessageSignal:
		if got := l.signals[signalID(m.Input)]; got == nil && m.RequestID == "" && r != nil && r.open() && l.s.plan.lane.Limits.Signals > 2 {
			l.fail("E42: signal %x to %s was consumed and has not arrived", signalID(m.Input), m.To)
		}
	case model.MessageCancel:
		meant := m.From.Run.IsZero() || (r != nil && r.start.Parent.Address == m.From.Address && r.start.Parent.Run == m.From.Run)
		if r != nil && r.open() && !r.cancel && meant {
			l.fail("E42: a cancel of %s was consumed and is not in its history", m.To)
		}
	case model.MessageClosed:
		r = l.runs[m.ToRun]
		if bi, ai, ok := parseAsk(m.ID); ok && r != nil && r.open() && r.asks[bi][ai].started && !r.asks[bi][ai].closed && !r.asks[bi][ai].withdrawn {
			l.fail("E42: the outcome of %s of %s was consumed and is not in its history", m.ID, m.ToRun)
		}
	case model.MessageAnswer:
		r = l.runs[m.ToRun]
		if bi, ai, ok := parseAsk(m.ID); ok && r != nil && r.open() && r.asks[bi][ai].sent && !r.asks[bi][ai].answered && !r.asks[bi][ai].withdrawn {
			l.fail("E42: the answer to %s of %s was consumed and is not in its history", m.ID, m.ToRun)
		}
	case model.MessageWatch, model.MessageSettle, model.MessageNothing, model.MessageUpdate, model.MessageTerminate, model.MessagePause,
		model.MessageResume, model.MessageDelete, model.MessageQuery, model.MessageReport, model.MessageRequeue, model.MessageWrite,
		model.MessageCall, model.MessageLock, model.MessageGrant, model.MessageRelease, model.MessageUnlock, model.MessageMailbox:
	}
}

// put records a request in the inbox.
func (l *ledger) put(row *store.InboxRow) {
	if _, seen := l.replies[store.RequestKey{Shard: row.Shard, Address: row.Message.To, ID: row.Message.RequestID}]; seen {
		return
	}
	if _, refused := l.replies[store.RequestKey{Shard: row.Shard, Address: row.Message.To, ID: model.RefusedIDs + row.ID.String()}]; refused {
		return // a late copy, which the store does not take
	}
	if l.inbox[row.ID] == nil && !l.s.damaged[row.ID] { // a request that was set aside stays aside
		c := *row
		l.inbox[row.ID] = &c
	}
}

// serve consumes a request of another process.
func (l *ledger) serve(b *store.Batch, k *store.InboxKey) {
	l.owns(b, k.Shard)
	row := l.inbox[k.ID]
	if row == nil {
		l.fail("I2: request %s is consumed twice", k.ID)
	}
	delete(l.inbox, k.ID)
	m := &row.Message
	if _, refused := l.replies[store.RequestKey{Shard: row.Shard, Address: m.To, ID: model.RefusedIDs + row.ID.String()}]; refused {
		return // the sender gets an error and may send it again under the same id
	}

	if _, ok := l.replies[store.RequestKey{Shard: row.Shard, Address: m.To, ID: m.RequestID}]; m.RequestID == "" || m.Kind == model.MessageCall && !ok {
		l.effect(b, m)
	} else if m.Kind == model.MessageUpdate && l.updates[m.RequestID] != nil {
		// The request is accepted, and its answer comes later.
	} else if _, ok := l.replies[store.RequestKey{Shard: row.Shard, Address: m.To, ID: m.RequestID}]; !ok {
		l.fail("I4: request %s to %s is consumed and its answer is not remembered", m.RequestID, m.To)
	}

	l.s.did(opInbox)
}

func (l *ledger) deferred(b *store.Batch, row *store.InboxRow) {
	l.owns(b, row.Shard)
	if l.setAside(row) {
		return
	}
	if a := l.address(row.Message.To); !a.sick {
		l.fail("I14: a message to %s is put off, and there is nothing wrong with it", a.name)
	}
	if l.inbox[row.ID] == nil {
		c := *row
		l.inbox[row.ID] = &c
	}
	l.s.did(opDeferred)
	l.address(row.Message.To).quarantined = true
}
