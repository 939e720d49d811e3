package core

import (
	"maps"
	"slices"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Execution is the state of a run in the memory of its owner. It does not grow with the history,
// because it keeps no outcomes of steps. The worker reads the outcomes from the history and matches
// them with the steps of the code.
type Execution struct {
	Start   model.Start
	Outcome model.Outcome // Status is Running while open

	// Next is the position of the next event.
	Next int64

	bytes  int // bytes of the history
	unread int // bytes of the fields signals, updates and unheard

	fed int64 // the last position that workers have fed to the code, as far as this owner knows
	// since is the position of the next event at the time when this owner read the run from the
	// store. From since on, fed is exact.
	since int64
	acted int64 // position of the last event that the code asked for
	quiet int64 // position of the pause that is in force; 0 when the run is not paused

	// Last is the time of the last event.
	Last model.Time
	// Canceling is the position of the cancel request, or 0.
	Canceling int64
	// Parked mirrors the stored mark: the run has nothing to do until the next event.
	Parked bool
	// Blocked is the reason why the code cannot continue; nil when it can.
	Blocked *model.Reason
	// Paused is why the run is paused; nil when it is not paused. No worker may continue a paused
	// run. It stays parked, whatever arrives.
	Paused *model.Reason
	// Pin is the version of the workers that may continue the run; empty for any version.
	Pin string

	timers   []Timer
	children []child
	calls    []call    // messages of steps that wait for an answer
	sections []section // sections that are open
	// settled has the names of the promises that have a result.
	settled  []string
	unheard  []model.Event  // settled promises that the code has not been fed
	signals  []model.Event  // received and not yet taken by the code
	named    map[string]int // signals per name; nil while there are few signals
	updates  []model.Event  // received and not yet answered
	states   []model.Event  // the last value of each state
	watchers []model.Link
	labels   []model.Label    // sorted by name; never changed in place
	fired    []firing         // timers that have fired, which the code may not have seen
	tasks    []*Task          // open tasks, in the order in which they were scheduled
	taskOf   map[string]*Task // the same tasks by id, once there are many

	endedClaims []endedClaim // the most recent claims that ended by a report
}

// Timer is an open timer of a run.
type Timer struct {
	ID  string
	Due model.Time

	rung bool // the back-off of a step is over and its worker has been woken
}

// child is an execution whose outcome a step of this run waits for.
type child struct {
	id      string
	address model.Address
	policy  model.ParentClosePolicy
	by      model.RunID // an earlier run of this execution, if that one started the child
}

// firing is a timer that has fired.
type firing struct {
	id  string
	seq int64
}

// Open reports whether the run has not ended.
func (x *Execution) Open() bool { return !x.Outcome.Status.Closed() }

// Timers returns the open timers, in no particular order. The caller must not change them.
func (x *Execution) Timers() []Timer { return x.timers }

// Labels returns the labels by which the run can be found, sorted by name. The caller must not
// change them.
func (x *Execution) Labels() []model.Label { return x.labels }

// Size estimates the memory that the state takes, in bytes.
func (x *Execution) Size() int {
	n := 512 + x.Start.Input.Size() + len(x.Start.Address.Key) + len(x.timers)*64 + len(x.children)*128 + len(x.calls)*128 + len(x.watchers)*128
	for _, events := range [...][]model.Event{x.signals, x.updates, x.states, x.unheard} {
		for i := range events {
			n += events[i].Size()
		}
	}

	for i := range x.labels {
		n += x.labels[i].Size()
	}
	for i := range x.tasks {
		n += 256 + x.tasks[i].Input.Size()
	}
	for i := range x.sections {
		n += 64 + len(x.sections[i].locks)*96
	}

	return n
}

// Clone returns an independent copy.
func (x *Execution) Clone() *Execution {
	if x == nil {
		return nil
	}
	c := *x
	c.timers = slices.Clone(x.timers)
	c.children = slices.Clone(x.children)
	c.calls = slices.Clone(x.calls)
	c.sections = slices.Clone(x.sections)
	for i := range c.sections {
		c.sections[i].epochs = slices.Clone(c.sections[i].epochs)
	}
	c.settled = slices.Clone(x.settled)
	c.unheard = slices.Clone(x.unheard)
	c.signals = slices.Clone(x.signals)
	c.named = maps.Clone(x.named)
	c.updates = slices.Clone(x.updates)
	c.states = slices.Clone(x.states)
	c.watchers = slices.Clone(x.watchers)
	c.fired = slices.Clone(x.fired)
	c.dropTasks()

	for _, t := range x.tasks {
		own := *t
		own.Failures = slices.Clone(t.Failures)
		c.addTask(&own)
	}

	c.endedClaims = slices.Clone(x.endedClaims)
	return &c
}

// begin returns the state of a run right after its start. The run may start with events whose times
// come from a clock that is ahead of ours. Later events get times that are not older, so that the
// code never sees time go back.
func begin(s model.Start) *Execution {
	x := &Execution{Start: s, Outcome: model.Outcome{Status: model.Running}, Next: 1, Last: max(s.At, s.Began), labels: s.Labels, bytes: s.Input.Size()}
	x.timers = BirthTimers(&s)
	if s.Task != nil {
		x.openTask(&Task{ID: model.TaskStep, Spec: s.Task, Input: s.Input, Scheduled: s.At}, s.Worker, 0)
	}
	for i := range s.Carried {
		x.note(&s.Carried[i])
		x.Last = max(x.Last, s.Carried[i].At)
	}
	x.Next = int64(len(s.Carried)) + 1
	return x
}

// Recover rebuilds the state of a run from its start, its outcome (Running while it is open), all
// its stored events and its open timers. It returns a Corrupt error when the events have a gap or
// their times decrease.
func Recover(s model.Start, o model.Outcome, events []model.Event, timers []Timer) (*Execution, error) {
	x := begin(s)
	for i := range events {
		e := &events[i]
		if e.Seq != x.Next {
			return nil, fault.New(fault.Corrupt, "history of %s: event %d stands where %d belongs", s.Run, e.Seq, x.Next)
		}
		if e.At < x.Last {
			return nil, fault.New(fault.Corrupt, "history of %s: event %d is older than the one before it", s.Run, e.Seq)
		}
		x.note(e)
		x.Next, x.Last = e.Seq+1, e.At
	}

	x.Outcome = o
	if !x.Open() {
		x.dropTasks()
		x.sections = nil
	}

	x.since = x.Next
	// Keep the firings. A worker may hold the run while the owner reads its state again, and may
	// not have seen the firings yet.
	x.timers = slices.Clone(timers)
	return x, nil
}

// note folds one event into the state. Recover and Apply both use it, so they cannot disagree (I3).
func (x *Execution) note(e *model.Event) {
	size := e.Size()
	x.bytes += size
	if e.ID != "" {
		x.acted = e.Seq
	}

	switch e.Kind {
	case model.EventSignalReceived:
		x.addSignal(e)
		x.unread += size
	case model.EventSignalTaken, model.EventSignalDropped:
		if i := x.signal(e.Ref); i >= 0 {
			x.unread -= x.signals[i].Size()
			x.dropSignal(i)
		}
	case model.EventPromiseSettled:
		x.settled = append(x.settled, e.Name)
		x.unheard = append(x.unheard, *e)
		x.unread += size
	case model.EventCancelRequest:
		x.Canceling = e.Seq
	case model.EventChildStarted:
		x.children = append(x.children, child{e.ID, e.Target, e.Policy, e.Waiter().Run})
	case model.EventTaskScheduled, model.EventTaskClaimed, model.EventTaskReturned, model.EventTaskTimedOut,
		model.EventStepCompleted, model.EventStepFailed, model.EventAttemptFailed:
		x.noteTask(e)
	case model.EventChildClosed, model.EventWithdrawn, model.EventAnswered:
		if len(x.tasks) > 0 && e.Kind == model.EventWithdrawn {
			x.noteTask(e)
		}
		if i := x.child(e.ID); i >= 0 {
			x.children = slices.Delete(x.children, i, i+1)
		}
		x.dropCall(e.ID)
		if len(x.sections) > 0 {
			x.noteSection(e)
		}
	case model.EventSent:
		x.calls = append(x.calls, call{e.ID, e.Target, e.Section})
	case model.EventLockAsked, model.EventLockGranted, model.EventUnlocked:
		x.noteSection(e)
	case model.EventUpdateReceived:
		x.updates = append(x.updates, *e)
		x.unread += size
	case model.EventUpdateAnswered:
		if i := x.update(e.Ref); i >= 0 {
			x.unread -= x.updates[i].Size()
			x.updates = slices.Delete(x.updates, i, i+1)
		}
	case model.EventStateSet:
		x.states = slices.DeleteFunc(x.states, func(s model.Event) bool { return s.Name == e.Name })
		if len(e.Output.Data) > 0 {
			x.states = append(x.states, *e)
		}
	case model.EventPinned:
		x.Pin = e.Name
	case model.EventPaused:
		x.Paused, x.quiet = &model.Reason{Code: model.WaitPaused}, e.Seq
		if e.Failure != nil {
			x.Paused.Detail = e.Failure.Message
		}
	case model.EventResumed:
		x.Paused, x.quiet = nil, 0
	case model.EventWatched:
		if !e.Blank() {
			x.watchers = append(x.watchers, *e.Watcher)
		}
	case model.EventLabeled:
		x.labels = model.SetLabel(x.labels, e.Name, string(e.Output.Data))
	case model.EventTimerFired:
		x.fired = append(x.fired, firing{e.ID, e.Seq})
	case model.EventStarted, model.EventClosed, model.EventVersionMarked, model.EventNoted:
	}
}

// update returns the index of an unanswered update by its position, or -1.
func (x *Execution) update(seq int64) int {
	return slices.IndexFunc(x.updates, func(e model.Event) bool { return e.Seq == seq })
}

// child returns the index of a child by the step that waits for it, or -1.
func (x *Execution) child(id string) int {
	return slices.IndexFunc(x.children, func(c child) bool { return c.id == id })
}

// timer returns the index of an open timer, or -1.
func (x *Execution) timer(id string) int {
	return slices.IndexFunc(x.timers, func(t Timer) bool { return t.ID == id })
}

// recentlyFired reports whether a timer has fired after the code last reported what it had seen.
func (x *Execution) recentlyFired(id string) bool {
	return slices.ContainsFunc(x.fired, func(f firing) bool { return f.id == id })
}

// markSeen forgets firings and promises up to a position, because the code has seen them.
func (x *Execution) markSeen(seq int64) {
	if len(x.unheard) > 0 {
		x.unheard = slices.DeleteFunc(x.unheard, func(e model.Event) bool {
			if e.Seq <= seq {
				x.unread -= e.Size()
			}
			return e.Seq <= seq
		})
	}
	if len(x.fired) > 0 {
		x.fired = slices.DeleteFunc(x.fired, func(f firing) bool { return f.seq <= seq })
	}
}
