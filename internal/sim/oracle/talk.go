package oracle

import (
	"maps"
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/scenario"
	"github.com/perdure/perdure/internal/store"
)

// This file has the requests of users to executions, the answers of the programs, and their checks.
// The rules are: every accepted update is in one history, and all answers to an update are the
// same, no matter how often the user asks. Code answers a query from durable state, and a later
// answer never comes from an older state. No lane hands out work of a paused run. A terminated run
// is over.

// update is an accepted update.
type update struct {
	address  *Address
	answered bool
	output   string
}

// checkTalk checks the answer that a caller gets to an update, a query or an order.
func (s *Oracle) checkTalk(o *Op, a *model.Answer, r *Run) {
	switch o.Message.Kind { //nolint:exhaustive // other kinds are checked elsewhere
	case model.MessageUpdate:
		u := s.Ledger.updates[o.Message.RequestID]
		if o.Message.RequestID == "" { // the engine has drawn an id
			if string(a.Output.Data) != string(scenario.ReplyTo(o.Message.Input).Data) {
				s.Fail("I16: %s is told %x", o, a.Output.Data)
			}
			return
		}
		if u == nil || !u.answered || u.output != string(a.Output.Data) || u.address.Name != o.Message.To || u.output != string(scenario.ReplyTo(o.Message.Input).Data) {
			s.Fail("I16: %s is told %x, which is not what its history says: %+v", o, a.Output.Data, u)
		}
	case model.MessageQuery:
		s.Did(scenario.OpAsked)
		seen := int64(scenario.SignalID(a.Output)) - 1
		if seen < 0 || seen > int64(len(r.Events)) {
			s.Fail("I17: %s is told what follows from %d events of %s, which has %d", o, seen, scenario.Short(r.ID), len(r.Events))
		}
		if seen < o.Floor[r.ID] {
			s.Fail("I17: %s gets an answer that follows from %d events of %s, after an answer that followed from %d", o, seen, scenario.Short(r.ID), o.Floor[r.ID])
		}
		r.Shown = max(r.Shown, seen)
	case model.MessagePause:
		if r.pauses == 0 && r.Start.Previous.IsZero() {
			s.Fail("I15: %s was accepted and is not in the history", o)
		}
	case model.MessageTerminate:
		if r.outcome.Status != model.Terminated {
			s.Fail("I18: %s was accepted, and the run is %s", o, r.outcome.Status)
		}
	}
}

// CheckRefused checks an update that was refused because its execution had ended. The code must not
// have answered the update.
func (s *Oracle) CheckRefused(o *Op) {
	if u := s.Ledger.updates[o.Message.RequestID]; o.Message.Kind == model.MessageUpdate && o.Message.RequestID != "" && u != nil && u.answered {
		s.Fail("I16: %s was refused, and its history says that it was answered", o)
	}
}

// updateKey names an update: the request of a client, or the step of a workflow that sent it. The
// key is empty for an update of a copied past, because no caller waits for the answer.
func updateKey(e *model.Event) string {
	if e.Waiter().ID != "" {
		return e.Waiter().Run.String() + " " + e.Waiter().ID
	}
	return e.RequestID
}

// recordUpdate records an accepted update.
func (l *ledger) recordUpdate(r *Run, e *model.Event) {
	key := updateKey(e)
	if key == "" {
		l.Fail("I16: event %d of %s is an update without a sender that could be answered", e.Seq, r.ID)
	}
	if l.updates[key] != nil {
		l.Fail("I16: update %s is received twice", key)
	}
	l.updates[key] = &update{address: r.Address}
	if e.Waiter().ID != "" {
		l.s.Did(scenario.OpCalled)
	}
	l.s.Did(scenario.OpUpdate)
}

// updateAnswered checks the answer to an update.
func (l *ledger) updateAnswered(b *store.Batch, r *Run, e *model.Event) {
	if e.Ref < 1 || e.Ref >= e.Seq || r.Events[e.Ref-1].Kind != model.EventUpdateReceived {
		l.Fail("I16: event %d of %s answers update %d, which is none", e.Seq, r.ID, e.Ref)
	}
	got := &r.Events[e.Ref-1]
	if twice := slices.ContainsFunc(r.Events[:e.Seq-1], func(o model.Event) bool { return o.Kind == model.EventUpdateAnswered && o.Ref == e.Ref }); twice {
		l.Fail("I16: event %d of %s answers update %d a second time", e.Seq, r.ID, e.Ref)
	}
	key := updateKey(got)
	if key == "" {
		l.s.Did(scenario.OpUpdateAgain)
		return
	}

	u := l.updates[key]
	if u == nil || u.answered {
		l.Fail("I16: event %d of %s answers update %d, which was answered by another run", e.Seq, r.ID, e.Ref)
	}
	u.answered, u.output = true, string(e.Output.Data)
	if !told(b, r, got) {
		l.Fail("I16: event %d of %s answers update %d, and its sender gets no answer", e.Seq, r.ID, e.Ref)
	}
	l.s.Did(scenario.OpUpdateAnswered)
}

// reply records a remembered answer. A request has only one remembered answer.
func (l *ledger) reply(r *store.Reply) {
	old, ok := l.replies[r.RequestKey]
	if ok && strings.HasPrefix(r.ID, model.RefusedIDs) {
		return // a repeated request was refused again, and the first refusal stays
	}
	if ok && old != string(r.Body) {
		l.Fail("I16: request %s of %s has two answers", r.ID, r.Address)
	}
	if id, ok := l.requested[r.ID]; ok {
		a, _ := model.DecodeAnswer(r.Body)
		l.answeredCall(id, &a)
	}
	l.replies[r.RequestKey], l.replied[r.RequestKey] = string(r.Body), r.At
}

// pause records that a run is paused or resumed.
func (l *ledger) pause(r *Run, e *model.Event) {
	paused := e.Kind == model.EventPaused
	if r.Paused == paused {
		l.Fail("I15: event %d of %s is a %s, which it is already", e.Seq, r.ID, e.Kind)
	}
	r.Paused = paused
	if paused {
		r.pauses++
		l.s.Did(scenario.OpPaused)
	} else {
		l.s.Did(scenario.OpResumed)
	}
}

// told reports whether the batch has an answer for the sender of an update.
func told(b *store.Batch, r *Run, u *model.Event) bool {
	if w := u.Waiter(); w.ID != "" {
		return sendsAny(b, func(m *model.Message) bool {
			return m.Kind == model.MessageAnswer && m.To == w.Address && m.ToRun == w.Run && m.ID == w.ID
		})
	}
	key := store.RequestKey{Shard: r.Address.Shard, Address: r.Address.Name, ID: u.RequestID}
	return slices.ContainsFunc(b.Requests, func(x store.Reply) bool { return x.RequestKey == key })
}

// cutOff checks that the sender of each open update learns that the run has ended, unless the next
// run answers the update.
func (l *ledger) cutOff(b *store.Batch, r *Run) {
	next := l.Runs[r.outcome.Next]
	for _, e := range unanswered(r.Events) {
		key := updateKey(&e)
		if key == "" || next != nil && slices.ContainsFunc(unanswered(next.Start.Carried), func(o model.Event) bool { return updateKey(&o) == key }) {
			continue
		}
		if !told(b, r, &e) {
			l.Fail("I16: %s was closed, and the sender of update %s gets no answer", r.ID, key)
		}
		l.s.Did(scenario.OpUpdateCut)
		if e.Waiter().ID != "" {
			l.s.Did(scenario.OpCallCut)
		}
	}
}

// unanswered returns the unanswered updates of a history, in order.
func unanswered(events []model.Event) (open []model.Event) {
	for _, e := range events {
		switch e.Kind { //nolint:exhaustive // other kinds are not about updates
		case model.EventUpdateReceived:
			open = append(open, e)
		case model.EventUpdateAnswered:
			open = slices.DeleteFunc(open, func(u model.Event) bool { return u.Seq == e.Ref })
		}
	}
	return open
}

// carriedTalk checks that the next run has the state, the unanswered updates and the pause of the
// previous run.
func (l *ledger) carriedTalk(b *store.Batch, old, next *Run) {
	events := slices.Clone(old.Events)
	for i := range b.Events {
		if e := &b.Events[i]; e.Run == old.ID {
			events = append(events, e.Event)
		}
	}

	had, paused := standing(events)
	has, still := standing(next.Start.Carried)
	if !maps.Equal(had, has) || paused != still {
		l.Fail("I19: %s begins with state %v, paused %v; the run before ended with %v, paused %v", next.ID, has, still, had, paused)
	}
	if slices.ContainsFunc(next.Start.Carried, func(e model.Event) bool { return e.Kind == model.EventPinned }) {
		l.Fail("I20: %s begins pinned, and may begin on any version", next.ID)
	}
	open := unanswered(events)
	if next.Start.Attempt <= 1 { // another attempt starts all updates again
		open = slices.DeleteFunc(open, func(e model.Event) bool { return scenario.IsBegun(e.Input) && e.Seq <= old.outcome.Seen })
	}
	if !slices.EqualFunc(open, unanswered(next.Start.Carried), sameUpdate) {
		l.Fail("I16: %s does not begin with the updates that the run before has not answered", next.ID)
	}
}

func sameUpdate(a, b model.Event) bool {
	return updateKey(&a) == updateKey(&b) && a.Input.Equal(b.Input)
}

// standing returns the state that the code has set, and whether the run is paused, both at the end
// of a history.
func standing(events []model.Event) (state map[string]string, paused bool) {
	state = map[string]string{}
	for _, e := range events {
		switch e.Kind { //nolint:exhaustive // other kinds change neither
		case model.EventStateSet:
			state[e.Name] = string(e.Output.Data)
		case model.EventPaused:
			paused = true
		case model.EventResumed:
			paused = false
		}
	}
	return state, paused
}
