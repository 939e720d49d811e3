package lane

import (
	"strings"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/model"
)

// witness is how an address stood before the input that is being applied.
type witness struct {
	x    *core.Execution
	task core.Task // that the input is about, if it is about one
	has  bool
	lock model.Entity // who held an entity; nothing else of it
}

// look notes how things stand before an input is applied.
func (w *witness) look(e *entry, in input) {
	w.x, w.has = e.x, false
	if e.isEntity() {
		if e.actor.entity == nil { // it is removed without being read
			return
		}
		row := &e.actor.entity.Row
		w.lock.Holder, w.lock.Held = row.Holder, row.Held
		return
	}
	if id := in.task(); id != "" && e.x != nil {
		if t := e.x.Task(id); t != nil {
			w.task, w.has = *t, true
		}
	}
}

// noter adds facts about one address.
type noter struct {
	to  *[]Fact
	e   *entry
	w   *witness
	run model.RunID
}

func (n *noter) add(f Fact) {
	f.Address, f.Run = n.e.address, n.run
	*n.to = append(*n.to, f)
}

func (n *noter) task(f Fact, s *model.TaskSpec) {
	f.Name, f.Queue = s.Kind, s.Queue
	n.add(f)
}

func (n *noter) message(m *model.Message, d *core.Decision) {
	f := Fact{Kind: FactMessage, Message: m.Kind, Refused: d.Answer.Failure != nil, Name: m.Name, Trace: m.Trace}
	if d.Start != nil {
		n.run = d.Start.Run // so that it goes with the start, should that turn out not to be one
	} else if x := n.e.x; x != nil {
		f.Of, f.At = x.Start.Trace, x.Last
	}
	n.add(f)
}

func (n *noter) started(s *model.Start) {
	if s.Task == nil {
		n.add(Fact{Kind: FactStarted})
		return
	}
	n.task(Fact{Kind: FactSubmitted}, s.Task)
	if s.Worker != "" {
		n.task(Fact{Kind: FactClaimed, Since: s.At, At: s.At}, s.Task)
	}
}

func (n *noter) closed(o *model.Outcome, d *core.Decision) {
	x := n.w.x
	if x == nil || x.Start.Run != d.Closed {
		x = n.e.x // it began and ended at once
	}
	if x == nil || x.Start.Run != d.Closed {
		return
	}
	if x.Start.Task == nil {
		n.add(Fact{Kind: FactClosed, Status: o.Status, Failure: o.Failure, Trace: x.Start.Trace, Since: x.Start.At, At: o.At})
		return
	}
	switch t := &n.w.task; {
	case !n.w.has:
	case o.Status == model.Completed:
		n.attempt(t, Completed, nil, o.At, false)
	case o.Status == model.Failed:
		n.failed(t, o.Failure, o.At, false, o.Seen < 0) // no report has led to it
	default:
		n.attempt(t, Canceled, nil, o.At, false)
	}
}

func (n *noter) event(e *model.Event) {
	mine := n.w.has && n.w.task.ID == e.ID
	switch e.Kind {
	case model.EventStepCompleted:
		if mine {
			n.attempt(&n.w.task, Completed, nil, e.At, false)
		} else {
			n.add(Fact{Kind: FactStep, Name: e.Name, Outcome: Completed})
		}
	case model.EventStepFailed, model.EventAttemptFailed:
		again := e.Kind == model.EventAttemptFailed
		switch {
		case mine:
			n.failed(&n.w.task, e.Failure, e.At, again, e.Status == model.Terminated)
		case again:
			n.add(Fact{Kind: FactStep, Name: e.Name, Outcome: Retried})
		default:
			n.add(Fact{Kind: FactStep, Name: e.Name, Outcome: Failed})
		}
	case model.EventTaskTimedOut:
		if mine {
			n.failed(&n.w.task, e.Failure, e.At, e.Due != 0, true)
		}
	case model.EventTaskReturned:
		if mine {
			n.attempt(&n.w.task, Returned, nil, e.At, false)
		}
	case model.EventTaskScheduled:
		n.task(Fact{Kind: FactSubmitted}, e.Task)
		if e.Worker != "" {
			n.task(Fact{Kind: FactClaimed, Since: e.At, At: e.At}, e.Task)
		}
	case model.EventTaskClaimed:
		if mine {
			n.task(Fact{Kind: FactClaimed, Since: n.w.task.Visible, At: e.At}, n.w.task.Spec)
		}
	case model.EventTimerFired:
		n.add(Fact{Kind: FactTimer, Since: e.Due, At: e.At})
	default:
	}
}

// failed tells of a failure of a task: of its attempt, if one was under way. Only one that the engine decided is a time-out or a loss: a worker may report that of another task, whose
// failure its activity returned.
func (n *noter) failed(t *core.Task, f *model.Failure, at model.Time, again, decided bool) {
	how := Failed
	switch {
	case f == nil || !decided:
	case f.Kind == model.FailureTimeout && strings.HasPrefix(f.Type, timeoutPrefix):
		how = TimedOut
		n.task(Fact{Kind: FactTimedOut, Word: f.Type[len(timeoutPrefix):]}, t.Spec)
	case f.Type == model.FailureLost || f.Type == model.FailurePoison:
		how = Lost
	}
	n.attempt(t, how, f, at, again)
}

// timeoutPrefix begins the types of failures that are time-outs of the queue.
const timeoutPrefix = "timeout."

func (n *noter) attempt(t *core.Task, how Outcome, f *model.Failure, at model.Time, again bool) {
	if t.Held {
		n.task(Fact{Kind: FactAttempt, Outcome: how, Failure: f, Again: again, Since: t.Since, At: at}, t.Spec)
	}
}

// entity adds the facts of a decision about an entity. A call that only waits is none: it is counted when it has been made, or refused.
func (n *noter) entity(in input, d *core.Decision) {
	how := lockReleased
	switch in := in.(type) {
	case *resultInput:
		n.made(in.job)
	case *messageInput:
		switch m := in.origin.message; {
		case m.Kind != model.MessageCall:
			n.message(m, d)
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
	row, was := &d.Entity.Entity, &n.w.lock
	if was.Locked() && row.Holder != was.Holder {
		n.add(Fact{Kind: FactUnlocked, Word: how, Since: was.Held, At: row.Changed})
	}
	if d.Granted != 0 {
		n.add(Fact{Kind: FactLocked, Since: d.Granted, At: row.Held})
	}
}

// made tells of the calls that a worker has made.
func (n *noter) made(j *job) {
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
