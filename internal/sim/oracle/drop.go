package oracle

import (
	"slices"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/scenario"
	"github.com/perdure/perdure/internal/store"
)

// In some seeds operators drop or skip signals that the code has not taken. A skipped signal moves
// behind all other signals. Rule I11 says: a signal is dropped at most once, only on the order of
// an operator, and only if the code has not taken it. The code never takes a dropped signal. In
// these seeds the simulator makes no other changes to histories, such as resets.

// Unread returns the signals of a run that its code has not taken and no operator has dropped.
func (r *Run) Unread() (list []model.Event) {
	for i := range r.Events {
		switch e := &r.Events[i]; e.Kind { //nolint:exhaustive // other kinds are not about signals
		case model.EventSignalReceived:
			list = append(list, *e)
		case model.EventSignalTaken, model.EventSignalDropped:
			list = slices.DeleteFunc(list, func(o model.Event) bool { return o.Seq == e.Ref })
		}
	}
	return list
}

// signalDropped checks the drop of a signal.
func (l *ledger) signalDropped(b *store.Batch, r *Run, e *model.Event) {
	before := Run{Events: r.Events[:len(r.Events)-1]}
	unread := before.Unread()
	i := slices.IndexFunc(unread, func(o model.Event) bool { return o.Seq == e.Ref })
	if i < 0 {
		l.Fail("I11: event %d of %s drops signal %d, which is taken, dropped, or none", e.Seq, r.ID, e.Ref)
	}

	id := model.SignalID(r.ID, &unread[i])
	asked := func(name string) bool {
		return slices.ContainsFunc(l.s.Ops, func(o *Op) bool {
			m := &o.Message
			return m.Kind == model.MessageMailbox && m.Name == name && m.To == r.Address.Name && m.ID == id && o.Tries > 0
		})
	}
	again := slices.ContainsFunc(b.Events, func(o store.EventRow) bool {
		return o.Run == r.ID && o.Event.Seq == e.Seq+1 && o.Event.Kind == model.EventSignalReceived && o.Event.Input.Equal(unread[i].Input)
	})

	switch {
	case again && !asked(model.MailboxSkip):
		l.Fail("I11: event %d of %s skips a signal, and no operator has asked for it", e.Seq, r.ID)
	case !again && !asked(model.MailboxDrop):
		l.Fail("I11: event %d of %s drops a signal, and no operator has asked for it", e.Seq, r.ID)
	}
	l.s.Did(scenario.OpSignalDropped)
}

// skipped reports whether a signal is in the history again because an operator has skipped it.
func (l *ledger) skipped(r *Run, e *model.Event) bool {
	if n := len(r.Events); n > 1 {
		if d := &r.Events[n-2]; d.Kind == model.EventSignalDropped && r.Events[d.Ref-1].Input.Equal(e.Input) {
			l.s.Did(scenario.OpSignalSkipped)
			return true
		}
	}
	return false
}

// checkDrop checks that an accepted order about a signal is in a history.
func (s *Oracle) checkDrop(o *Op, r *Run) {
	done := slices.ContainsFunc(r.Events, func(e model.Event) bool {
		return e.Kind == model.EventSignalDropped && model.SignalID(r.ID, &r.Events[e.Ref-1]) == o.Message.ID
	})
	if !done {
		s.Fail("I11: %s was accepted and is not in the history", o)
	}
}
