package lane

import (
	"bytes"
	"slices"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// forced reports whether the input removes runs or an entity whatever is in their rows. One that the store has refused does not: its
// address is quarantined like any other, else the lane would try it for ever.
func (in *input) forced() bool {
	return in.kind == inMessage && in.message.Kind == model.MessageDelete && in.message.Force && !in.barred
}

// What those hear who wait for something that is removed by force.
const (
	removedByOperator = "an operator has removed the execution because it could not be continued"
	entityRemoved     = "an operator has removed the entity because it could not be read or changed"
	entityChanged     = "the entity was not removed: it changed while it was exported; try again"
)

// applyForced removes runs that cannot be read, or that are quarantined, in one commit. The address is free afterwards; what came for it meanwhile is served then. The
// step of the parent hears that its child has failed, as far as anybody knows which step that is.
func (l *Lane) applyForced(now model.Time, e *entry, in *input) {
	if in.pair != nil && !in.pair.next(in) {
		l.done(in)
		return
	}
	if e.isEntity() {
		l.applyErase(now, e, in)
		return
	}
	m := in.message
	current := e.known && e.x != nil && slices.Contains(m.Runs, e.x.Start.Run)
	whole := current || m.ToRun.IsZero() // else the current run may be another one, which goes on
	gone := model.Outcome{Status: model.Failed, At: now, Failure: &model.Failure{Kind: fault.NotFound.String(), Message: removedByOperator}}
	d := core.Decision{Deletes: m.Runs}
	if to := m.Parent; to.ID != "" {
		d.Messages = append(d.Messages, model.Message{
			Kind: model.MessageClosed, To: to.Address, ToRun: to.Run, ID: to.ID, From: model.Link{Address: m.To}, Status: gone.Status, Failure: gone.Failure,
		})
	}
	if e.known && e.x != nil && !current {
		l.record(e, in, &d)
		return
	}
	l.release(e)
	if current {
		l.setRun(e, nil)
	}
	e.removing = !e.known
	b := l.record(e, in, &d)
	for _, run := range m.Runs {
		if whole {
			b.effects = append(b.effects, effect{kind: effClosed, entry: e, run: run, outcome: &gone})
		}
	}
	b.effects = append(b.effects, effect{kind: effGone, entry: e, again: !whole})
	if e.worker != 0 {
		l.letGo(b, e, removedByOperator)
	}
	l.readNoMore(e)
	l.unstrand(e)
	l.unpost(now, e)
	l.askAgain(e)
}

// release ends the quarantine of an address whose runs are about to be removed. Reports that waited for its end are dealt with behind the removal.
func (l *Lane) release(e *entry) {
	if e.poison == nil {
		return
	}
	e.poison, e.waits = nil, nil
	l.sick = slices.DeleteFunc(l.sick, func(o *entry) bool { return o == e })
	e.backlog, e.reports = append(e.reports, e.backlog...), nil
}

// tellGone tells those who wait for answers of a run or an entity that was removed. When it is not known whether that was the current
// run, all who wait ask again, and what is left is read.
func (l *Lane) tellGone(now model.Time, e *entry, again bool) {
	why := removedByOperator
	if e.isEntity() {
		why = entityRemoved
	}
	a, err := e.address, error(fault.New(fault.NotFound, "%s: %s", e.address, why))
	if again {
		err = ErrNotOwner
	}
	kept := slices.DeleteFunc(slices.Clone(l.waiters[a]), func(w waiter) bool {
		if w.early || w.reply == "" && !again {
			return false
		}
		if w.token != nil {
			l.answer(Answer{Token: w.token, Begun: w.begun, Err: err})
		} else if !w.node.IsZero() {
			l.out.Hints = append(l.out.Hints, Hint{Node: w.node, Address: a})
		}
		return true
	})
	if len(kept) == 0 {
		delete(l.waiters, a)
	} else {
		l.waiters[a] = kept
	}
	if again {
		l.dispatch(now, e)
	}
}

// loadMailbox reads what waits for an entity that is to be removed. Its row is not read.
func (l *Lane) loadMailbox(e *entry, in *input) {
	e.loading = true
	l.loads.add(&Load{Kind: LoadMailbox, Shard: e.shard.id, Address: e.address, entry: e, input: in})
}

// loadedMailbox has an entity removed whose mailbox has been read. One that cannot be read is removed as well.
func (l *Lane) loadedMailbox(ld *Load, r LoadResult) {
	e := ld.entry
	e.loading = false
	l.loadDue(e)
	ld.input.mailbox, ld.input.print, ld.input.read = r.Entity.Mailbox, r.Print, ld.version+1
	if len(e.backlog) > 0 {
		l.schedule(e)
	} else {
		l.maybeDrop(e)
	}
}

// mailboxRead reports whether the input knows what waits for the entity that it removes. What was read before the entry was forgotten is out of date.
func (in *input) mailboxRead(e *entry) bool { return in.read == e.version+1 }

// applyErase removes an entity, and everything that waits for it, in one commit. Callers hear why, and so do sections that wait for the lock. Calls that nobody waits for
// become dead letters. An entity that has changed since its row was exported stays: what it has become would be lost.
func (l *Lane) applyErase(now model.Time, e *entry, in *input) {
	if was := in.message.Exported; len(was) > 0 && !bytes.Equal(was, in.print) {
		l.record(e, in, &core.Decision{Answer: model.Answer{Failure: &model.Failure{Kind: fault.Conflict.String(), Message: entityChanged}}})
		return
	}
	l.release(e)
	l.unstrand(e)
	l.wakeUp(e)
	l.abandon(e, fault.New(fault.NotFound, "%s: %s", e.address, entityRemoved))
	d, unheard := core.Erase(in.mailbox, entityRemoved)
	e.removing = true
	b := l.record(e, in, &d)
	for _, m := range unheard {
		l.bury(b, e, m, &model.Failure{Message: entityRemoved})
	}
	for i := range in.mailbox {
		if it := &in.mailbox[i]; it.Damaged != nil {
			l.asideItem(now, e, it)
		}
	}
	b.effects = append(b.effects, effect{kind: effGone, entry: e})
}

// orders reports whether a caller in another process waits for the answer to the input. The
// lane refuses such an input while its address is quarantined, as it does for callers in its
// own process.
func (in *input) orders() bool {
	return in.kind == inMessage && !in.inbox.IsZero() && (in.message.Order() || in.requests()) && !in.message.Node.IsZero() && !in.message.Keep
}

// requests reports whether the message is a signal or another request that only adds to a run.
// Its refusal is not remembered under its request id: the same request may succeed when the
// quarantine is over.
func (in *input) requests() bool {
	switch in.message.Kind {
	case model.MessageSignal, model.MessageSettle, model.MessagePause, model.MessageResume:
		return true
	default:
		return false
	}
}

// refuseOrder tells another process that its order cannot be carried out. An order whose refusal the store refuses is put off.
func (l *Lane) refuseOrder(e *entry, in *input, why error) {
	in.told = true
	l.record(e, in, &core.Decision{Answer: model.Answer{Failure: &model.Failure{Kind: fault.KindOf(why).String(), Message: why.Error()}}})
}

// wayOut adds what an operator can do to the refusal of a request that would end, or change by hand, what is quarantined.
func wayOut(m *model.Message, blocked *fault.Error) error {
	switch {
	case m == nil || m.Force:
		return blocked
	case m.To.IsEntity() && m.Order():
		return fault.WithHint(blocked, "%s", model.EntityWayOut)
	case m.Order() || m.Kind == model.MessageStart && m.Reuse != model.ReturnExisting: // or it would replace what is quarantined
		return fault.WithHint(blocked, "%s", model.WayOut)
	}
	return blocked
}
