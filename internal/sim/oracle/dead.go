package oracle

import (
	"context"
	"slices"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/scenario"
	"github.com/perdure/perdure/internal/store"
)

// Users requeue dead tasks with the same input or with another input, some of them several times.
// Users also undo requeues, and purge dead tasks. Rule E38 says: only one order at a time changes a
// dead task, and the dead task counts its changes. Every requeue that is not undone starts one run,
// with the options and the input of the dead task or of the order. A requeue that is undone never
// starts a task, and leaves the dead task as it was before the requeue. A purged dead task never
// comes back. A dead task is purged only by an order or after its retention. Together with E37 this
// means: every task has completed, was called off, is a dead task, or was a dead task that was
// purged.

// DeadTask is a dead task as the store has it.
type DeadTask struct {
	key    store.DeadKey
	Ref    model.TaskRef
	Body   model.DeadTask
	Count  int64
	Purged bool
	Asked  bool            // a user has asked to purge the dead task
	Edits  []model.Payload // inputs with which users have asked to requeue the dead task
}

// requeued is a run that a requeue has started or will start.
type requeued struct {
	dead   *DeadTask
	run    model.RunID
	to     model.Address
	told   int // how many users got the answer that their order made the requeue
	undone bool
}

// undoneText is the reason in the outcome of a run whose requeue was undone.
const undoneText = "the requeue was undone"

// SettledDead reports whether a dead task was never requeued, or the run of its last requeue has
// ended. Users check this before they order something for the dead task.
func (s *Oracle) SettledDead(x *DeadTask) bool {
	r := s.Ledger.Runs[x.Body.Requeued.Run]
	return x.Body.Requeued.IsZero() || r != nil && !r.Open()
}

// applyDeadRows applies the changes of dead tasks in a batch to the ledger.
func (l *ledger) applyDeadRows(b *store.Batch) {
	for i := range b.Dead {
		row := &b.Dead[i]
		x := &DeadTask{key: row.DeadKey, Ref: model.TaskRef{Address: row.Body.Address, Run: row.Run, ID: row.Task}, Body: row.Body}
		if l.deadTasks[x.key] != nil {
			l.Fail("E37: task %s of %s dies twice", row.Task, row.Run)
		}
		l.deadTasks[x.key] = x
		l.DeadOrder = append(l.DeadOrder, x)
	}

	for i := range b.DeadMarks {
		m := &b.DeadMarks[i]
		l.owns(b, m.Shard)
		x := l.deadTasks[m.DeadKey]
		if x == nil || x.Purged || x.Count != m.Prev {
			l.Fail("E38: the dead task of %s of %s is marked from %d to %d, and is not there so", m.Task, m.Run, m.Prev, m.Next)
		}
		before := x.Body.Requeued
		x.Count, x.Body = m.Next, m.Body

		switch m.Next {
		case m.Prev + 1:
			if r := l.Runs[before.Run]; !before.IsZero() && (r == nil || r.Open()) {
				l.Fail("E38: the dead task of %s is requeued again, and run %s, which it was requeued as, has not ended", x.Ref, scenario.Short(before.Run))
			}
			l.requeue(b, x, m.Body.Requeued)
		case m.Prev - 1:
			q := l.requeues[before.Run]
			if r := l.Runs[before.Run]; q == nil || q.dead != x || r == nil || !undone(r) || q.undone {
				l.Fail("E38: the dead task of %s is as it was, and run %s, which it was requeued as, was not taken back", x.Ref, scenario.Short(before.Run))
			}
			q.undone = true
			l.s.Did(scenario.OpRequeueUndone)
		default:
			l.Fail("E38: the dead task of %s was requeued %d times, and then %d", x.Ref, m.Prev, m.Next)
		}
	}

	for _, key := range b.DeadDeletes {
		l.owns(b, key.Shard)
		l.purge(l.deadTasks[key])
	}
}

// undone reports whether a run has ended because its requeue was undone.
func undone(r *Run) bool {
	return r.outcome.Status == model.Canceled && r.outcome.Failure != nil && r.outcome.Failure.Message == undoneText
}

// requeue checks that the batch starts the run of a requeue, or sends the message that starts it.
func (l *ledger) requeue(b *store.Batch, x *DeadTask, q model.Requeue) {
	if l.requeues[q.Run] != nil {
		l.Fail("E38: run %s is begun by two requeues", scenario.Short(q.Run))
	}
	l.requeues[q.Run] = &requeued{dead: x, run: q.Run, to: q.Address}
	l.requeueOrder = append(l.requeueOrder, l.requeues[q.Run])
	var spec *model.TaskSpec
	var in model.Payload

	if x.Ref.Alone() {
		if r := l.Runs[q.Run]; r != nil && starts(b, q.Run) {
			spec, in = r.Start.Task, r.Start.Input
		}
	} else if i := slices.IndexFunc(b.Messages, func(m store.MessageRow) bool {
		return m.Message.Kind == model.MessageStart && m.Message.Fresh == q.Run && m.Message.To == q.Address
	}); i >= 0 {
		spec, in = b.Messages[i].Message.Task, b.Messages[i].Message.Input
		l.s.Did(scenario.OpRequeuedStep)
	}

	if spec == nil {
		l.Fail("E38: the dead task of %s is requeued as %s, which does not begin", x.Ref, scenario.Short(q.Run))
	}
	edited := slices.ContainsFunc(x.Edits, in.Equal)
	if had := &x.Body.Spec; !in.Equal(x.Body.Input) && !edited || spec.Kind != had.Kind || spec.Queue != had.Queue || spec.Retry.MaxAttempts != had.Retry.MaxAttempts || spec.Delay != 0 || spec.Breaker != had.Breaker {
		l.Fail("E38: the dead task of %s is requeued as another task: %+v with %x", x.Ref, *spec, in.Data)
	}
	l.s.Did(scenario.OpRequeued)
	if edited {
		l.s.Did(scenario.OpRequeuedEdited)
	}
	if x.Count > 1 {
		l.s.Did(scenario.OpRequeuedAgain)
	}
}

// purge checks that a dead task may be removed.
func (l *ledger) purge(x *DeadTask) {
	if x == nil || x.Purged {
		l.Fail("E38: a dead task is purged that is not there")
	}
	if r := l.Runs[x.Body.Requeued.Run]; !x.Body.Requeued.IsZero() && (r == nil || r.Open()) {
		l.Fail("E38: the dead task of %s is purged, and run %s, which it was requeued as, has not ended", x.Ref, scenario.Short(x.Body.Requeued.Run))
	}
	x.Purged = true
	if l.s.KnowsDamage(x) {
		l.s.Did(scenario.OpDeadRemoved)
	}
	if x.Asked {
		l.s.Did(scenario.OpPurged)
		return
	}
	l.s.Did(scenario.OpDeadExpired)
	if due := x.Body.At.Add(l.s.Plan.KeepDead); l.s.Plan.KeepDead == 0 || due > l.s.FairTime() {
		l.Fail("R1: the dead task of %s is purged without a request, although it was to stay until %s", x.Ref, due)
	}
}

// undoes checks that no worker had started a run that ends because its requeue was undone.
func (l *ledger) undoes(r *Run) {
	if !undone(r) {
		return
	}
	for ref := range l.s.Claims {
		if ref.Run == r.ID {
			l.Fail("E38: the requeue as %s is taken back, and claim %d has begun it", scenario.Short(r.ID), ref.Claim)
		}
	}
}

// requeuedFrom returns the dead task that a batch requeues as a run, or nil.
func (l *ledger) requeuedFrom(b *store.Batch, id model.RunID) *DeadTask {
	for i := range b.DeadMarks {
		if m := &b.DeadMarks[i]; m.Next > m.Prev && m.Body.Requeued.Run == id {
			return l.deadTasks[m.DeadKey]
		}
	}
	return nil
}

// checkLetterAnswer checks the answer that a user gets to an order for a dead task.
func (s *Oracle) checkLetterAnswer(o *Op, a *model.Answer) {
	order := o.Message.DeadTask
	x := s.Ledger.deadTasks[store.DeadKey{RunKey: store.RunKey{Shard: s.ShardOf(order.Ref.Address), Run: order.Ref.Run}, Task: order.Ref.ID}]
	switch order.Do {
	case model.DeadTaskRequeue:
		q := s.Ledger.requeues[a.Run]
		if q == nil || q.dead != x {
			s.Fail("E38: %s was accepted as %s, which is not in the store", o, scenario.Short(a.Run))
		}
		if a.Existing {
			s.Did(scenario.OpRequeuedBefore)
		} else if o.Shadow == nil {
			if q.told++; q.told > 1 {
				s.Fail("E38: two were told that %s is their requeue", scenario.Short(a.Run))
			}
		}
	case model.DeadTaskUndo:
		if r := s.Ledger.Runs[order.Run]; r == nil || !undone(r) {
			s.Fail("E38: %s was accepted, and %s is not taken back", o, scenario.Short(order.Run))
		}
	case model.DeadTaskPurge:
		if !x.Purged {
			s.Fail("E38: %s was accepted, and the dead task is there", o)
		}
	default:
	}
}

// CheckDead compares dead tasks with the store, and checks the outcome of requeues and of all
// tasks.
func (s *Oracle) CheckDead() {
	l := s.Ledger
	left := int64(0)
	for _, x := range l.DeadOrder {
		row, err := s.Store.LoadDead(context.Background(), x.key)
		if err != nil || (row == nil) != x.Purged || row != nil && (row.Requeued != x.Count || !row.Body.Requeued.Equal(x.Body.Requeued)) {
			s.Fail("E37: the dead task of %s is not in the store as it was written: purged %v, %v", x.Ref, x.Purged, err)
		}
		if !x.Purged {
			left++
		}
	}

	if n, err := s.Store.CountDead(context.Background(), store.DeadQuery{Tenant: scenario.Tenant}); err != nil || n != left {
		s.Fail("E37: %d dead tasks are in the store, %d by the ledger: %v", n, left, err)
	}

	for _, q := range l.requeueOrder {
		r := l.Runs[q.run]
		if r == nil {
			s.Fail("E38: the dead task of %s was requeued as %s, which never began", q.dead.Ref, scenario.Short(q.run))
		}
		// the last condition is false if the dead task was requeued again before the undo reached
		// the run
		if undone(r) != q.undone && !q.dead.Purged && q.dead.Body.Requeued.Run == q.run {
			s.Fail("E38: the requeue as %s was taken back, and its dead task is not as it was", scenario.Short(q.run))
		}
	}

	s.checkSum()
}

// checkSum checks that every task has ended once, and that every failed task is or was a dead task.
func (s *Oracle) checkSum() {
	l := s.Ledger
	if sum := l.tally[endCompleted] + l.tally[endCalledOff] + l.tally[endDead]; sum != l.made || l.tally[endDead] != len(l.DeadOrder) {
		s.Fail("E37: of %d tasks %d have completed, %d were called off and %d died, with %d dead tasks", l.made, l.tally[endCompleted], l.tally[endCalledOff], l.tally[endDead], len(l.DeadOrder))
	}
}

// ending says how a task has ended.
type ending uint8

const (
	endCompleted ending = iota
	endCalledOff        // withdrawn, canceled, terminated, or closed with its run
	endDead
	endings
)

// ends records the end of a task.
func (l *ledger) ends(t *errandState, how ending) {
	if !t.Over && !t.inherited {
		l.tally[how]++
	}
	t.Over = true
}
