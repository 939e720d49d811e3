package replay

import "github.com/perdure/perdure/internal/model"

// A task is a step that a queue executes instead of this worker. The code asks the engine for a
// task in the same way as for a child, in the turn in which it parks. From then on the engine
// decides about the task, until it records an outcome like the outcome of any step. The history
// also has events for the attempts of the task, but the code ignores them.
//
// The code finds the recorded outcome of a step, no matter whether a worker or a queue executed the
// step. A step without an outcome continues in the way in which it began. If the history has a task
// for it, the step waits for that task, even if today's code would run the body here. Otherwise the
// body could run twice. If the history has only failed attempts on a worker, and the step is a task
// in today's code, it becomes a task. No such attempt can still run, because it ended with its
// process.

// askTask asks the engine for a task, unless the history has a record of it.
func (m *machine) askTask(a *ask) {
	if a.recorded {
		return
	}
	a.requested = m.live && !m.wasSent(a)
	m.request(a, model.Command{Kind: model.CommandSchedule, Event: model.Event{
		Kind: model.EventTaskScheduled, ID: a.id, Name: a.name, Input: a.step.plainInput(), Task: a.task, Position: a.position,
	}})
}

// confirmTask asks the engine for a task that the history does not have. It does not ask for a task
// that the code has given up on.
func (m *machine) confirmTask(a *ask, pending *model.Command, sent bool) {
	if a.recorded || sent || a.fut.done || a.withdrawn || pending == nil {
		return
	}
	a.requested = true
	m.command(a, *pending)
}

// awaitTask waits for the outcome of a task. If the scope ends first, the code gives up on the
// task.
func (x Ctx) awaitTask(a *ask) (model.Payload, error) {
	x.co.single[0] = &a.fut
	if err := x.await(waitAny, 0, x.co.single[:]); err != nil {
		x.co.m.withdraw(a)
		return model.Payload{}, err
	}
	return a.fut.out, a.fut.err
}

// adoptTask makes a step wait for the task that the history has for it.
func (a *ask) adoptTask(spec *model.TaskSpec) {
	if spec == nil {
		// a damaged record must not make the step run twice
		spec = &model.TaskSpec{Kind: a.name, Queue: "unknown"}
	}
	a.task = spec
}

// applyTaskEvent applies an event about an attempt of a task, which this worker did not ask for. It
// reports false for all other events.
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

// title names in an error what the code asked for.
func (a *ask) title() string {
	if a.task != nil {
		return "task"
	}
	return a.kind.title()
}
