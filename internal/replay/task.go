package replay

import "github.com/perdure/perdure/internal/model"

// A step may be carried out by a queue instead of here: a task. The code asks the engine for it as
// it asks for a child, in the turn in which it parks; whatever happens to the task then is the
// engine's to say, until an outcome comes that is recorded as that of any step. Attempts are told
// too, because they are part of the history, and change nothing here.
//
// An outcome is an outcome: code finds it whether the step was carried out here or by a queue when
// it was recorded. What has no outcome yet goes on as it began: a step of today's code that is
// recorded as a task waits for that task, or else it would be done by both. A step that was tried
// here and is a task today becomes one: what is tried here is over when its process is.

// askTask asks the engine for a task, unless it is recorded.
func (m *machine) askTask(a *ask) {
	if a.recorded {
		return
	}
	a.requested = m.live && !m.sent(a)
	m.request(a, model.Command{Kind: model.CommandSchedule, Event: model.Event{
		Kind: model.EventTaskScheduled, ID: a.id, Name: a.name, Input: a.step.Input, Task: a.task, Position: a.position,
	}})
}

// confirmTask asks for a task that the history does not have. One that the code has given up on
// meanwhile is never asked for.
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

// adoptTask has a step go on as the task that it is recorded as.
func (a *ask) adoptTask(spec *model.TaskSpec) {
	if spec == nil {
		// a damaged record is no reason to do it twice
		spec = &model.TaskSpec{Kind: a.name, Queue: "unknown"}
	}
	a.task = spec
}

// toldOfTask notes what the engine says about a task. None of it answers a command of ours. It
// reports false for all other events.
func (m *machine) toldOfTask(a *ask, e *model.Event) bool {
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

// ofTask reports whether events of the kind are about tasks and nothing else.
func ofTask(k model.EventKind) bool {
	return k >= model.EventTaskScheduled && k <= model.EventTaskTimedOut
}

// title is what people call what was asked for.
func (a *ask) title() string {
	if a.task != nil {
		return "task"
	}
	return a.kind.title()
}
