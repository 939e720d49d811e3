package lane

import (
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/model"
)

// FactKind says what a Fact is about.
type FactKind uint8

// Kinds of facts.
const (
	FactBatch     FactKind = iota + 1 // N inputs shared a commit
	FactTurn                          // workflow code has taken a turn
	FactStarted                       // a run of a workflow began
	FactClosed                        // a run of a workflow ended: Status, Failure, Trace, Since, At
	FactBlocked                       // a run stopped until somebody changes something: Word is the reason
	FactStep                          // an attempt of step Name beside its workflow ended: Outcome
	FactSubmitted                     // a task came into being: Name and Queue, as in all that follow about tasks
	FactClaimed                       // a worker has an attempt: Since is when it could have begun
	FactAttempt                       // an attempt ended: Outcome, Failure, Since is when it was claimed
	FactTimedOut                      // Word is which time-out of a task passed
	FactDead                          // a task failed for good
	FactRequeued                      // a dead letter was requeued
	FactPurged                        // a dead letter was removed
	FactTimer                         // a timer fired: Since is when it was due
	FactMessage                       // a message was decided about: Message, Refused; Name and Trace are its own, Of is the trace of the run
	FactRemoved                       // N closed runs were removed
	FactCall                          // operation Name of an entity was called: Outcome, Failure, Trace; Since is when the call came, Handed when a worker got it
	FactHandOver                      // a worker has made N calls of an entity: Since is when it got them
	FactLocked                        // a section has locked an entity: Since is when it asked for it
	FactUnlocked                      // a section has lost the lock of an entity: Since is when it got it, Word how: released or taken
)

// Outcome is how an attempt of a step or task ended.
type Outcome uint8

// Outcomes.
const (
	Completed Outcome = iota + 1
	Retried           // failed, and is made again
	Failed            // failed, and is not
	TimedOut
	Lost     // its worker went away
	Returned // without consuming an attempt
	Canceled
	Refused // it was not made
)

// Fact is something that has become durable, for those who count: it was decided by this lane, and is told once, after the commit. It is about whatever Kind says.
type Fact struct {
	Kind    FactKind
	Outcome Outcome
	Status  model.Status
	Message model.MessageKind
	Refused bool
	Again   bool // of an attempt: another one is made
	N       int
	Address model.Address
	Run     model.RunID
	Name    string
	Queue   string
	Word    string
	Trace   string
	Of      string
	Failure *model.Failure
	Since   model.Time
	Handed  model.Time
	At      model.Time
}

// witness is how an address stood before the input that is being applied.
type witness struct {
	x    *core.Execution
	task core.Task // that the input is about, if it is about one
	has  bool
	lock model.Entity // who held an entity; nothing else of it
}

// witnessed remembers how things stand before an input is applied. Nobody who does not listen pays for it.
func (l *Lane) witnessed(e *entry, in *input) {
	w := &l.witness
	w.x, w.has = e.x, false
	if e.isEntity() {
		if e.actor.entity == nil { // it is removed without being read
			return
		}
		row := &e.actor.entity.Row
		w.lock.Holder, w.lock.Held = row.Holder, row.Held
		return
	}
	id := ""
	switch {
	case in.task != nil:
		id = in.task.id
	case in.kind == inMessage && in.message.Kind == model.MessageReport:
		id = in.message.Report.Ref.ID
	case in.kind == inMessage && strings.HasPrefix(in.address.Type, model.TaskPrefix):
		id = model.TaskStep // it may be cancelled or terminated
	default:
		return
	}
	if e.x != nil {
		if t := e.x.Task(id); t != nil {
			w.task, w.has = *t, true
		}
	}
}

// notes are the facts of a decision. They are told with the batch, or at once when there is none.
func (l *Lane) notes(b *building, e *entry, in *input, d *core.Decision) {
	to := &l.out.Facts
	if b != nil {
		to = &b.facts
	}
	n := noter{to: to, e: e, w: &l.witness, run: e.run()}
	if e.isEntity() {
		n.entity(in, d)
		return
	}
	switch in.kind {
	case inTurn:
		n.add(Fact{Kind: FactTurn})
		if d.Mark != nil && d.Mark.Blocked != nil {
			n.add(Fact{Kind: FactBlocked, Word: string(d.Mark.Blocked.Code)})
		}
	case inMessage:
		n.message(in.message, d)
	default:
	}
	if s := d.Start; s != nil {
		n.run = s.Run
		n.started(s)
	}
	if d.Close != nil {
		n.run = d.Closed
		n.closed(d.Close, d)
	}
	for i := range d.Events {
		n.event(&d.Events[i])
	}
	for i := range d.Dead {
		n.task(Fact{Kind: FactDead}, d.Dead[i].Task.Spec)
	}
	if c := d.Letter; c != nil {
		switch {
		case c.Purged:
			n.add(Fact{Kind: FactPurged})
		case c.Next > c.Prev:
			n.task(Fact{Kind: FactRequeued}, &c.Body.Spec)
		}
	}
	if len(d.Deletes) > 0 {
		n.add(Fact{Kind: FactRemoved, N: len(d.Deletes)})
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

// told hands out the facts of a batch that is durable, or that has nothing to wait for.
func (l *Lane) told(b *building, committed bool) {
	if !l.cfg.Watched {
		return
	}
	l.out.Facts = append(l.out.Facts, b.facts...)
	if committed {
		l.out.Facts = append(l.out.Facts, Fact{Kind: FactBatch, N: len(b.inputs)})
	}
}

// untold takes back the facts of a start that was none.
func (b *building) untold(run model.RunID) {
	b.facts = slices.DeleteFunc(b.facts, func(f Fact) bool { return f.Run == run })
}

// quarantined tells that an address is kept apart, if it is not already.
func (l *Lane) quarantined(e *entry, why *model.Reason) {
	if l.cfg.Watched && e.poison == nil {
		l.out.Facts = append(l.out.Facts, Fact{Kind: FactBlocked, Address: e.address, Word: string(why.Code)})
	}
}

// traced gives a start that nobody traces a trace of its own, if anybody wants to see it. A requeue of a task that stood alone is one; that of a step sends one.
func (l *Lane) traced(m *model.Message) {
	if l.cfg.NewTrace == nil || m.Trace != "" {
		return
	}
	if o := m.Letter; m.Kind == model.MessageStart || m.Kind == model.MessageRequeue && o.Do == model.LetterRequeue && o.Ref.Alone() {
		m.Trace = l.cfg.NewTrace(m.To)
	}
}

// States is how a lane stands, for those who look now and then.
type States struct {
	Bytes       int                     // of inputs that wait or are not committed
	Quarantined int                     // addresses
	Entities    map[string]EntityStates // by type
}

// States counts.
func (l *Lane) States() States {
	return States{Bytes: l.Held(), Quarantined: len(l.sick), Entities: l.entityStates()}
}

// Took is the time between Since and At.
func (f *Fact) Took() time.Duration { return f.At.Sub(f.Since) }
