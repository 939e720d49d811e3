package oracle

import (
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/scenario"
)

// CheckCallAnswer checks the answer that a caller of an entity gets. The change that the answer
// reports must be durable.
func (s *Oracle) CheckCallAnswer(o *Op, a *model.Answer) {
	l, m := s.Ledger, &o.Message
	n := l.HoldingOf(m.To)
	if m.Kind == model.MessageUnlock {
		s.Did(scenario.OpUnlockedByForce)
		return
	}

	x, _ := scenario.DeedOf(m.Input)
	d := l.Doings[x.ID]
	switch {
	case m.OneWay:
		s.Did(scenario.OpOneWay)
		if !d.stored && !d.applied && d.changes() && d.name != scenario.DoDelete {
			s.Fail("L3: %s was accepted and is not stored", o)
		}
	case m.Name == scenario.DoRead:
		stamp := scenario.StampIn(a.Output)
		at := n.Seen(stamp, o.Since)
		expired := stamp == 0 && n.Row.Expired(s.FairTime()) // views do not see an expired state
		if at < 0 && !expired {
			s.Fail("L10: %s is shown state %d, which is not in the store, or older than what a caller was shown before", o, stamp)
		}
		n.Shown = max(n.Shown, at)
		s.Did(scenario.OpViewed)
	case d.changes() && (d.applied || d.name != scenario.DoDelete) && (!d.applied || !d.output.Equal(a.Output)):
		s.Fail("L3: %s is told %x; applied: %v, %x", o, a.Output.Data, d.applied, d.output.Data)
	default:
		s.Did(scenario.OpDeedAnswered)
	}

	if m.Brief && m.Name != scenario.DoRead {
		s.Did(scenario.OpBrief)
	}
}

// The checks below enforce this rule: when an effect happens, its cause must be durable (L2, I4).

// Stored checks that the events that a lane passes on are in the store.
func (s *Oracle) Stored(id model.RunID, events []model.Event, who string) *Run {
	r := s.Ledger.Runs[id]
	if r == nil {
		s.Fail("L2: %s hears of %s, which is not in the store", who, scenario.Short(id))
	}
	for i := range events {
		e := &events[i]
		if e.Seq < 1 || e.Seq > int64(len(r.Events)) {
			s.Fail("L2: %s hears of event %d (%s) of %s, which is not in the store", who, e.Seq, e.Kind, scenario.Short(id))
		}
		if o := &r.Events[e.Seq-1]; o.Kind != e.Kind || o.ID != e.ID || o.At != e.At || o.Ref != e.Ref || string(o.Input.Data) != string(e.Input.Data) {
			s.Fail("L2: %s hears of another event %d of %s than the one in the store", who, e.Seq, scenario.Short(id))
		}
	}
	return r
}

// CheckResult checks the end of an execution that a user awaited.
func (s *Oracle) CheckResult(o *Op, res *lane.Result) {
	a, r := o.Message.To, s.Ledger.Runs[res.Run]
	if r == nil || r.Open() || r.Address.Name != a || r.outcome.Status != res.Outcome.Status || string(r.outcome.Output.Data) != string(res.Outcome.Output.Data) {
		s.Fail("I4: a caller hears an outcome of %s that is not in the store", a)
	}
	s.hears(o, r)
}

// CheckAnswer checks the answer that a caller gets. Everything that the answer reports must be
// durable.
func (s *Oracle) CheckAnswer(o *Op, a *model.Answer) {
	if o.Message.Kind == model.MessageDelete {
		for _, id := range o.Message.Runs {
			if s.Ledger.Runs[id].Deleted == 0 {
				s.Fail("I21: %s was accepted, and %s is there", o, scenario.Short(id))
			}
		}
		return
	}

	if o.Message.Kind == model.MessageRequeue {
		s.checkLetterAnswer(o, a)
		return
	}

	r := s.Ledger.Runs[a.Run]
	if r == nil || r.Address.Name != o.Message.To {
		s.Fail("I4: %s was accepted for %s, which is not in the store", o, scenario.Short(a.Run))
	}
	if o.Tries == 1 && o.Shadow == nil {
		s.hears(o, r)
	}

	switch o.Message.Kind {
	case model.MessageStart:
		if o.Message.Past != nil {
			s.checkBegun(o, a, r)
			return
		}
		if !r.Origin.Equal(o.Message.Input) {
			s.Fail("I10: %s was answered with a run of another input", o)
		}
		s.checkReuse(o, a, r)
		if !a.Existing && o.Shadow == nil {
			if r.fresh++; r.fresh > 1 {
				s.Fail("I2: two starts of %s were told that %s is theirs", o.Message.To, scenario.Short(a.Run))
			}
		}
		for i := range o.Message.With {
			s.hasSignal(o, &o.Message.With[i].Input)
		}
	case model.MessageSignal:
		s.hasSignal(o, &o.Message.Input)
	case model.MessageMailbox:
		s.checkDrop(o, r)
	case model.MessageSettle:
		if got, ok := r.settled[o.Message.Name]; !ok || got != string(o.Message.Input.Data) {
			s.Fail("I9: %s was accepted, and the promise has another value or none", o)
		}
	case model.MessageCancel:
		if !r.Cancel && !r.unbegun {
			s.Fail("I4: %s was accepted and is not in the history", o)
		}
	case model.MessageUpdate, model.MessageQuery, model.MessagePause, model.MessageTerminate:
		s.checkTalk(o, a, r)
	default:
	}
}

// checkReuse checks that a start created a run only where its reuse policy allows it.
func (s *Oracle) checkReuse(o *Op, a *model.Answer, r *Run) {
	if a.Existing || r.replaced == nil || !o.Message.ToRun.IsZero() {
		return
	}
	if reuse := o.Message.Reuse; reuse == model.ReturnExisting || reuse == model.ReuseIfFailed && r.replaced.outcome.Status == model.Completed {
		s.Fail("I2: %s has begun %s over %s, which is %s", o, scenario.Short(r.ID), scenario.Short(r.replaced.ID), r.replaced.outcome.Status)
	}
}

func (s *Oracle) hasSignal(o *Op, p *model.Payload) {
	if got := s.Ledger.signals[scenario.SignalID(*p)]; got == nil || got.address.Name != o.Message.To {
		s.Fail("I4: %s was accepted and is not in a history", o)
	}
}
