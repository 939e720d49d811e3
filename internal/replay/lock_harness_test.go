package replay_test

import (
	"fmt"
	"maps"
	"slices"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/model"
)

// The engine of the tests plays the part of all entities. When the test says so, it grants a lock,
// answers a call or refuses a lock. It does not check which section holds the lock.

func account(key string) model.Address {
	return model.Address{Tenant: model.DefaultTenant, Type: model.EntityPrefix + "account", Key: key}
}

// lockSets are the sets of entities that random programs lock. As in real code, they are not
// sorted.
var lockSets = [][]model.Address{{account("a")}, {account("b"), account("a")}, {account("b"), account("b")}, {account("c"), account("a"), account("b")}}

// callOf returns a call of an entity, or of a service; some are one-way.
func callOf(o op) model.Message {
	m := model.Message{Kind: model.MessageCall, To: account(string(rune('a' + o.N%3))), Name: "op", Input: payload("1")}
	switch {
	case o.N == 3:
		m.To.Type = model.ServicePrefix + "mail"
	case o.M == 3:
		m.OneWay = true
	}
	return m
}

// engineAgrees checks that the real engine would accept the turn.
func (e *engine) engineAgrees(t *model.Turn) {
	if len(e.events)+len(t.Commands) > 300 {
		// the check reads the whole history every time, which takes too long in tests with
		// thousands of events
		return
	}
	start := e.start
	start.Carried = nil // the carried events are among e.events
	x, err := core.Recover(start, model.Outcome{Status: model.Running}, e.events, nil)
	if err == nil {
		_, _, err = core.Apply(x, t, e.now(), model.RunID{9}, core.DefaultLimits)
	}
	if err != nil {
		e.problem("the engine refuses: %v", err)
	}
}

// applyLock begins or ends a section.
func (e *engine) applyLock(c *model.Command) {
	ev := c.Event
	if c.Kind == model.CommandLock {
		if e.sent[ev.ID] {
			e.problem("section %s is asked for twice", ev.ID)
		}
		e.sent[ev.ID] = true
		ev.Kind, ev.Locks = model.EventLockAsked, model.SortLocks(ev.Locks)
		e.locks[ev.ID] = &ev
	} else {
		delete(e.locks, ev.Section)
		ev.Kind = model.EventUnlocked
	}
	e.append(ev)
}

// keepCall keeps a call until the test answers it.
func (e *engine) keepCall(c *model.Command) {
	if c.Message.Section != c.Event.Section {
		e.problem("the call is made in section %q, its event says %q", c.Message.Section, c.Event.Section)
	}
	e.calls[c.Event.ID] = c.Event
}

// entities returns what the entities may do next: answer, grant, or refuse.
func (e *engine) entities() (as []func()) {
	for _, id := range slices.Sorted(maps.Keys(e.calls)) {
		as = append(as, func() { e.answer(id, nil) })
	}

	for _, id := range slices.Sorted(maps.Keys(e.locks)) {
		if s := e.locks[id]; s.Attempt < len(s.Locks) {
			as = append(as, func() { e.grant(id) })
		}
	}

	for _, id := range slices.Sorted(maps.Keys(e.calls)) {
		as = append(as, func() { e.answer(id, &model.Failure{Kind: "code", Message: "refused"}) })
	}

	for _, id := range slices.Sorted(maps.Keys(e.locks)) {
		if s := e.locks[id]; s.Attempt < len(s.Locks) {
			as = append(as, func() { e.refuse(id) })
		}
	}

	return as
}

func (e *engine) answer(id string, f *model.Failure) {
	delete(e.calls, id)
	ev := model.Event{Kind: model.EventAnswered, ID: id, Failure: f}
	if f == nil {
		ev.Output = payload("answer")
	}
	e.inject(ev)
}

// grant grants the next lock of a section. The token is the position, so that all tokens differ.
func (e *engine) grant(id string) {
	s := e.locks[id]
	e.inject(model.Event{Kind: model.EventLockGranted, ID: id, Target: s.Locks[s.Attempt], Ref: e.last() + 1})
	s.Attempt++
}

func (e *engine) refuse(id string) {
	delete(e.locks, id)
	e.inject(model.Event{Kind: model.EventAnswered, ID: id, Failure: &model.Failure{Kind: "invalid", Message: "cannot be locked"}})
}

// remember derives the engine's state from the history.
func (e *engine) remember() {
	for i := range e.events {
		switch ev := e.events[i]; ev.Kind {
		case model.EventChildStarted:
			e.sent[ev.ID] = true
		case model.EventLockAsked:
			e.sent[ev.ID] = true
			e.locks[ev.ID] = &ev
		case model.EventLockGranted:
			e.locks[ev.ID].Attempt++
		case model.EventSent:
			e.sent[ev.ID] = true
			e.calls[ev.ID] = ev
		case model.EventUnlocked, model.EventWithdrawn, model.EventAnswered:
			delete(e.locks, ev.ID)
			delete(e.calls, ev.ID)
		default:
		}
	}
}

// tokens returns the fencing tokens that the history grants, in order.
func (e *engine) tokens() string {
	var texts []string
	for i := range e.events {
		if ev := &e.events[i]; ev.Kind == model.EventLockGranted {
			texts = append(texts, fmt.Sprintf("%s=%d", ev.Target.Key, ev.Ref))
		}
	}
	return fmt.Sprint(texts)
}
