package replay

import "github.com/perdure/perdure/internal/model"

// A queue may execute a step instead of this worker: a task. The code asks the engine for a task in
// the same way as for a child, in the turn in which it parks. From then on the engine decides about
// the task, until it records an outcome like that of any step. Its attempts are events of the
// history too, but they change nothing here.
//
// The code finds a recorded outcome whether a worker or a queue executed the step. A step without
// an outcome continues as it began: if it is recorded as a task, it waits for that task, because
// otherwise both would execute it. A step that was tried here and is a task in today's code becomes
// a task: an attempt here ends with its process.

// askTask asks the engine for a task, unless it is recorded.
func (m *machine) askTask(a *ask) {
	if a.recorded {
		return
	}
	a.requested = m.live && !m.wasSent(a)
	m.request(a, model.Command{Kind: model.CommandSchedule, Event: model.Event{
		Kind: model.EventTaskScheduled, ID: a.id, Name: a.name, Input: a.step.Input, Task: a.task, Position: a.position,
	}})
}

// confirmTask asks for a task that the history does not have. It does not ask for a task that the
// code has given up on.
func (m *machine) confirmTask(a *ask, pending *model.Command, sent bool) {
	if a.recorded || sent || a.fut.done || a.withdrawn || pending == nil {
		return
	}
	a.requested = true
	m.command(a, *pending)
}

// awaitTask waits for the outcome of a task. The end of the scope withdraws it.
func (x Ctx) awaitTask(a *ask) (model.Payload, error) {
	x.co.single[0] = &a.fut
	if err := x.await(waitAny, 0, x.co.single[:]); err != nil {
		x.co.m.withdraw(a)
		return model.Payload{}, err
	}
	return a.fut.out, a.fut.err
}

// adoptTask lets a step continue as the task that it is recorded as.
func (a *ask) adoptTask(spec *model.TaskSpec) {
	if spec == nil {
		// a damaged record must not make the step run twice
		spec = &model.TaskSpec{Kind: a.name, Queue: "unknown"}
	}
	a.task = spec
}

// applyTaskEvent applies an event of a task. No command of ours led to it. It reports false for all
// other events.
func (m *machine) applyTaskEvent(a *ask, e *model.Event) bool {
	if a.kind != askStep || a.task == nil && !ofTask(e.Kind) {
		return false
	}
	switch e.Kind {
	case model.EventTaskClaimed, model.EventTaskReturned, model.EventAttemptFailed:
	case model.EventTaskTimedOut:
		if e.TimedOutForGood() {
			m.answer(a, e)
		}
	case model.EventStepCompleted, model.EventStepFailed:
		m.answer(a, e)
	default:
		return false
	}
	return true
}

// ofTask reports whether events of the kind are only about tasks.
func ofTask(k model.EventKind) bool {
	return k >= model.EventTaskScheduled && k <= model.EventTaskTimedOut
}

// title returns the name of what was asked for, in errors.
func (a *ask) title() string {
	if a.task != nil {
		return "task"
	}
	return a.kind.title()
}
