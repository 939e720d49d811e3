package replay

import (
	"fmt"
	"slices"

	"github.com/perdure/perdure/internal/model"
)

// feed gives the next event to the code. It resolves the future that the event answers, and makes
// ready the coroutines that waited for this future.
func (m *machine) feed() {
	i := m.fed
	e := m.r.events[i]
	m.fed++
	m.seen.Store(int64(m.fed))
	if int64(e.At) > m.now.Load() {
		m.now.Store(int64(e.At))
	}

	// A step has one outcome, so this event shows that the turn that reported the outcome is
	// committed.
	if o := m.outcome; o != nil && int64(m.fed) <= m.r.durable && e.ID == o[0].Event.ID && e.Kind == o[0].Event.Kind {
		m.landed = true
	}

	// The code has run ahead, so the event must be the one that it expected.
	if len(m.ahead) > 0 {
		m.compare(e)
		return
	}

	if len(m.r.drops) > 0 {
		m.vanish(i)
	}
	if e.Kind.News() {
		// Answer the event with a turn even if no coroutine waits for it, so that the owner knows
		// that no step has begun.
		m.unanswered = true
	}

	switch e.Kind {
	case model.EventSignalReceived:
		m.receive(i)
	case model.EventPromiseSettled:
		m.settlePromise(i)
	case model.EventUpdateReceived:
		m.updateReceived(i)
	case model.EventCancelRequest:
		m.cancelRequested(e.Failure)
	case model.EventVersionMarked, model.EventPinned:
		if a := m.find(e.ID); a != nil { // otherwise the code no longer asks for this version
			m.apply(a, e)
		}
	case model.EventLabeled:
		m.applyLabel(e)
	case model.EventWatched, model.EventStarted, model.EventClosed, model.EventPaused, model.EventResumed, model.EventSignalDropped, model.EventNoted:
	default:
		if isCarriedState(e) {
			return
		}
		a := m.find(e.ID)
		if a == nil {
			a = m.rename(e)
		}
		if a == nil || !m.apply(a, e) {
			m.stray(i)
		}
	}
}

// compare checks an event against the event that the code expected at this position when it ran
// ahead.
func (m *machine) compare(e *model.Event) {
	a := m.ahead[0]
	if e.Kind != a.expectedKind() || e.ID != a.id {
		m.broken = true
		return
	}
	m.ahead[0] = nil
	m.ahead = m.ahead[1:]
	a.fut.at = e.At
	a.recorded = true
	m.noteArrival(a)
}

// expectedKind returns the kind of the event that records the ask, if the code has run ahead of
// that event.
func (a *ask) expectedKind() model.EventKind {
	switch {
	case a.kind == askMark:
		return model.EventVersionMarked
	case a.kind == askLabel:
		return model.EventLabeled
	case a.kind == askState:
		return model.EventStateSet
	case a.kind == askPin:
		return model.EventPinned
	case a.kind == askStep && a.fut.err != nil:
		return model.EventStepFailed
	case a.kind == askStep:
		return model.EventStepCompleted
	}
	return model.EventSignalTaken
}

// noteArrival notes that the engine has delivered an event that the worker reported for a.
func (m *machine) noteArrival(a *ask) {
	if a.expect.Load() > 0 {
		a.expect.Add(-1)
		m.outstanding.Add(-1)
	}
}

func (m *machine) find(id string) *ask {
	if a := m.asks.get([]byte(id)); a != nil {
		return a
	}
	return m.alias[id]
}

// apply gives an event to the ask that it answers. It reports false when the ask cannot have this
// event yet, so that the event is early.
func (m *machine) apply(a *ask, e *model.Event) bool {
	if m.applyTaskEvent(a, e) {
		return true
	}
	if a.kind == askStep && (e.Kind == model.EventSignalTaken || e.Kind == model.EventChildStarted || e.Kind == model.EventChildClosed) {
		return false // a malformed history: a step has no subject
	}

	switch e.Kind {
	case model.EventWithdrawn:
		if !a.withdrawn && !m.withdrawnElsewhere(a, e) {
			return false
		}
		a.gone = true
	case model.EventSignalTaken:
		if a.ref != e.Ref {
			m.blockAt(e, fmt.Sprintf("event %d records that signal %s of position %d was taken; the code takes that of position %d%s",
				e.Seq, e.Name, e.Ref, a.ref, at(a.position)))
		}
		a.recorded = true
	case model.EventChildStarted:
		if a.target != e.Target {
			m.blockAt(e, fmt.Sprintf("event %d records child %s%s; the code asks for %s%s",
				e.Seq, addressText(e.Target), at(e.Position), addressText(a.target), at(a.position)))
		}
		a.recorded = true
	case model.EventTaskScheduled:
		if a.kind != askStep {
			return false
		}
		a.recorded = true
		a.adoptTask(e.Task)
	case model.EventLockAsked:
		if a.kind != askLock {
			return false
		}
		a.recorded = true
	case model.EventLockGranted:
		if a.kind != askLock {
			return false
		}
		m.lockGranted(a, e)
		return true // no command of this worker led to the event
	case model.EventUnlocked:
		if a.kind != askLock || !a.section.ended {
			return false
		}
		a.section.freed = true
	case model.EventSent:
		m.noteSent(a, e)
	case model.EventVersionMarked, model.EventStateSet, model.EventUpdateAnswered, model.EventPinned, model.EventLabeled:
		a.recorded = true
	case model.EventAttemptFailed:
		if !a.fut.done && !a.withdrawn {
			m.attemptFailed(a, e)
		}
	case model.EventTimerFired:
		m.unrequest(e.ID)
		if a.kind == askScope {
			a.deadline.armed = false
			a.deadline.end(ErrTimeout)
		} else {
			m.answer(a, e)
		}
	default: // the outcome of a step or a child, the answer to a message
		m.answer(a, e)
	}

	m.noteArrival(a)
	return true
}

// unrequest removes the request for a timer from the turn, because the timer has already fired. An
// earlier worker had started it. If the worker sent the request, the engine would start the timer
// again.
func (m *machine) unrequest(timer string) {
	for i := len(m.commands) - 1; i >= 0; i-- {
		if c := &m.commands[i]; c.Kind != model.CommandStartTimer || c.Event.ID != timer {
			continue
		}
		m.commands = slices.Delete(m.commands, i, i+1)
		for j := range m.unsealed {
			if m.unsealed[j].command > i {
				m.unsealed[j].command--
			}
		}
	}
}

// answer resolves the future of an ask with the event that settles it, unless the code has given up
// on the ask.
func (m *machine) answer(a *ask, e *model.Event) {
	f := &a.fut
	if f.done || a.withdrawn {
		return
	}
	f.out, f.at = e.Output, e.At
	if e.Failure != nil {
		f.err = e.Failure
	} else if e.Kind == model.EventChildClosed && e.Status != model.Completed {
		f.err = &model.Failure{Kind: e.Status.String(), Message: "execution " + addressText(a.target) + " ended as " + e.Status.String()}
	}
	m.resolve(f, e.Seq)
}

func addressText(a model.Address) string { return a.Type + "/" + a.Key }

// at returns " at file:line" for messages, or nothing when the place is unknown.
func at(position string) string {
	if position == "" {
		return ""
	}
	return " at " + position
}
