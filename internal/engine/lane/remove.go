package lane

import (
	"slices"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// forced reports whether the input removes runs whatever is in their rows: it needs nothing that would have to be read. One that the
// store has refused does not: its address is quarantined like any other, else the lane would try it for ever.
func (in *input) forced() bool {
	return in.kind == inMessage && in.message.Kind == model.MessageDelete && in.message.Force && !in.refused
}

// removed by an operator: what those hear who wait for a run that is removed by force.
const removedByOperator = "an operator has removed the execution because it could not be continued"

// applyForced removes runs that cannot be read, or that are quarantined, in one commit. The address is free afterwards; what came for it meanwhile is served then. The
// step of the parent hears that its child has failed, as far as anybody knows which step that is.
func (l *Lane) applyForced(now model.Time, e *entry, in *input) {
	if in.pair != nil && !in.pair.next(in) {
		l.done(in)
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

// tellGone tells those who wait for answers of a run that was removed. When it is not known whether that was the current run, all
// who wait ask again, and what is left is read.
func (l *Lane) tellGone(now model.Time, e *entry, again bool) {
	a, err := e.address, error(fault.New(fault.NotFound, "%s: %s", e.address, removedByOperator))
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

// wayOut is what an operator can do with an execution that refuses to be ended.
func wayOut(m *model.Message, blocked *fault.Error) error {
	if m != nil && (m.Kind == model.MessageTerminate || m.Kind == model.MessageCancel || m.Kind == model.MessageDelete && !m.Force) {
		return fault.WithHint(blocked, "%s", model.WayOut)
	}
	return blocked
}
