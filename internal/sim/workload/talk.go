package workload

import (
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/kernel"
)

// orderSignal lets an operator drop or skip a signal that a program has not taken. It returns nil
// if there is no such signal.
func (u *user) orderSignal() *action {
	s := u.s
	var list []model.Message
	for _, r := range s.Ledger.Order {
		if !r.Open() || r.Start.Task != nil {
			continue
		}
		for _, e := range r.Unread() {
			list = append(list, model.Message{Kind: model.MessageMailbox, To: r.Address.Name, ID: model.SignalID(r.ID, &e)})
		}
	}
	if len(list) == 0 {
		return nil
	}

	m := kernel.OneOf(s, list...)
	m.Name = kernel.OneOf(s, model.MailboxDrop, model.MailboxSkip)
	m.Failure = &model.Failure{Message: "by an operator"}
	return u.op(m)
}

// talk draws a request to the code of an execution, or an order of an operator.
func (u *user) talk(to model.Address, n int) *action {
	s := u.s
	why := &model.Failure{Message: "by a user"}
	switch {
	case n < 23:
		return u.op(model.Message{Kind: model.MessageUpdate, To: to, Name: "u", Input: u.signal()})
	case n < 25:
		o := u.op(model.Message{Kind: model.MessageQuery, To: to, Name: "q"})
		o.Message.RequestID = ""
		if a := s.Ledger.Addresses[to]; a != nil {
			o.Floor = map[model.RunID]int64{}
			for _, r := range a.Runs {
				o.Floor[r.ID] = r.Shown
			}
		}
		return o
	case n < 26:
		o := u.op(model.Message{Kind: model.MessagePause, To: to, Failure: why})
		u.soon(o, kernel.OneOf(s, s.Between(0, kernel.Millisecond), s.Between(1, 400)*kernel.Millisecond), model.Message{Kind: model.MessageResume, To: to})
		return o
	case s.Chance(0.5):
		return u.op(model.Message{Kind: model.MessageResume, To: to})
	default:
		return u.op(model.Message{Kind: model.MessageTerminate, To: to, Failure: why})
	}
}
