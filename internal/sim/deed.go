package sim

import (
	"errors"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// drawEntities decides which entities a simulation has.
func (s *Sim) drawEntities() {
	s.plan.accounts, s.plan.desks = 2+s.pick(len(accountKeys)-1), 1+s.pick(len(deskKeys))
	s.plan.entityIdle = oneOf(s, 0, microseconds(s.between(5, 60)*millisecond), microseconds(s.between(100, 500)*millisecond))
	s.plan.overlap = oneOf(s, 0, 1, 2)
	s.plan.entityMoves = s.pick(5)
}

// newDeed draws a deed for an account. A deed must not start a workflow that can cause the same
// deed again.
func (s *Sim) newDeed(mayStart bool) (name string, d deed) {
	s.deeds++
	d = deed{id: s.deeds, amount: s.between(1, 100), target: uint8(s.pick(s.plan.accounts))}
	name = oneOf(s, doAdd, doAdd, doAdd, doAdd, doPass, doPass, doFail, doSpawn, doRead)
	if name != doRead && s.chance(0.06) {
		name = doDelete
	}
	if name == doSpawn && !mayStart {
		name = doAdd
	}
	return name, d
}

// deed makes a user call an entity.
func (u *user) deed() *op {
	s := u.s
	if s.chance(0.04) {
		o := u.op(model.Message{Kind: model.MessageUnlock, To: accountAddress(s.pick(s.plan.accounts))})
		if s.chance(0.5) {
			o.message.Epoch = s.ledger.holdingOf(o.message.To).row.Epoch
		}
		return o
	}

	if s.chance(0.04) {
		o := u.op(model.Message{To: accountAddress(s.pick(s.plan.accounts))})
		o.read = true
		return o
	}

	name, d := s.newDeed(true)
	m := model.Message{Kind: model.MessageCall, To: accountAddress(s.pick(s.plan.accounts)), Name: name}
	if s.chance(0.15) {
		m.To, m.Name = deskAddress(s.pick(s.plan.desks)), oneOf(s, doEcho, doForward)
	}
	m.Input = d.input()
	m.Brief = m.Name == doRead || s.chance(0.1)
	m.OneWay = !m.Brief && s.chance(0.3)
	o := u.op(m)
	if m.Brief {
		o.message.RequestID = ""
	}
	s.ledger.meant(&o.message)

	if m.Name == doRead {
		n := s.ledger.holdingOf(m.To)
		o.since = n.shown
	}

	return o
}

// answerCall handles the answer to a call of an entity, or to an operator's order to unlock one.
func (o *op) answerCall(a *lane.Answer, again, end func()) {
	s, m := o.user.s, &o.message
	refused := func() {
		o.refused = a.Err
		end()
	}

	switch kind := fault.KindOf(a.Err); {
	case a.Err == nil:
		o.acked = true
		s.checkCallAnswer(o, &a.Answer)
		end()
	case a.Answer.Failure != nil && m.Kind == model.MessageCall && m.Name == doFail:
		refused()
	case m.Kind == model.MessageUnlock && (kind == fault.NotFound || kind == fault.Conflict):
		refused()
	case kind == fault.Exhausted:
		s.did(opRefusedFull)
		refused()
	case kind == fault.Blocked:
		if !s.ledger.address(m.To).sick {
			s.fail("I14: %s: %v, and there is nothing wrong with it", o, a.Err)
		}
		o.unknown = true
		end()
	case kind != fault.Unavailable && kind != fault.Timeout && !errors.Is(a.Err, errCrashed):
		s.fail("%s: %v", o, a.Err)
	case m.RequestID != "" || m.Name == doRead:
		again()
	default:
		if errors.Is(a.Err, lane.ErrInterrupted) {
			s.did(opInterrupted)
		}
		o.unknown = true
		end()
	}
}

// checkCallAnswer checks that the answer about an entity that a caller gets is durable.
func (s *Sim) checkCallAnswer(o *op, a *model.Answer) {
	l, m := s.ledger, &o.message
	n := l.holdingOf(m.To)
	if m.Kind == model.MessageUnlock {
		s.did(opUnlockedByForce)
		return
	}

	x, _ := deedOf(m.Input)
	d := l.doings[x.id]
	switch {
	case m.OneWay:
		s.did(opOneWay)
		if !d.stored && !d.applied && d.changes() && d.name != doDelete {
			s.fail("L3: %s was accepted and is not stored", o)
		}
	case m.Name == doRead:
		stamp := stampIn(a.Output)
		at := n.seen(stamp, o.since)
		if at < 0 {
			s.fail("L10: %s is shown state %d, which is not in the store, or older than what somebody was shown before", o, stamp)
		}
		n.shown = max(n.shown, at)
		s.did(opViewed)
	case d.changes() && (d.applied || d.name != doDelete) && (!d.applied || !d.output.Equal(a.Output)):
		s.fail("L3: %s is told %x; applied: %v, %x", o, a.Output.Data, d.applied, d.output.Data)
	default:
		s.did(opDeedAnswered)
	}

	if m.Brief && m.Name != doRead {
		s.did(opBrief)
	}
}
