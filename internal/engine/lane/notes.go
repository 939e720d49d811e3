package lane

import (
	"strings"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/model"
)

// snapshot is the part of the state of an address, before an input is applied to it, that facts
// need.
type snapshot struct {
	entry *entry
	input input

	x    *core.Execution
	task core.Task // the task that the input is about
	has  bool      // there is such a task
	// The holder of the lock of an entity, and since when; other fields are not set.
	lock model.Entity
}

// take copies the state of an address before an input is applied.
func (s *snapshot) take(e *entry, in input) {
	s.entry, s.input = e, in
	s.x, s.has = e.x, false
	if e.isEntity() {
		if e.actor.entity == nil { // a removal by force does not read the entity
			s.lock = model.Entity{}
			return
		}
		row := &e.actor.entity.Row
		s.lock.Holder, s.lock.Held = row.Holder, row.Held
		return
	}

	if id := in.task(); id != "" && e.x != nil {
		if t := e.x.Task(id); t != nil {
			s.task, s.has = *t, true
		}
	}
}

// of returns the snapshot that the lane took before it applied an input. It is empty if the lane
// did not apply the input: for a quarantined address, the lane refuses an order without applying
// it.
func (s *snapshot) of(e *entry, in input) *snapshot {
	if s.entry != e || s.input != in {
		return &snapshot{}
	}
	return s
}

// noter adds facts about one address.
type noter struct {
	to     *[]Fact
	e      *entry
	before *snapshot
	run    model.RunID
}

func (n *noter) add(f Fact) {
	f.Address, f.Run = n.e.address, n.run
	*n.to = append(*n.to, f)
}

func (n *noter) addTask(f Fact, s *model.TaskSpec) {
	f.Name, f.Queue = s.Kind, s.Queue
	n.add(f)
}

// addMessage adds the fact that the lane has decided about a message.
func (n *noter) addMessage(m *model.Message, d *core.Decision) {
	f := Fact{Kind: FactMessage, Message: m.Kind, Refused: d.Answer.Failure != nil, Name: m.Name, Trace: m.Trace}
	if d.Start != nil {
		n.run = d.Start.Run // so that dropFacts finds the fact, if the address already has a run
	} else if x := n.e.x; x != nil {
		f.Of, f.At = x.Start.Trace, x.Last
	}
	n.add(f)
}

// addStart adds a fact which says that a run began, or that a task was submitted.
func (n *noter) addStart(s *model.Start) {
	if s.Task == nil {
		n.add(Fact{Kind: FactStarted})
		return
	}
	n.addTask(Fact{Kind: FactSubmitted}, s.Task)
	if s.Worker != "" {
		n.addTask(Fact{Kind: FactClaimed, Since: s.At, At: s.At}, s.Task)
	}
}

// addClose adds a fact which says that a run ended. The end of a task without a workflow is the end
// of its attempt.
func (n *noter) addClose(o *model.Outcome, d *core.Decision) {
	x := n.before.x
	if x == nil || x.Start.Run != d.Closed {
		x = n.e.x // the run started and ended in one decision
	}
	if x == nil || x.Start.Run != d.Closed {
		return
	}

	if x.Start.Task == nil {
		n.add(Fact{Kind: FactClosed, Status: o.Status, Failure: o.Failure, Trace: x.Start.Trace, Since: x.Start.At, At: o.At})
		return
	}

	switch t := &n.before.task; {
	case !n.before.has:
	case o.Status == model.Completed:
		n.addAttempt(t, Fact{Outcome: Completed, At: o.At})
	case o.Status == model.Failed:
		// A negative Seen says that no report led to the failure.
		n.addFailure(t, Fact{Failure: o.Failure, At: o.At}, o.Seen < 0)
	default:
		n.addAttempt(t, Fact{Outcome: Canceled, At: o.At})
	}
}

// addEvent adds the fact that follows from an event of the history.
func (n *noter) addEvent(e *model.Event) {
	mine := n.before.has && n.before.task.ID == e.ID

	switch e.Kind {
	case model.EventStepCompleted:
		if mine {
			n.addAttempt(&n.before.task, Fact{Outcome: Completed, At: e.At})
		} else {
			n.add(Fact{Kind: FactStep, Name: e.Name, Outcome: Completed})
		}
	case model.EventStepFailed, model.EventAttemptFailed:
		again := e.Kind == model.EventAttemptFailed
		switch {
		case mine:
			n.addFailure(&n.before.task, Fact{Failure: e.Failure, At: e.At, Again: again}, e.Status == model.Terminated)
		case again:
			n.add(Fact{Kind: FactStep, Name: e.Name, Outcome: Retried})
		default:
			n.add(Fact{Kind: FactStep, Name: e.Name, Outcome: Failed})
		}
	case model.EventTaskTimedOut:
		if mine {
			n.addFailure(&n.before.task, Fact{Failure: e.Failure, At: e.At, Again: e.Due != 0}, true)
		}
	case model.EventTaskReturned:
		if mine {
			n.addAttempt(&n.before.task, Fact{Outcome: Returned, At: e.At})
		}
	case model.EventTaskScheduled:
		n.addTask(Fact{Kind: FactSubmitted}, e.Task)
		if e.Worker != "" {
			n.addTask(Fact{Kind: FactClaimed, Since: e.At, At: e.At}, e.Task)
		}
	case model.EventTaskClaimed:
		if mine {
			n.addTask(Fact{Kind: FactClaimed, Since: n.before.task.Visible, At: e.At}, n.before.task.Spec)
		}
	case model.EventTimerFired:
		n.add(Fact{Kind: FactTimer, Since: e.Due, At: e.At})
	default:
	}
}

// addFailure adds the failure of a task and, if an attempt was in flight, the failure of that
// attempt. It counts a failure as a time-out or a loss only if the engine itself has decided that.
// A failure that a worker reports may only look like one, because the activity has returned the
// failure of another task.
func (n *noter) addFailure(t *core.Task, f Fact, decided bool) {
	f.Outcome = Failed
	switch why := f.Failure; {
	case why == nil || !decided:
	case why.Kind == model.FailureTimeout && strings.HasPrefix(why.Type, timeoutPrefix):
		f.Outcome = TimedOut
		n.addTask(Fact{Kind: FactTimedOut, Word: why.Type[len(timeoutPrefix):]}, t.Spec)
	case why.Type == model.FailureLost || why.Type == model.FailurePoison:
		f.Outcome = Lost
	}
	n.addAttempt(t, f)
}

// timeoutPrefix is the prefix of the types of failures that are time-outs of the queue.
const timeoutPrefix = "timeout."

// addAttempt adds the end of an attempt, if one was in flight.
func (n *noter) addAttempt(t *core.Task, f Fact) {
	if t.Held {
		f.Kind, f.Since = FactAttempt, t.Since
		n.addTask(f, t.Spec)
	}
}

// addEntity adds the facts of a decision about an entity. A waiting call is not a fact. The lane
// reports a call when it has run or was refused.
func (n *noter) addEntity(in input, d *core.Decision) {
	how := lockReleased
	switch in := in.(type) {
	case *resultInput:
		n.addCalls(in.job)
	case *messageInput:
		switch m := in.origin.message; {
		case m.Kind != model.MessageCall:
			n.addMessage(m, d)
			if m.Kind == model.MessageUnlock {
				how = lockTaken
			}
		case d.Answer.Failure != nil:
			n.add(Fact{Kind: FactCall, Name: m.Name, Outcome: Refused, Failure: d.Answer.Failure})
		}
	default:
	}

	if d.Entity == nil {
		return
	}

	row, was := &d.Entity.Entity, &n.before.lock
	if was.Locked() && row.Holder != was.Holder {
		n.add(Fact{Kind: FactUnlocked, Word: how, Since: was.Held, At: row.Changed})
	}
	if d.Granted != 0 {
		n.add(Fact{Kind: FactLocked, Since: d.Granted, At: row.Held})
	}
}

// addCalls adds the calls that a worker has run.
func (n *noter) addCalls(j *job) {
	made := min(len(j.items), len(j.result.Results))
	for i, it := range j.items[:made] {
		f := Fact{Kind: FactCall, Name: it.Message.Name, Outcome: Completed, Trace: it.Message.Trace, Since: it.At, Handed: j.since, At: j.until}
		if f.Failure = j.result.Results[i].Failure; f.Failure != nil {
			f.Outcome = Failed
		}
		n.add(f)
	}
	n.add(Fact{Kind: FactHandOver, N: made, Since: j.since, At: j.until})
}

// Words of FactUnlocked.
const (
	lockReleased = "released" // its section, or the run, has ended
	lockTaken    = "taken"    // by an operator
)
