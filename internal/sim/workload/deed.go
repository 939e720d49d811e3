package workload

import (
	"errors"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/cluster"
	"github.com/perdure/perdure/internal/sim/kernel"
	"github.com/perdure/perdure/internal/sim/scenario"
)

// deed draws a request of the user to an entity or a service: an unlock, a read, a call, or a call
// that kills (see killer). The input of a call is a deed, which tells the operation what to do.
func (u *user) deed() *action {
	s := u.s
	if s.Chance(0.04) {
		o := u.op(model.Message{Kind: model.MessageUnlock, To: scenario.AccountAddress(s.Pick(s.Plan.Accounts))})
		if s.Chance(0.5) {
			o.Message.Epoch = s.Ledger.HoldingOf(o.Message.To).Row.Epoch
		}
		return o
	}

	if s.Chance(0.04) {
		o := u.op(model.Message{To: scenario.AccountAddress(s.Pick(s.Plan.Accounts))})
		o.Read = true
		return o
	}

	if s.Has(scenario.Killers) && !s.Healed && !s.Opts.Calm && s.Chance(0.1) {
		return u.killer()
	}

	name, d := s.NewDeed(true)
	m := model.Message{Kind: model.MessageCall, To: scenario.AccountAddress(s.Pick(s.Plan.Accounts)), Name: name}
	if s.Chance(0.15) {
		m.To, m.Name = scenario.DeskAddress(s.Pick(s.Plan.Desks)), kernel.OneOf(s, scenario.DoEcho, scenario.DoForward)
	}
	m.Input = d.Input()
	m.Brief = m.Name == scenario.DoRead || s.Chance(0.1)
	m.OneWay = !m.Brief && s.Chance(0.3)
	o := u.op(m)
	if m.Brief {
		o.Message.RequestID = ""
	}
	s.Ledger.Meant(&o.Message)

	if m.Name == scenario.DoRead {
		n := s.Ledger.HoldingOf(m.To)
		o.Since = n.Shown
	}

	return o
}

// killer draws a call that kills the process, or only the worker that executes the call. The user
// neither waits for the call nor repeats it.
func (u *user) killer() *action {
	s := u.s
	_, d := s.NewDeed(false)
	o := u.op(model.Message{
		Kind: model.MessageCall, To: scenario.AccountAddress(s.Pick(s.Plan.Accounts)), Name: scenario.DoKill, Input: d.Input(), OneWay: true,
	})
	o.Message.RequestID = ""
	s.Ledger.Meant(&o.Message)
	return o
}

// answerCall handles the answer to a call of an entity, or to the request of an operator to unlock
// an entity.
func (o *action) answerCall(a *lane.Answer, again, end func()) {
	s, m := o.u.s, &o.Message
	refused := func() {
		o.Refused = a.Err
		end()
	}

	switch kind := fault.KindOf(a.Err); {
	case a.Err == nil:
		o.Acked = true
		s.CheckCallAnswer(o.Op, &a.Answer)
		end()
	case a.Answer.Failure != nil && m.Kind == model.MessageCall && m.Name == scenario.DoFail:
		refused()
	case a.Answer.Failure != nil && a.Answer.Failure.Type == model.FailurePoison && s.Has(scenario.Killers):
		refused()
	case m.Kind == model.MessageUnlock && (kind == fault.NotFound || kind == fault.Conflict):
		refused()
	case kind == fault.Exhausted:
		s.Did(scenario.OpRefusedFull)
		refused()
	case kind == fault.Blocked:
		if !s.Ledger.Address(m.To).Sick {
			s.Fail("I14: %s: refused with %v, but nothing has damaged the entity", o, a.Err)
		}
		o.Unknown = true
		end()
	case kind != fault.Unavailable && kind != fault.Timeout && !errors.Is(a.Err, cluster.ErrCrashed):
		s.Fail("%s: %v", o, a.Err)
	case m.RequestID != "" || m.Name == scenario.DoRead:
		again()
	default:
		if errors.Is(a.Err, lane.ErrInterrupted) {
			s.Did(scenario.OpInterrupted)
		}
		o.Unknown = true
		end()
	}
}
