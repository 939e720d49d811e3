package oracle

import (
	"slices"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/scenario"
	"github.com/perdure/perdure/internal/store"
)

// event checks that an event is allowed at the end of a history, and appends it.
func (l *ledger) event(b *store.Batch, row *store.EventRow) {
	l.owns(b, row.Shard)
	r := l.Runs[row.Run]
	if r == nil {
		l.Fail("I3: event %d of %s, which never began", row.Event.Seq, row.Run)
	}
	e := &row.Event
	if want := int64(len(r.Events) + 1); e.Seq != want {
		l.Fail("I3: event %d of %s stands where %d belongs", e.Seq, row.Run, want)
	}
	last := r.Start.Zero()
	if n := len(r.Events); n > 0 {
		last = r.Events[n-1].At
	}
	if e.At < last {
		l.Fail("I3: event %d of %s is older than the one before", e.Seq, row.Run)
	}
	if !r.Open() && (r.outcome.At < e.At || !closes(b, row.Run)) {
		l.Fail("I2: event %d (%s) of %s after its end", e.Seq, e.Kind, row.Run)
	}
	r.Events = append(r.Events, *e)

	if r.Address.quarantined {
		r.Address.quarantined = false
		l.s.Did(scenario.OpWentOn)
	}

	l.inTime(b, r, e)
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

// fact checks an event against the earlier events of the same step, signal or update.
func (l *ledger) fact(b *store.Batch, r *Run, e *model.Event) {
	if r.Tasks != nil || e.Kind == model.EventTaskScheduled {
		if l.taskFact(b, r, e) {
			return
		}
	}

	var h *history
	if bi, ai, ok := scenario.ParseAsk(e.ID); ok {
		h = &r.Asks[bi][ai]
	}

	once := func(flag *bool, what string) {
		if *flag {
			l.Fail("I2: %s of %s %s twice", e.ID, r.ID, what)
		}
		if h.withdrawn {
			l.Fail("I9: %s of %s %s after it was withdrawn", e.ID, r.ID, what)
		}
		*flag = true
	}

	switch e.Kind {
	case model.EventStepCompleted, model.EventStepFailed:
		once(&h.outcome, "has an outcome")
		l.s.Did(scenario.OpStep)
		if e.Kind == model.EventStepFailed {
			l.s.Did(scenario.OpStepFailed)
		}
	case model.EventAttemptFailed:
		if h.outcome || h.withdrawn || e.Attempt != h.Attempts+1 {
			l.Fail("I10: attempt %d of %s of %s after attempt %d", e.Attempt, e.ID, r.ID, h.Attempts)
		}
		h.Attempts = e.Attempt
		l.s.Did(scenario.OpRetry)
	case model.EventTimerFired:
		l.checkTimer(b, r, e, h)
	case model.EventWithdrawn:
		if h.withdrawn {
			l.Fail("I2: %s of %s is withdrawn twice", e.ID, r.ID)
		}
		h.withdrawn = true
		l.sectionOver(b, r, e.ID)
		l.s.Did(scenario.OpWithdrawn)
	case model.EventSignalReceived:
		if !l.skipped(r, e) {
			l.signal(r.Address, e)
		}
	case model.EventSignalTaken:
		once(&h.taken, "takes a signal")
		if e.Ref < 1 || e.Ref > int64(len(r.Events)) || r.Events[e.Ref-1].Kind != model.EventSignalReceived || r.Events[e.Ref-1].Name != e.Name {
			l.Fail("I11: event %d of %s takes signal %d, which is none", e.Seq, r.ID, e.Ref)
		}
		for i := range r.Events[:len(r.Events)-1] {
			if o := &r.Events[i]; (o.Kind == model.EventSignalTaken || o.Kind == model.EventSignalDropped) && o.Ref == e.Ref {
				l.Fail("I11: signal %d of %s is taken twice, or after it was dropped", e.Ref, r.ID)
			}
		}
		l.s.Did(scenario.OpTaken)
	case model.EventSignalDropped:
		l.signalDropped(b, r, e)
	case model.EventPromiseSettled:
		if _, twice := r.settled[e.Name]; twice {
			l.Fail("I9: promise %s of %s is settled twice", e.Name, r.ID)
		}
		if r.settled == nil {
			r.settled = map[string]string{}
		}
		r.settled[e.Name] = string(e.Output.Data)
		l.s.Did(scenario.OpSettled)
	case model.EventChildStarted:
		once(&h.started, "is started")
		l.s.Did(scenario.OpChild)
	case model.EventChildClosed:
		once(&h.closed, "is closed")
		if !h.started {
			l.Fail("I2: the outcome of %s of %s, which was not asked for", e.ID, r.ID)
		}
		l.outcome(r, e)
	case model.EventSent:
		once(&h.sent, "is sent")
		l.s.Did(scenario.OpSent)
	case model.EventLabeled:
		once(&h.sent, "is labeled")
		l.s.Did(scenario.OpLabeled)
	case model.EventAnswered:
		once(&h.answered, "is answered")
		if !h.sent {
			l.Fail("I2: the answer to %s of %s, which was not sent", e.ID, r.ID)
		}
		l.answeredStep(r, e)
		l.s.Did(scenario.OpAnswered)
	case model.EventStateSet, model.EventVersionMarked, model.EventNoted:
		once(&h.noted, "is noted")
		l.s.Did(map[model.EventKind]scenario.OpKind{
			model.EventStateSet: scenario.OpState, model.EventVersionMarked: scenario.OpMarked, model.EventNoted: scenario.OpNoted,
		}[e.Kind])
	case model.EventUpdateReceived:
		l.recordUpdate(r, e)
	case model.EventUpdateAnswered:
		l.updateAnswered(b, r, e)
	case model.EventPaused, model.EventResumed:
		l.pause(r, e)
	case model.EventCancelRequest:
		if r.Cancel {
			l.Fail("I2: %s is canceled twice", r.ID)
		}
		r.Cancel = true
		l.s.Did(scenario.OpCanceled)
	case model.EventWatched:
		for i := range r.Events[:len(r.Events)-1] {
			if o := &r.Events[i]; o.Kind == model.EventWatched && o.Waiter() == e.Waiter() {
				l.Fail("I2: %s is watched twice by the same step", r.ID)
			}
		}
		l.s.Did(scenario.OpWatched)
	case model.EventLockAsked:
		once(&h.sent, "is asked")
		l.lockAsked(b, r, e)
	case model.EventLockGranted:
		l.lockGranted(b, r, e)
	case model.EventUnlocked:
		if x := r.sections[e.Section]; x == nil || x.over {
			l.Fail("L23: section %s of %s ends, which is not open", e.Section, r.ID)
		}
		l.sectionOver(b, r, e.Section)
	case model.EventPinned:
		l.recordPin(r, e)
	case model.EventStarted, model.EventClosed, model.EventTaskScheduled, model.EventTaskClaimed, model.EventTaskReturned, model.EventTaskTimedOut:
		l.Fail("I3: a %s is stored as event %d of %s", e.Kind, e.Seq, r.ID)
	}
}

// checkTimer checks a timer that fires (I8).
func (l *ledger) checkTimer(b *store.Batch, r *Run, e *model.Event, h *history) {
	if h == nil {
		l.Fail("I8: timer %q of %s fires, which is none of the program", e.ID, r.ID)
	}
	if _, retry := core.RetryOf(e.ID); retry || h.fired || h.withdrawn {
		l.Fail("I8: timer %q of %s fires again, or after it was withdrawn", e.ID, r.ID)
	}
	h.fired = true
	l.s.Did(scenario.OpTimerFired)
	i := r.timer(e.ID)
	if i < 0 && l.s.Plan.Restart > 0 {
		return // the batch has moved the timer to a time that has passed
	}

	if i < 0 {
		l.Fail("I8: timer %q of %s fires and was not open", e.ID, r.ID)
	}
	due := r.Timers[i].Due
	if l.s.Plan.Restart > 0 {
		due = e.Due // a timer that was moved in this batch is not in the store
	}
	if e.Due != due || e.At < due {
		l.Fail("I8: timer %q of %s fires at %s and is due at %s", e.ID, r.ID, e.At, due)
	}
	if ahead := int64(e.At - l.s.FairTime()); ahead > 0 {
		l.Fail("I8: timer %q of %s fires %d µs before its time by the store's clock", e.ID, r.ID, ahead)
	}
	if !stops(b, r.ID, e.ID) {
		l.Fail("I8: timer %q of %s fires and stays", e.ID, r.ID)
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

// signal records an accepted signal. Each signal is in exactly one history (I11).
func (l *ledger) signal(a *Address, e *model.Event) {
	id := scenario.SignalID(e.Input)
	if id == 0 {
		l.Fail("I11: %s received a signal that was never sent", a.Name)
	}
	if l.signals[id] != nil {
		l.Fail("I11: signal %x to %s is received twice", id, a.Name)
	}
	l.signals[id] = &received{address: a, order: len(l.signals)}
	l.s.Did(scenario.OpSignal)
}

// outcome checks that a parent gets the real outcome of its child.
func (l *ledger) outcome(r *Run, e *model.Event) {
	if e.Run.IsZero() {
		if e.Status != model.Failed || e.Failure == nil {
			// The answer of a closed run does not contain its id.
			c := l.Addresses[e.Target]
			if c == nil || len(c.Runs) == 0 {
				l.Fail("I9: %s hears an outcome of %s, which never ran", r.ID, e.Target)
			}
		}
		l.s.Did(scenario.OpBounced)
		return
	}

	c := l.Runs[e.Run]
	if c == nil || c.Open() || c.outcome.Status != e.Status || string(c.outcome.Output.Data) != string(e.Output.Data) {
		l.Fail("I4: %s hears an outcome of %s that is not in the store", r.ID, e.Run)
	}
	l.s.Did(scenario.OpChildClosed)
}

// Channel returns the channel of a pair of shards.
func (l *ledger) Channel(to, from model.ShardID) *channel {
	k := [2]model.ShardID{to, from}
	c := l.Pairs[k]
	if c == nil {
		c = &channel{}
		l.Pairs[k] = c
	}
	return c
}

// message adds a message to its channel. The positions in a channel have no gaps.
func (l *ledger) message(b *store.Batch, row *store.MessageRow) {
	l.owns(b, row.From)
	c := l.Channel(row.To, row.From)
	if want := int64(len(c.Rows) + 1); row.Seq != want {
		l.Fail("messages from shard %d to shard %d: position %d stands where %d belongs", row.From, row.To, row.Seq, want)
	}
	if row.To != l.s.ShardOf(row.Message.To) {
		l.Fail("a message to %s is sent to shard %d", row.Message.To, row.To)
	}
	c.Rows = append(c.Rows, *row)
	l.recordSent(&row.Message)
}

// consume advances a cursor. Each message that the cursor passes must have its effect in the same
// batch.
func (l *ledger) consume(b *store.Batch, row *store.CursorRow) {
	l.owns(b, row.To)
	c := l.Channel(row.To, row.From)
	if row.Prev != c.Next || row.Next <= row.Prev || row.Next > int64(len(c.Rows)) {
		l.Fail("cursor from shard %d to shard %d moves from %d to %d, stands at %d of %d", row.From, row.To, row.Prev, row.Next, c.Next, len(c.Rows))
	}

	var before *received
	for i := row.Prev; i < row.Next; i++ {
		m := &c.Rows[i].Message
		if !l.putOff(b, m) && !l.movedAside(b, &c.Rows[i]) {
			l.effect(b, m)
		}
		l.s.Did(scenario.OpMessage)
		got := l.signals[scenario.SignalID(m.Input)]
		if m.Kind != model.MessageSignal || got == nil || got.address.Sick {
			continue
		}
		if before != nil && before.address == got.address && before.order > got.order {
			l.Fail("I11: two signals from shard %d to %s arrive in the wrong order", row.From, m.To)
		}
		before = got
	}

	c.Next = row.Next
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

// movedAside reports whether the batch sets the message aside, because it is damaged.
func (l *ledger) movedAside(b *store.Batch, row *store.MessageRow) bool {
	raw := damagedBody(row)
	return slices.ContainsFunc(b.Deferred, func(d store.InboxRow) bool { return l.s.isMessageAside(&d) && string(d.Message.Input.Data) == raw })
}

// effect checks that a consumed message has had its effect.
func (l *ledger) effect(b *store.Batch, m *model.Message) {
	if m.To.IsEntity() {
		l.checkArrival(b, m)
		return
	}

	if m.Kind == model.MessageGrant {
		l.grantArrived(b, m)
		return
	}

	a := l.Address(m.To)
	r := a.Current
	if r != nil && m.Kind != model.MessageStart && m.Kind != model.MessageClosed && starts(b, r.ID) {
		return // the batch starts the run, so the message may have arrived when there was no run
	}

	switch m.Kind {
	case model.MessageStart:
		if r == nil {
			l.Fail("E42: the start of %s was consumed and there is no run", m.To)
		}
	case model.MessageSignal:
		if got := l.signals[scenario.SignalID(m.Input)]; got == nil && m.RequestID == "" && r != nil && r.Open() && l.s.Plan.Lane.Limits.Signals > 2 {
			l.Fail("E42: signal %x to %s was consumed and has not arrived", scenario.SignalID(m.Input), m.To)
		}
	case model.MessageCancel:
		meant := m.From.Run.IsZero() || (r != nil && r.Start.Parent.Address == m.From.Address && r.Start.Parent.Run == m.From.Run)
		if r != nil && r.Open() && !r.Cancel && meant {
			l.Fail("E42: a cancel of %s was consumed and is not in its history", m.To)
		}
	case model.MessageClosed:
		r = l.Runs[m.ToRun]
		if bi, ai, ok := scenario.ParseAsk(m.ID); ok && r != nil && r.Open() && r.Asks[bi][ai].started && !r.Asks[bi][ai].closed && !r.Asks[bi][ai].withdrawn {
			l.Fail("E42: the outcome of %s of %s was consumed and is not in its history", m.ID, m.ToRun)
		}
	case model.MessageAnswer:
		r = l.Runs[m.ToRun]
		if bi, ai, ok := scenario.ParseAsk(m.ID); ok && r != nil && r.Open() && r.Asks[bi][ai].sent && !r.Asks[bi][ai].answered && !r.Asks[bi][ai].withdrawn {
			l.Fail("E42: the answer to %s of %s was consumed and is not in its history", m.ID, m.ToRun)
		}
	case model.MessageWatch, model.MessageSettle, model.MessageNothing, model.MessageUpdate, model.MessageTerminate, model.MessagePause,
		model.MessageResume, model.MessageDelete, model.MessageQuery, model.MessageReport, model.MessageRequeue, model.MessageWrite,
		model.MessageCall, model.MessageLock, model.MessageGrant, model.MessageRelease, model.MessageUnlock, model.MessageMailbox:
	}
}

// Put records a request in the inbox.
func (l *ledger) Put(row *store.InboxRow) {
	if _, seen := l.replies[store.RequestKey{Shard: row.Shard, Address: row.Message.To, ID: row.Message.RequestID}]; seen {
		return
	}
	if _, refused := l.replies[store.RequestKey{Shard: row.Shard, Address: row.Message.To, ID: model.RefusedIDs + row.ID.String()}]; refused {
		return // the store does not accept a late copy
	}
	if l.Inbox[row.ID] == nil && !l.s.damaged[row.ID] { // a request that was set aside stays aside
		c := *row
		l.Inbox[row.ID] = &c
		l.storedIn(&c.Message, row.Shard)
	}
}

// serve consumes a request of another process.
func (l *ledger) serve(b *store.Batch, k *store.InboxKey) {
	l.owns(b, k.Shard)
	row := l.Inbox[k.ID]
	if row == nil {
		l.Fail("I2: request %s is consumed twice", k.ID)
	}
	delete(l.Inbox, k.ID)
	m := &row.Message
	if _, refused := l.replies[store.RequestKey{Shard: row.Shard, Address: m.To, ID: model.RefusedIDs + row.ID.String()}]; refused {
		return // the sender gets an error and may send the request again under the same id
	}

	if _, ok := l.replies[store.RequestKey{Shard: row.Shard, Address: m.To, ID: m.RequestID}]; m.RequestID == "" || m.Kind == model.MessageCall && !ok {
		l.effect(b, m)
	} else if m.Kind == model.MessageUpdate && l.updates[m.RequestID] != nil {
		// The request is accepted, and its answer comes later.
	} else if _, ok := l.replies[store.RequestKey{Shard: row.Shard, Address: m.To, ID: m.RequestID}]; !ok {
		l.Fail("I4: request %s to %s is consumed and its answer is not remembered", m.RequestID, m.To)
	}

	l.s.Did(scenario.OpInbox)
}

func (l *ledger) checkDeferral(b *store.Batch, row *store.InboxRow) {
	l.owns(b, row.Shard)
	if l.setAside(row) || l.isSetAside(row) {
		return
	}
	if a := l.Address(row.Message.To); !a.Sick {
		l.Fail("I14: a message to %s is put off, but nothing has damaged it", a.Name)
	}
	if l.Inbox[row.ID] == nil {
		c := *row
		l.Inbox[row.ID] = &c
	}
	l.s.Did(scenario.OpDeferred)
	l.Address(row.Message.To).quarantined = true
}
