package core

import (
	"fmt"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// StoredDeadTask is the stored row of a dead task, and how often the task was requeued.
type StoredDeadTask struct {
	Count int64
	Body  model.DeadTask
}

// hasChanged reports whether a dead task has been requeued since the sender of the order looked at
// the task. It compares the count and the last run. The count alone is not enough: if one requeue
// was undone and another followed, the count is the same as before.
func (l *StoredDeadTask) hasChanged(o *model.DeadTaskOrder) bool {
	last := l.Body.Requeued.Run
	return l.Count != o.Count || !o.Run.IsZero() && !last.IsZero() && o.Run != last
}

// FindRequeue finds out what a requeue does to a dead task that may have been requeued since the
// sender looked at the task. It returns the last requeue if that is the answer to the order, an
// error if the requeue is refused for that reason, and a zero value if the task was not requeued
// since.
func (l *StoredDeadTask) FindRequeue(o *model.DeadTaskOrder) (model.Requeue, error) {
	if !l.hasChanged(o) {
		return model.Requeue{}, nil
	}
	if why := l.whyNotRepeated(o); why != "" {
		return model.Requeue{}, fault.New(fault.Conflict, "%s", why)
	}
	return l.Body.Requeued, nil
}

// whyNotRepeated returns why the last requeue of a dead task that has changed is not the answer to
// an order. It returns an empty text if it is the answer.
func (l *StoredDeadTask) whyNotRepeated(o *model.DeadTaskOrder) string {
	last := &l.Body.Requeued
	switch {
	case last.IsZero(): // there is no run that the answer could name
		return fmt.Sprintf("dead task %s was requeued %d times, not %d, and the last requeue was undone: requeue it again", o.Ref, l.Count, o.Count)
	case o.Input == nil || last.HasInput(*o.Input):
		return ""
	}

	with := "another input"
	if len(last.Input) == 0 || !o.Input.Comparable() {
		with = "its own input, or with one that cannot be compared with this one"
	}
	return fmt.Sprintf("dead task %s was requeued before, as run %s, with %s, so it is not requeued with this input: look at the input of that run; "+
		"when that run has ended, the task may be requeued again", o.Ref, last.Run, with)
}

// DeadTaskChange is what a decision does to a dead task.
type DeadTaskChange struct {
	Ref model.TaskRef
	// The commit raises or lowers the count of the row from Prev to Next and writes Body, or it
	// removes the row if Purged is set.
	Prev, Next int64
	Body       model.DeadTask
	Purged     bool
}

// DeliverDeadTaskOrder applies an order about a dead task to the address of its run, or to the
// address of the run that a requeue has begun. dead is the stored row, or nil. fresh is the id of
// the run that a requeue begins.
//
//arch:parameters the core is pure: the stored row, the time and the fresh id come in as values
func DeliverDeadTaskOrder(x *Execution, m *model.Message, dead *StoredDeadTask, now model.Time, fresh model.RunID) (*Execution, Decision) {
	var d Decision
	switch o := m.DeadTask; o.Do {
	case model.DeadTaskRequeue:
		return requeue(x, m, dead, now, fresh)
	case model.DeadTaskUndo:
		x.undo(&d, m, dead, now)
	case model.DeadTaskUndone:
		d.unmark(o, dead)
	case model.DeadTaskPurge:
		x.purge(&d, o, dead)
	default:
		d.refuse(fault.Invalid, fmt.Sprintf("dead task %s: this build does not know operation %d", o.Ref, o.Do))
	}
	return x, d
}

// requeue schedules the task again. If several clients that have seen the same state of the dead
// task send this order, only the first order schedules the task. If no workflow scheduled the task,
// requeue begins another run of the same key. If a workflow scheduled it as a step, requeue sends a
// start to a new address, in the commit that marks the dead task as requeued.
//
//arch:parameters the same values as DeliverDeadTaskOrder
func requeue(x *Execution, m *model.Message, dead *StoredDeadTask, now model.Time, fresh model.RunID) (*Execution, Decision) {
	var d Decision
	o := m.DeadTask
	switch {
	case dead == nil:
		d.refuse(fault.NotFound, fmt.Sprintf("there is no dead task %s of run %s", o.Ref, o.Ref.Run))
		return x, d
	case dead.hasChanged(o):
		if why := dead.whyNotRepeated(o); why != "" {
			d.refuse(fault.Conflict, why)
		} else {
			d.Answer = model.Answer{Run: dead.Body.Requeued.Run, Existing: true, Requeue: dead.Count}
		}
		return x, d
	case o.Ref.Alone() && x != nil && x.Open():
		d.refuse(fault.Conflict, fmt.Sprintf("%s is open again, as run %s", o.Ref, x.Start.Run))
		return x, d
	case o.Ref.Alone() && x != nil && x.Outcome.Status == model.Completed:
		d.refuse(fault.Conflict, fmt.Sprintf("%s has completed since, as run %s", o.Ref, x.Start.Run))
		return x, d
	}

	// Mark the dead task as requeued, and compose the new task.
	body := dead.Body
	spec, in := body.Spec, body.Input
	spec.Delay = 0 // the delay was for the first run only
	if o.Input != nil {
		spec.Same, in = nil, *o.Input // a new input needs a new idempotency key
	}
	to := o.Ref.RequeueAddress(spec.Kind, dead.Count+1)
	body.Requeued = model.Requeue{At: now, Address: to, Run: fresh}
	if o.Input != nil {
		body.Requeued.SetInput(*o.Input)
	}
	d.DeadTask = &DeadTaskChange{Ref: o.Ref, Prev: dead.Count, Next: dead.Count + 1, Body: body}
	d.Answer = model.Answer{Run: fresh, Status: model.Running, Requeue: dead.Count + 1}

	// The task was a step of a workflow: the new run has a new address.
	if !o.Ref.Alone() {
		d.Messages = append(d.Messages, model.Message{Kind: model.MessageStart, To: to, Input: in, Task: &spec, Reuse: model.ReuseAlways, Fresh: fresh, Trace: m.Trace})
		return x, d
	}

	// No workflow scheduled the task: the new run has the same key.
	s := model.Start{Address: to, Run: fresh, At: now, Input: in, RequestID: m.RequestID, Task: &spec, Trace: m.Trace}
	if o.Input != nil {
		// A client that repeats its submission sends the original input.
		s.Origin = body.Input.Digest()
	}

	if x != nil {
		d.Replaces, s.Replaced, s.Labels = x.Start.Run, x.Start.Run, x.Start.Labels
		if len(x.Start.Origin) > 0 {
			s.Origin = x.Start.Origin
		}
	}

	x = begin(s)
	d.Start = &x.Start
	return x, d
}

// undo ends the run that a requeue has begun, unless a worker has begun the task.
func (x *Execution) undo(d *Decision, m *model.Message, dead *StoredDeadTask, now model.Time) {
	o := m.DeadTask
	switch {
	case x == nil || x.Start.Run != o.Run:
		d.refuse(fault.Conflict, fmt.Sprintf("run %s of %s is not the current one", o.Run, m.To))
		return
	case !x.Open():
		d.refuse(fault.Conflict, fmt.Sprintf("%s has ended (%s)", m.To, x.Outcome.Status))
		return
	}

	t := x.Task(model.TaskStep)
	if t == nil || t.Held || t.Attempt > 0 || len(x.endedClaims) > 0 {
		d.refuse(fault.Conflict, fmt.Sprintf("%s has begun: cancel it instead", m.To))
		return
	}

	why := model.Failure{Kind: model.FailureCanceled, Message: "the requeue was undone"}
	x.endAlone(d, t, model.Outcome{Status: model.Canceled, Failure: &why, At: now})
	undone := *o
	undone.Do = model.DeadTaskUndone

	if m.To == o.Ref.Address {
		d.unmark(&undone, dead)
	} else {
		d.Messages = append(d.Messages, model.Message{Kind: model.MessageRequeue, To: o.Ref.Address, DeadTask: &undone})
	}
}

// unmark resets a dead task to its state before the requeue that began the run. It does not touch a
// dead task that has changed since that requeue.
func (d *Decision) unmark(o *model.DeadTaskOrder, dead *StoredDeadTask) {
	if dead == nil || dead.Count == 0 || dead.Body.Requeued.Run != o.Run {
		return
	}
	body := dead.Body
	body.Requeued = model.Requeue{}
	d.DeadTask = &DeadTaskChange{Ref: o.Ref, Prev: dead.Count, Next: dead.Count - 1, Body: body}
}

// purge removes a dead task. If a requeue began a run at another address, the sender of the order
// has checked that this run has ended. The count shows whether another requeue followed.
func (x *Execution) purge(d *Decision, o *model.DeadTaskOrder, dead *StoredDeadTask) {
	switch {
	case dead == nil: // the dead task is gone already
	case o.Damaged: // the client could not read it, so it does not know whether it was requeued
		d.refuse(fault.Conflict, fmt.Sprintf("dead task %s can be read by now: remove it like any other", o.Ref))
	case dead.hasChanged(o):
		d.refuse(fault.Conflict, fmt.Sprintf("another client has requeued dead task %s as run %s", o.Ref, dead.Body.Requeued.Run))
	case x != nil && x.Open() && !dead.Body.Requeued.IsZero() && x.Start.Run == dead.Body.Requeued.Run:
		d.refuse(fault.Conflict, fmt.Sprintf("dead task %s cannot be removed: it was requeued as run %s, which is open", o.Ref, x.Start.Run))
	default:
		d.DeadTask = &DeadTaskChange{Ref: o.Ref, Prev: dead.Count, Purged: true}
	}
}

// PurgeDamaged removes a dead task that the lane cannot read. A client may have requeued it. The
// run that the requeue has begun continues: it does not need the dead task.
func PurgeDamaged(o *model.DeadTaskOrder) Decision {
	return Decision{DeadTask: &DeadTaskChange{Ref: o.Ref, Purged: true}}
}
