package workload

import (
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/kernel"
	"github.com/perdure/perdure/internal/sim/oracle"
	"github.com/perdure/perdure/internal/sim/scenario"
)

// drawLetter draws an order for a dead task. It returns nil if there is no dead task.
func (u *user) drawLetter() *action {
	s := u.s
	var there []*oracle.DeadTask
	for _, x := range s.Ledger.DeadOrder {
		if !x.Purged || s.Chance(0.05) { // the user may not know that it was purged
			there = append(there, x)
		}
	}

	if len(there) == 0 {
		return nil
	}
	x := there[s.Pick(len(there))]
	waits := s.Ledger.Runs[x.Body.Requeued.Run]
	o := model.DeadTaskOrder{Do: model.DeadTaskRequeue, Ref: x.Ref}
	to := x.Ref.Address
	if s.KnowsDamage(x) && s.Chance(0.5) {
		o.Do, o.Damaged, x.Asked = model.DeadTaskPurge, true, true
		return u.op(model.Message{Kind: model.MessageRequeue, To: to, DeadTask: &o})
	}

	switch n := s.Pick(10); {
	case n < 3 && x.Count > 0, n < 8 && waits != nil && waits.Open() && waits.Tasks[model.TaskStep].Attempt == 0:
		// the undo may come before a worker has started the task
		o.Do, o.Count, o.Run, to = model.DeadTaskUndo, x.Count, x.Body.Requeued.Run, x.Body.Requeued.Address
	case n < 4 && s.SettledDead(x):
		o.Do, o.Count, o.Run = model.DeadTaskPurge, x.Count, x.Body.Requeued.Run
		x.Asked = true
	default:
		if s.SettledDead(x) && s.Chance(0.6) {
			o.Count, o.Run = x.Count, x.Body.Requeued.Run // requeue it again
		}
		if s.Chance(0.35) {
			w := scenario.Work{Took: s.Between(0, 5*kernel.Millisecond), Fails: kernel.OneOf(s, 0, 0, 3)}.Payload()
			o.Input = &w
			x.Edits = append(x.Edits, w)
		}
	}

	first := u.op(model.Message{Kind: model.MessageRequeue, To: to, DeadTask: &o})
	// Sometimes the user undoes the requeue as soon as it is known, or orders it twice.
	if o.Do == model.DeadTaskRequeue && s.Chance(0.3) {
		if s.Chance(0.5) {
			again := o
			u.soon(first, s.Between(0, 2*kernel.Millisecond), model.Message{Kind: model.MessageRequeue, To: to, DeadTask: &again})
		} else {
			s.After(s.Between(2, 20)*kernel.Millisecond, nil, func() { u.undoSoon(x) })
		}
	}

	return first
}

// undoSoon undoes a requeue, perhaps before a worker has started the task.
func (u *user) undoSoon(x *oracle.DeadTask) {
	if x.Purged || x.Count == 0 {
		return
	}
	q := x.Body.Requeued
	o := &model.DeadTaskOrder{Do: model.DeadTaskUndo, Ref: x.Ref, Count: x.Count, Run: q.Run}
	u.op(model.Message{Kind: model.MessageRequeue, To: q.Address, DeadTask: o}).perform(func() {})
}
