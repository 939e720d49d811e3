package sim

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

var errNoUpdate = errors.New("an answer to an update that is not open")

// This file has the requests of users to executions, the answers of the programs, and their checks.
// What must hold: every accepted update is in one history and is answered once, with one value,
// however often the user asks. An answer to a query is made from durable state, and never from less
// than an earlier answer. No lane hands out work of a paused run. A terminated run is over.

// update is an accepted update.
type update struct {
	address  *address
	answered bool
	output   string
}

// talk draws a request to the code of an execution, or an order of an operator.
func (u *user) talk(to model.Address, n int) *op {
	s := u.s
	why := &model.Failure{Message: "by a user"}
	switch {
	case n < 23:
		return u.op(model.Message{Kind: model.MessageUpdate, To: to, Name: "u", Input: u.signal()})
	case n < 25:
		o := u.op(model.Message{Kind: model.MessageQuery, To: to, Name: "q"})
		o.message.RequestID = ""
		if a := s.ledger.addresses[to]; a != nil {
			o.floor = map[model.RunID]int64{}
			for _, r := range a.runs {
				o.floor[r.id] = r.shown
			}
		}
		return o
	case n < 26:
		o := u.op(model.Message{Kind: model.MessagePause, To: to, Failure: why})
		u.soon(o, oneOf(s, s.between(0, millisecond), s.between(1, 400)*millisecond), model.Message{Kind: model.MessageResume, To: to})
		return o
	case s.chance(0.5):
		return u.op(model.Message{Kind: model.MessageResume, To: to})
	default:
		return u.op(model.Message{Kind: model.MessageTerminate, To: to, Failure: why})
	}
}

// replyTo returns the answer of the code to an update.
func replyTo(p model.Payload) model.Payload {
	return model.Payload{Data: append(slices.Clone(p.Data), '!')}
}

// openUpdate is an unanswered update, and the place of the program when it arrived.
type openUpdate struct {
	model.Event
	pc int
}

// Programs answer some updates late: when the program has continued from its place, and not at its
// end. They start some of these at once, so that a next run must not start them again.

func isSlow(p model.Payload) bool  { return signalID(p)&3 == 3 }
func isBegun(p model.Payload) bool { return signalID(p)&7 == 7 }

// answers reports whether the program answers an update now.
func (m *machine) answers(u *openUpdate) bool {
	return !isSlow(u.Input) || (m.end == nil && m.pc != u.pc)
}

// close returns the end of the run, or nil if the run has not ended.
func (m *machine) close() *model.Close {
	if m.end == nil || m.end.Status != model.Continued {
		return m.end
	}
	end := *m.end
	for i := range m.updates {
		if u := &m.updates[i]; isBegun(u.Input) {
			end.Begun = append(end.Begun, u.Seq)
		}
	}
	return &end
}

// answered records that an update was answered.
func (m *machine) answered(e *model.Event) {
	before := len(m.updates)
	m.updates = slices.DeleteFunc(m.updates, func(u openUpdate) bool { return u.Seq == e.Ref })
	if len(m.updates) == before {
		m.broken = errNoUpdate
	}
}

// note returns the command of a block that sets state or marks a version.
func (b *block) note() model.Command {
	e := model.Event{Kind: model.EventStateSet, Name: b.name, Output: model.Payload{Data: []byte{b.bit, byte(b.took)}}}
	if b.version {
		e = model.Event{Kind: model.EventVersionMarked, Name: b.name, Ref: 1}
	}
	return model.Command{Kind: model.CommandRecord, Event: e}
}

// replies adds to a turn the answers that the program gives now. It returns the positions of the
// updates.
func (h *hold) replies(m *machine, cs *[]model.Command, eventful *int) (seqs []int64) {
	for i := range m.updates {
		u := &m.updates[i]
		if h.replied[u.Seq] || !m.answers(u) {
			continue
		}
		seqs = append(seqs, u.Seq)
		*eventful++
		*cs = append(*cs, model.Command{Kind: model.CommandAnswer, Event: model.Event{
			ID: "u", Name: u.Name, Ref: u.Seq, Output: replyTo(u.Input),
		}})
	}
	return seqs
}

// query answers with the number of events that the code has seen, as soon as the code waits.
func (h *hold) query(q model.Query) {
	s := h.w.p.s
	s.after(s.between(0, 2*millisecond), h.w.p, func() {
		inc := h.w.p.inc
		switch {
		case h.dropped || inc == nil:
		case h.inline || h.ahead != nil || h.thinking:
			h.query(q)
		default:
			sh, seen := inc.shells[h.gen%uint64(len(inc.shells))], h.m.seen
			sh.put(nil, func(now model.Time) {
				sh.lane.AnswerQuery(now, h.w.id, lane.QueryAnswer{Run: h.run, Generation: h.gen, ID: q.ID, Output: signalPayload(uint64(seen) + 1)})
			})
		}
	})
}

// recall answers a query about a closed run from its stored history.
func (w *worker) recall(run model.RunID, gen uint64, q model.Query) {
	p, s := w.p, w.p.s
	s.after(s.between(0, 2*millisecond), p, func() {
		inc := p.inc
		if inc == nil || p.worker(w.id) != w {
			return
		}
		s.did(opRecalled)
		sh, r := inc.shells[gen%uint64(len(inc.shells))], s.ledger.runs[run]
		seen := len(r.events)
		sh.put(nil, func(now model.Time) {
			sh.lane.AnswerQuery(now, w.id, lane.QueryAnswer{Run: run, Generation: gen, ID: q.ID, Output: signalPayload(uint64(seen) + 1)})
		})
	})
}

// mayGoOn fails if the owner of a paused run hands work of it to a worker. A former owner may not
// know that the run is paused.
func (sh *shell) mayGoOn(r *run, what string) {
	if s := sh.s; r.paused && s.ledger.owner[r.address.shard] == sh.inc.self.ID {
		s.fail("I15: %s of %s is %s while it is paused", short(r.id), r.address.name, what)
	}
}

// checkTalk checks the answer that a caller gets to an update, a query or an order.
func (s *Sim) checkTalk(o *op, a *model.Answer, r *run) {
	switch o.message.Kind { //nolint:exhaustive // the others are checked elsewhere
	case model.MessageUpdate:
		u := s.ledger.updates[o.message.RequestID]
		if o.message.RequestID == "" { // the engine has drawn an id
			if string(a.Output.Data) != string(replyTo(o.message.Input).Data) {
				s.fail("I16: %s is told %x", o, a.Output.Data)
			}
			return
		}
		if u == nil || !u.answered || u.output != string(a.Output.Data) || u.address.name != o.message.To || u.output != string(replyTo(o.message.Input).Data) {
			s.fail("I16: %s is told %x, which is not what its history says: %+v", o, a.Output.Data, u)
		}
	case model.MessageQuery:
		s.did(opAsked)
		seen := int64(signalID(a.Output)) - 1
		if seen < 0 || seen > int64(len(r.events)) {
			s.fail("I17: %s is told what follows from %d events of %s, which has %d", o, seen, short(r.id), len(r.events))
		}
		if seen < o.floor[r.id] {
			s.fail("I17: %s is told what follows from %d events of %s, after somebody was told of %d", o, seen, short(r.id), o.floor[r.id])
		}
		r.shown = max(r.shown, seen)
	case model.MessagePause:
		if r.pauses == 0 && r.start.Previous.IsZero() {
			s.fail("I15: %s was accepted and is not in the history", o)
		}
	case model.MessageTerminate:
		if r.outcome.Status != model.Terminated {
			s.fail("I18: %s was accepted, and the run is %s", o, r.outcome.Status)
		}
	}
}

// checkRefused checks that an update was not answered if it was refused because its execution had
// ended.
func (s *Sim) checkRefused(o *op) {
	if u := s.ledger.updates[o.message.RequestID]; o.message.Kind == model.MessageUpdate && o.message.RequestID != "" && u != nil && u.answered {
		s.fail("I16: %s was refused, and its history says that it was answered", o)
	}
}

// updateKey names an update: the request of a client, or the step of a workflow that sent it. It is
// empty for an update of a copied past, because no caller waits for its answer.
func updateKey(e *model.Event) string {
	if e.Watcher.ID != "" {
		return e.Watcher.Run.String() + " " + e.Watcher.ID
	}
	return e.RequestID
}

// updated records an accepted update.
func (l *ledger) updated(r *run, e *model.Event) {
	key := updateKey(e)
	if key == "" {
		l.fail("I16: event %d of %s is an update that nobody can be answered", e.Seq, r.id)
	}
	if l.updates[key] != nil {
		l.fail("I16: update %s is received twice", key)
	}
	l.updates[key] = &update{address: r.address}
	if e.Watcher.ID != "" {
		l.s.did(opCalled)
	}
	l.s.did(opUpdate)
}

// updateAnswered checks the answer to an update.
func (l *ledger) updateAnswered(b *store.Batch, r *run, e *model.Event) {
	if e.Ref < 1 || e.Ref >= e.Seq || r.events[e.Ref-1].Kind != model.EventUpdateReceived {
		l.fail("I16: event %d of %s answers update %d, which is none", e.Seq, r.id, e.Ref)
	}
	got := &r.events[e.Ref-1]
	if twice := slices.ContainsFunc(r.events[:e.Seq-1], func(o model.Event) bool { return o.Kind == model.EventUpdateAnswered && o.Ref == e.Ref }); twice {
		l.fail("I16: event %d of %s answers update %d a second time", e.Seq, r.id, e.Ref)
	}
	key := updateKey(got)
	if key == "" {
		l.s.did(opUpdateAgain)
		return
	}

	u := l.updates[key]
	if u == nil || u.answered {
		l.fail("I16: event %d of %s answers update %d, which was answered by another run", e.Seq, r.id, e.Ref)
	}
	u.answered, u.output = true, string(e.Output.Data)
	if !told(b, r, got) {
		l.fail("I16: event %d of %s answers update %d, and whoever sent it hears nothing", e.Seq, r.id, e.Ref)
	}
	l.s.did(opUpdateAnswered)
}

// reply records a remembered answer. A request has only one.
func (l *ledger) reply(r *store.Reply) {
	old, ok := l.replies[r.RequestKey]
	if ok && strings.HasPrefix(r.ID, model.RefusedIDs) {
		return // the same row was stored and refused again, and the first refusal stays
	}
	if ok && old != string(r.Body) {
		l.fail("I16: request %s of %s has two answers", r.ID, r.Address)
	}
	if id, ok := l.requested[r.ID]; ok {
		a, _ := model.DecodeAnswer(r.Body)
		l.answeredCall(id, &a)
	}
	l.replies[r.RequestKey], l.replied[r.RequestKey] = string(r.Body), r.At
}

// pause records that a run is paused or resumed.
func (l *ledger) pause(r *run, e *model.Event) {
	paused := e.Kind == model.EventPaused
	if r.paused == paused {
		l.fail("I15: event %d of %s is a %s, which it is already", e.Seq, r.id, e.Kind)
	}
	r.paused = paused
	if paused {
		r.pauses++
		l.s.did(opPaused)
	} else {
		l.s.did(opResumed)
	}
}

// told reports whether the batch has an answer for the sender of an update.
func told(b *store.Batch, r *run, u *model.Event) bool {
	if w := u.Watcher; w.ID != "" {
		return slices.ContainsFunc(b.Messages, func(m store.MessageRow) bool {
			return m.Message.Kind == model.MessageAnswer && m.Message.To == w.Address && m.Message.ToRun == w.Run && m.Message.ID == w.ID
		})
	}
	key := store.RequestKey{Shard: r.address.shard, Address: r.address.name, ID: u.RequestID}
	return slices.ContainsFunc(b.Requests, func(x store.Reply) bool { return x.RequestKey == key })
}

// cutOff checks that the sender of each open update learns that the run has ended, unless the next
// run answers the update.
func (l *ledger) cutOff(b *store.Batch, r *run) {
	next := l.runs[r.outcome.Next]
	for _, e := range unanswered(r.events) {
		key := updateKey(&e)
		if key == "" || next != nil && slices.ContainsFunc(unanswered(next.start.Carried), func(o model.Event) bool { return updateKey(&o) == key }) {
			continue
		}
		if !told(b, r, &e) {
			l.fail("I16: %s was closed, and whoever sent update %s hears nothing", r.id, key)
		}
		l.s.did(opUpdateCut)
		if e.Watcher.ID != "" {
			l.s.did(opCallCut)
		}
	}
}

// unanswered returns the unanswered updates of a history, in order.
func unanswered(events []model.Event) (open []model.Event) {
	for _, e := range events {
		switch e.Kind { //nolint:exhaustive // the others are not about updates
		case model.EventUpdateReceived:
			open = append(open, e)
		case model.EventUpdateAnswered:
			open = slices.DeleteFunc(open, func(u model.Event) bool { return u.Seq == e.Ref })
		}
	}
	return open
}

// carriedTalk checks that the next run has the state, the unanswered updates and the pause of the
// one before.
func (l *ledger) carriedTalk(old, next *run) {
	events := slices.Clone(old.events)
	for i := range l.s.disk.applying.Events {
		if e := &l.s.disk.applying.Events[i]; e.Run == old.id {
			events = append(events, e.Event)
		}
	}

	had, paused := standing(events)
	has, still := standing(next.start.Carried)
	if !maps.Equal(had, has) || paused != still {
		l.fail("I19: %s begins with state %v, paused %v; the run before ended with %v, paused %v", next.id, has, still, had, paused)
	}
	if slices.ContainsFunc(next.start.Carried, func(e model.Event) bool { return e.Kind == model.EventPinned }) {
		l.fail("I20: %s begins pinned, and may begin on any version", next.id)
	}
	open := slices.DeleteFunc(unanswered(events), func(e model.Event) bool { return isBegun(e.Input) && e.Seq <= old.outcome.Seen })
	if !slices.EqualFunc(open, unanswered(next.start.Carried), sameUpdate) {
		l.fail("I16: %s does not begin with the updates that the run before has not answered", next.id)
	}
}

func sameUpdate(a, b model.Event) bool {
	return updateKey(&a) == updateKey(&b) && a.Input.Equal(b.Input)
}

// standing returns the state at the end of a history, and whether the run is paused then.
func standing(events []model.Event) (state map[string]string, paused bool) {
	state = map[string]string{}
	for _, e := range events {
		switch e.Kind { //nolint:exhaustive // the others change neither
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
