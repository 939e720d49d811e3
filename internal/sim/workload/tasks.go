package workload

import (
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/kernel"
	"github.com/perdure/perdure/internal/sim/scenario"
)

// drawTask draws an operation on a task without a workflow.
func (u *user) drawTask() *action {
	s := u.s
	i := s.Pick(len(scenario.TaskKeys))
	to := s.TaskAddress(i)
	a := s.Ledger.Addresses[to]
	why := &model.Failure{Message: "by a user"}
	if s.Has(scenario.Gates) && !s.Healed && s.Chance(0.25) {
		return u.drawFlow()
	}

	if s.Has(scenario.DeadOrders) && s.Chance(0.45) {
		if o := u.drawLetter(); o != nil {
			return o
		}
	}

	switch n := s.Pick(16); {
	case n < 9 || a == nil || a.Current == nil:
		o := u.op(s.Submission(i))
		if s.Has(scenario.Retention) && s.Chance(0.4) { // submit many at a time, as SendMany does
			for range 1 + s.Pick(4) {
				u.soon(o, 0, s.Submission(s.Pick(len(scenario.TaskKeys))))
			}
			s.Did(scenario.OpMany)
		}
		return o
	case n < 11:
		return u.op(model.Message{Kind: model.MessageCancel, To: to, Failure: why})
	case n < 13:
		return u.op(model.Message{To: to})
	case n < 14:
		o := u.op(model.Message{Kind: model.MessagePause, To: to, Failure: why})
		u.soon(o, s.Between(0, 200*kernel.Millisecond), model.Message{Kind: model.MessageResume, To: to})
		return o
	case n < 15:
		return u.op(model.Message{Kind: model.MessageTerminate, To: to, Failure: why})
	case !a.Current.Open():
		return u.op(*s.Deletion(a.Current))
	default:
		o := u.op(model.Message{To: to})
		o.Read = true
		return o
	}
}
