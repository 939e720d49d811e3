package lane

import (
	"bytes"
	"slices"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Errors for callers that wait for something that an operator removes by force.
const (
	removedByOperator = "an operator has removed the execution because it could not be continued"
	entityRemoved     = "an operator has removed the entity because it could not be read or changed"
	entityChanged     = "the entity was not removed: it changed while it was exported; try again"
)

// applyForced removes runs that cannot be read, or that are quarantined, in one commit. If this
// removes the current run, the address is free after the commit, and the lane serves its waiting
// inputs. If the message names a step of the parent, that step gets the failure of its child.
func (l *Lane) applyForced(now model.Time, e *entry, in *messageInput) {
	if in.origin.isRepeated() {
		l.finishInput(in)
		return
	}
	if e.isEntity() {
		l.applyErase(now, e, in)
		return
	}

	m := in.origin.message
	current := e.known && e.x != nil && slices.Contains(m.Runs, e.x.Start.Run)
	// If whole is false, another run may be the current one. That run continues.
	whole := current || m.ToRun.IsZero()

	gone := model.Outcome{Status: model.Failed, At: now, Failure: &model.Failure{Kind: fault.NotFound.String(), Message: removedByOperator}}
	d := core.Decision{Deletes: m.Runs}
	if to := m.Parent; to != nil && to.ID != "" {
		d.Messages = append(d.Messages, model.Message{
			Kind: model.MessageClosed, To: to.Address, ToRun: to.Run, ID: to.ID, From: model.Link{Address: m.To}, Status: gone.Status, Failure: gone.Failure,
		})
	}

	// The message removes an earlier run, and the current run stays.
	if e.known && e.x != nil && !current {
		l.record(e, in, &d)
		return
	}

	l.release(e)
	if current {
		l.setRun(e, nil)
	}
	e.pending.removing = !e.known

	b := l.record(e, in, &d)
	for _, run := range m.Runs {
		if whole {
			b.effects = append(b.effects, effect{kind: effClosed, entry: e, run: run, outcome: &gone})
		}
	}
	b.effects = append(b.effects, effect{kind: effGone, entry: e, again: !whole})

	if !e.hold.free() {
		l.letGo(b, e, removedByOperator)
	}
	l.stopReading(e)
	l.workers.unstrand(e)
	l.unpost(now, e)
	l.askAgain(e)
}

// release ends the quarantine of an address whose runs are about to be removed. After the removal,
// the lane applies the reports that waited for the end of the quarantine.
func (l *Lane) release(e *entry) {
	if e.quarantine.why == nil {
		return
	}
	e.quarantine.why, e.wait.reasons = nil, nil
	l.quarantined.remove(e)
	e.requeueReports()
}

// tellGone answers callers that wait for a run or an entity that was removed. If the lane does not
// know whether the removed run was the current one, all waiting callers ask again, and the lane
// reads the rows that are left.
func (l *Lane) tellGone(now model.Time, e *entry, again bool) {
	why := removedByOperator
	if e.isEntity() {
		why = entityRemoved
	}
	err := error(fault.New(fault.NotFound, "%s: %s", e.address, why))
	if again {
		err = ErrNotOwner
	}
	l.waiters.endRemoved(&l.out, e.address, err, again)
	if again {
		l.dispatch(now, e)
	}
}

// applyErase removes an entity and its mailbox in one commit. Callers that wait, and sections that
// wait for the lock, get the reason. One-way calls become dead letters. If the entity has changed
// since the operator exported its row, the lane does not remove it, because the new state would be
// lost.
func (l *Lane) applyErase(now model.Time, e *entry, in *messageInput) {
	if was := in.origin.message.Exported; len(was) > 0 && !bytes.Equal(was, in.erased.print) {
		l.record(e, in, &core.Decision{Answer: model.Answer{Failure: &model.Failure{Kind: fault.Conflict.String(), Message: entityChanged}}})
		return
	}

	l.release(e)
	l.workers.unstrand(e)
	l.resting.remove(e)
	l.abandon(e, fault.New(fault.NotFound, "%s: %s", e.address, entityRemoved))

	d, unheard := core.Erase(in.erased.mailbox, entityRemoved)
	e.pending.removing = true
	b := l.record(e, in, &d)
	for _, m := range unheard {
		l.keepRefused(b, e, m, &model.Failure{Message: entityRemoved})
	}
	for i := range in.erased.mailbox {
		if it := &in.erased.mailbox[i]; it.Damaged != nil {
			l.setAsideItem(now, e, it)
		}
	}

	b.effects = append(b.effects, effect{kind: effGone, entry: e})
}

// refuseOrder tells another process that the lane does not carry out its order. If the store
// refuses the row of this answer, the lane puts off the order.
func (l *Lane) refuseOrder(e *entry, in *messageInput, why error) {
	in.refusedOnce = true
	l.record(e, in, &core.Decision{Answer: model.Answer{Failure: &model.Failure{Kind: fault.KindOf(why).String(), Message: why.Error()}}})
}

// wayOut adds a hint for the operator to the refusal of a request that would end or change
// something quarantined.
func wayOut(m *model.Message, blocked *fault.Error) error {
	switch {
	case m == nil || m.Force:
		return blocked
	case m.To.IsEntity() && m.Order():
		return fault.WithHint(blocked, "%s", model.EntityWayOut)
	case m.Order() || m.Kind == model.MessageStart && m.Reuse != model.ReturnExisting:
		// A start would replace the quarantined run.
		return fault.WithHint(blocked, "%s", model.WayOut)
	}
	return blocked
}
