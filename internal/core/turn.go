package core

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// retryPrefix marks the timer rows of back-offs. The code cannot choose a timer id that begins like
// this.
const retryPrefix = "retry\x1f"

// retryTimer returns the id of the timer for the pause after an attempt of a step.
func retryTimer(id string, attempt int) string {
	return fmt.Sprintf("%s%d\x1f%s", retryPrefix, attempt, id)
}

// RetryOf returns the step that the timer of a back-off belongs to; false when the timer belongs to
// the code.
func RetryOf(timer string) (step string, ok bool) {
	if len(timer) < len(retryPrefix) || timer[:len(retryPrefix)] != retryPrefix {
		return "", false
	}
	for i := len(retryPrefix); i < len(timer); i++ {
		if timer[i] == '\x1f' {
			return timer[i+1:], true
		}
	}
	return "", false
}

// Fire applies a timer that is due. It does nothing if the timer is no longer open (I4), or is not
// due yet.
func Fire(x *Execution, id string, now model.Time) Decision {
	var d Decision
	i := x.timer(id)
	if i < 0 || !x.Open() || x.timers[i].Due > now {
		return d
	}

	if step, ok := RetryOf(id); ok {
		// The timer stays until the outcome of the next attempt is recorded, so a crash before that
		// only repeats the wake-up. A paused run needs no check here: the lane does not hand it to
		// a worker.
		if !x.timers[i].rung {
			x.timers[i].rung = true
			d.Retry = step
		}
		return d
	}

	// The run itself owns these two timers.
	switch id {
	case beginTimer:
		x.start(&d)
		return d
	case expireTimer:
		x.timeOut(&d, now)
		return d
	}

	// A timer of the code.
	due := x.timers[i].Due
	x.stopTimer(&d, id)
	x.append(&d, now, model.Event{Kind: model.EventTimerFired, ID: id, Due: due})
	return d
}

// Release parks a run at the request of the worker that holds it. It reports false when the run is
// closed, or when seen is not the position of the last event of the run.
func Release(x *Execution, seen int64, waits []model.Reason, lim Limits) (Decision, bool) {
	var d Decision
	if !x.Open() || seen >= x.Next {
		return d, false
	}
	x.markSeen(seen)
	if seen != x.Next-1 {
		return d, false
	}

	if len(x.tasks) > 0 {
		return d, true // do not mark it as parked: the next owner must find the open tasks
	}

	if !x.Parked {
		x.Parked = true
		d.Mark = &Mark{Parked: true, Waits: x.WithWarning(model.BoundedReasons(waits), lim), Blocked: x.Blocked}
	}

	return d, true
}

// Apply applies a turn of the worker that holds the run. fresh is the id of the next run, if the
// turn continues as new or fails and is retried. An error means that the turn contradicts the state
// of the run, or exceeds a limit. In that case Apply applies nothing, and the worker must lose the
// run.
//
//arch:parameters the core is pure: the time, the fresh id and the limits come in as values
func Apply(x *Execution, t *model.Turn, now model.Time, fresh model.RunID, lim Limits) (*Execution, Decision, error) {
	var d Decision
	if !x.Open() {
		return x, d, fault.New(fault.Conflict, "run %s is closed", x.Start.Run)
	}
	if t.Seen >= x.Next || t.Seen < 0 {
		return x, d, fault.New(fault.Invalid, "turn of %s has seen event %d of %d", x.Start.Run, t.Seen, x.Next)
	}
	if t.Ahead > len(t.Commands) {
		return x, d, fault.New(fault.Invalid, "turn of %s with %d commands takes %d of them for granted", x.Start.Run, len(t.Commands), t.Ahead)
	}

	if err := x.check(t, lim); err != nil {
		return x, d, err
	}

	// The worker may have run the code ahead, before it saw all events. If events have arrived that
	// it had not seen, apply only the facts at the beginning of the turn, such as outcomes of
	// steps, and not what the code decided after them (I9).
	commands, end := t.Commands, t.Close
	if t.Ahead > 0 && t.Seen != x.Next-1 {
		commands, end, d.Diverged = t.Commands[:t.Ahead], nil, true
	}
	x.markSeen(t.Seen)

	// The code cannot continue: keep the reason, and apply nothing else.
	if t.Blocked != nil {
		why := t.Blocked.Bounded()
		x.block(&d, &why)
		return x, d, nil
	}

	x.fed = max(x.fed, t.Seen)

	// The code runs again, so the reason that blocked it is gone.
	if x.Blocked != nil {
		x.Blocked, x.Parked = nil, x.Withheld() != nil
		d.Mark = x.mark()
	}

	for i := range commands {
		x.command(&d, &commands[i], now)
	}
	if end != nil {
		return x.close(&d, t, now, fresh), d, nil
	}

	return x, d, nil
}

// block stores the reason why the code cannot continue. If the reason is the same as before, block
// writes nothing.
func (x *Execution) block(d *Decision, why *model.Reason) {
	if x.Blocked != nil && *x.Blocked == *why {
		return
	}
	x.Blocked, x.Parked = why, x.Withheld() != nil
	d.Mark = x.mark()
}

// check refuses a turn that cannot be applied, before Apply applies any part of it. It checks the
// size of the turn, then each command against the state that the commands before it lead to, then
// the totals.
func (x *Execution) check(t *model.Turn, lim Limits) error {
	if n := int64(len(t.Commands)); n > 0 && t.Close == nil && x.Next+n > lim.Events {
		return fault.New(fault.Exhausted, "the history of %s has %d events and may have %d: continue as new", x.Start.Run, x.Next, lim.Events)
	}
	if err := x.checkBytes(t, lim); err != nil {
		return err
	}
	if c := t.Close; c != nil && (!c.Status.Closed() || c.Status > model.Continued) {
		return fault.New(fault.Invalid, "run %s ends with status %d, which is not an end", x.Start.Run, c.Status)
	}

	// Count and remember what the commands before the current one have done, because a signal can
	// be taken only once, an update can be answered only once, and sections follow the rules of
	// locks.
	timers, tasks := 0, 0
	rules := x.rules()
	var taken, answered []int64

	labels := x.labels
	for i := range t.Commands {
		c := &t.Commands[i]
		// Check sizes and times that came from outside, whatever the command is.
		if c.Event.Task != nil {
			if err := c.Event.Task.Bounds(); err != nil {
				return fault.New(fault.Invalid, "run %s asks for an invalid task: %w", x.Start.Run, err)
			}
		}

		if c.Terms != nil {
			if err := c.Terms.Check(); err != nil {
				return fault.New(fault.Invalid, "run %s starts an execution with invalid terms: %w", x.Start.Run, err)
			}
		}

		if what := unfitCommand(c); what != "" {
			return fault.New(fault.Invalid, "run %s asks for %s", x.Start.Run, what)
		}

		switch c.Kind {
		// Refuse events that only the engine may record.
		case model.CommandRecord:
			switch c.Event.Kind {
			case model.EventStepCompleted, model.EventStepFailed, model.EventVersionMarked, model.EventStateSet, model.EventPinned, model.EventNoted:
			case model.EventSignalTaken:
				if x.signal(c.Event.Ref) < 0 || slices.Contains(taken, c.Event.Ref) {
					return fault.New(fault.Invalid, "run %s takes signal %d, which it does not have", x.Start.Run, c.Event.Ref)
				}
				taken = append(taken, c.Event.Ref)
			case model.EventLabeled:
				value := string(c.Event.Output.Data)
				if err := model.CheckLabel(c.Event.Name, value); err != nil {
					return fault.New(fault.Invalid, "run %s: %w", x.Start.Run, err)
				}
				labels = model.SetLabel(labels, c.Event.Name, value)
			default:
				return fault.New(fault.Invalid, "run %s records a %s, which workers may not record", x.Start.Run, c.Event.Kind)
			}
		case model.CommandAnswer:
			if x.update(c.Event.Ref) < 0 || slices.Contains(answered, c.Event.Ref) {
				return fault.New(fault.Invalid, "run %s answers update %d, which it does not have", x.Start.Run, c.Event.Ref)
			}
			answered = append(answered, c.Event.Ref)
		case model.CommandStartTimer:
			timers++
		case model.CommandRetry, model.CommandStopTimer:
		case model.CommandStartChild:
			if err := rules.start(c); err != nil {
				return err
			}
		case model.CommandWatch:
			if err := rules.target("waits for", c.Event.Target); err != nil {
				return err
			}
		case model.CommandWithdraw:
			rules.drop(c.Event.ID)
		case model.CommandSchedule:
			if c.Event.Task == nil || c.Event.Task.Kind == "" || c.Event.Task.Queue == "" {
				return fault.New(fault.Invalid, "run %s schedules a task without a kind or a queue", x.Start.Run)
			}
			if x.Task(c.Event.ID) == nil {
				tasks++ // a task that is open is not scheduled again
			}
		case model.CommandSend:
			if c.Message == nil {
				return fault.New(fault.Invalid, "run %s sends nothing", x.Start.Run)
			}
			if err := rules.send(&c.Event, c.Message); err != nil {
				return err
			}
		case model.CommandLock:
			if err := rules.lock(&c.Event, lim.Locks); err != nil {
				return err
			}
		case model.CommandUnlock:
			if err := rules.unlock(&c.Event); err != nil {
				return err
			}
		default:
			return fault.New(fault.Invalid, "run %s asks for command %d, which this build does not know", x.Start.Run, c.Kind)
		}
	}

	// The totals after all commands.
	if len(labels) > model.MaxLabels {
		return fault.New(fault.Exhausted, "run %s would have %d labels and may have %d", x.Start.Run, len(labels), model.MaxLabels)
	}
	if n := len(x.tasks) + tasks; n > lim.Tasks && tasks > 0 {
		return fault.New(fault.Exhausted, "run %s would have %d open tasks and may have %d", x.Start.Run, n, lim.Tasks)
	}
	// An exact count of the timers needs a map, so count exactly only when the number may be too
	// high.
	if len(x.timers)+timers <= lim.Timers {
		return nil
	}

	if n := x.timersAfter(t.Commands); n > lim.Timers {
		return fault.New(fault.Exhausted, "run %s has %d timers and may have %d", x.Start.Run, n, lim.Timers)
	}
	return nil
}

// timersAfter counts the timers that would be open after the commands. A replay asks again for
// timers that are open already. Each of them counts once.
func (x *Execution) timersAfter(commands []model.Command) int {
	open := make(map[string]struct{}, len(x.timers)+len(commands))
	for i := range x.timers {
		open[x.timers[i].ID] = struct{}{}
	}
	for i := range commands {
		switch id := commands[i].Event.ID; commands[i].Kind {
		case model.CommandStartTimer:
			open[id] = struct{}{}
		case model.CommandStopTimer, model.CommandWithdraw:
			delete(open, id)
		default:
		}
	}
	return len(open)
}

// dueAt returns when a timer that the code asks for is due. The code computes the due time from the
// time of its history. That time may be ahead of the clock, if events were recorded while the clock
// was wrong. In that case the timer fires the requested delay after now, and does not wait until
// the clock has caught up. If a timer has no due time, the code asked for it after an outcome that
// this same turn records, and the delay starts now.
func dueAt(c *model.Command, now model.Time) model.Time {
	switch {
	case c.Delay == 0:
		return c.Event.Due
	case c.Event.Due == 0:
		return now.Add(c.Delay)
	}

	return min(c.Event.Due, now.Add(c.Delay))
}

// command applies one command of a turn.
func (x *Execution) command(d *Decision, c *model.Command, now model.Time) {
	e := c.Event
	e.Failure = e.Failure.Bounded()

	switch c.Kind {
	case model.CommandRecord:
		// The outcome of a step ends its back-off. A taken signal and a note belong to no step with
		// a back-off.
		if e.Kind != model.EventSignalTaken && e.Kind != model.EventNoted {
			x.stopRetry(d, e.ID)
		}
		x.append(d, now, e)
	case model.CommandRetry:
		x.stopRetry(d, e.ID)
		e.Kind, e.Due = model.EventAttemptFailed, now.Add(max(c.Delay, 0))
		x.append(d, now, e)
		x.startTimer(d, Timer{ID: retryTimer(e.ID, e.Attempt), Due: e.Due})
	case model.CommandStartTimer:
		// A replay may ask for a timer that fired while the worker was away.
		if x.timer(e.ID) < 0 && !x.recentlyFired(e.ID) {
			x.startTimer(d, Timer{ID: e.ID, Due: dueAt(c, now)})
		}
	case model.CommandStopTimer:
		x.stopTimer(d, e.ID)
	case model.CommandWithdraw:
		x.withdraw(d, e, now)
	case model.CommandStartChild, model.CommandWatch:
		x.ask(d, c, now)
	case model.CommandAnswer:
		u := x.updates[x.update(e.Ref)]
		e.Kind = model.EventUpdateAnswered
		x.append(d, now, e)
		x.answer(d, &u, model.Answer{Status: model.Running, Output: e.Output, Failure: e.Failure})
	case model.CommandSchedule:
		x.schedule(d, e, now)
	case model.CommandSend:
		// The engine fills in the sender: a worker cannot speak for another run or section.
		m := *c.Message.Bounded()
		m.From, m.Trace, m.Section = x.self(e.ID), x.Start.Trace, ""
		if m.Kind == model.MessageCall {
			m.Section, e.Target = e.Section, m.To
		}
		e.Kind = model.EventSent
		x.append(d, now, e)
		d.Messages = append(d.Messages, m)
	case model.CommandLock:
		x.lock(d, e, now)
	case model.CommandUnlock:
		x.unlock(d, e, now)
	}
}

// stopRetry stops the back-off of a step, whichever attempt it follows.
func (x *Execution) stopRetry(d *Decision, id string) {
	for i := range x.timers {
		if step, ok := RetryOf(x.timers[i].ID); ok && step == id {
			x.stopTimer(d, x.timers[i].ID)
			return
		}
	}
}

// withdraw records that the code gave up on a step, and ends the work behind it: timers, the child,
// the section.
func (x *Execution) withdraw(d *Decision, e model.Event, now model.Time) {
	x.stopTimer(d, e.ID)
	x.stopRetry(d, e.ID)
	if i := x.child(e.ID); i >= 0 && x.children[i].policy == model.CancelChild {
		d.Messages = append(d.Messages, x.cancelChild(x.children[i], "its parent withdrew it"))
	}
	x.releaseSection(d, x.section(e.ID))
	e.Kind = model.EventWithdrawn
	x.append(d, now, e)
}

// ask starts a child, or asks another execution for its outcome. A step asks only once (I5).
func (x *Execution) ask(d *Decision, c *model.Command, now model.Time) {
	e := c.Event
	if x.child(e.ID) >= 0 {
		return
	}
	m := x.childMessage(c)
	if c.Kind == model.CommandWatch {
		m.Kind, m.ToRun = model.MessageWatch, e.Run
		e.Policy = model.AbandonChild
	}
	e.Kind = model.EventChildStarted
	x.append(d, now, e)
	d.Messages = append(d.Messages, m)
}

// childMessage returns the message that starts a child.
func (x *Execution) childMessage(c *model.Command) model.Message {
	e := &c.Event
	return model.Message{
		Kind: model.MessageStart, To: e.Target, Input: e.Input, Reuse: c.Reuse, Policy: e.Policy, Labels: c.Labels, Task: e.Task, Trace: x.Start.Trace,
		From: x.self(e.ID), Terms: c.Terms,
	}
}

// cancelChild returns the message that cancels a child.
func (x *Execution) cancelChild(c child, why string) model.Message {
	by := x.Start.Run
	if !c.by.IsZero() {
		by = c.by // the child knows the run that started it
	}
	return model.Message{
		Kind: model.MessageCancel, To: c.address, Failure: &model.Failure{Kind: model.FailureCanceled, Message: why},
		From: model.Link{Address: x.Start.Address, Run: by},
	}
}

// close ends the run as its code says (I8). If the run continues as new, or failed and is repeated,
// close begins the next run. It returns the current run of the address.
func (x *Execution) close(d *Decision, t *model.Turn, now model.Time, fresh model.RunID) *Execution {
	end := t.Close
	o := model.Outcome{
		Status: end.Status, Output: end.Output, Failure: end.Failure.Bounded(), At: max(now, x.Last), Seen: t.Seen,
	}
	if end.Retain != 0 {
		o.Leaves = o.At.Add(max(end.Retain, 0))
	}
	current := x
	var next *model.Start

	// Is there a next run?
	if end.Status == model.Continued {
		s := x.continuedStart(t, o.At, fresh)
		next = &s
	} else if begins, again := x.nextAttempt(end, o.At); again {
		s := x.repeatedStart(t, o.At, begins, fresh)
		next, o.Status = &s, model.Continued
	}

	if next != nil {
		o.Next = next.Run
		d.Start, d.Replaces = next, x.Start.Run
		current = begin(*next)
	}

	// End this run. The mark of the next run comes last, because end clears the mark.
	x.end(d, o, end.Begun)
	if next != nil {
		current.park(d)
	}
	d.Answer = model.Answer{Run: current.Start.Run, Status: o.Status}

	return current
}

// terminate ends the run without asking its code.
func (x *Execution) terminate(d *Decision, why *model.Failure, now model.Time) {
	f := &model.Failure{Kind: model.FailureTerminated, Message: "terminated"}
	if why != nil && why.Message != "" {
		f.Message += ": " + why.Message
	}
	x.end(d, model.Outcome{Status: model.Terminated, Failure: f.Bounded(), At: max(now, x.Last), Seen: x.Next - 1}, nil)
	d.Answer = model.Answer{Run: x.Start.Run, Status: model.Terminated}
}

// end ends the run: it stops everything that is open and tells every step that waits for the
// outcome. If a next run takes over, that run answers the updates, except the updates in begun.
// This run has begun the updates in begun, and the next run must not begin them again, so end
// refuses them.
func (x *Execution) end(d *Decision, o model.Outcome, begun []int64) {
	if len(x.timers) > 0 || len(d.StopTimers) > 0 {
		d.StopAll = true
	}
	// The commit removes all timers and the mark, so changes of single timers and of the mark no
	// longer matter.
	d.StartTimers, d.StopTimers, d.Mark = nil, nil, nil

	for _, c := range x.children {
		if c.policy == model.CancelChild {
			d.Messages = append(d.Messages, x.cancelChild(c, "its parent closed"))
		}
	}

	for i := range x.updates {
		if u := &x.updates[i]; o.Status != model.Continued || slices.Contains(begun, u.Seq) {
			x.refuseUpdate(d, u, o.Status, "ended ("+o.Status.String()+")")
		}
	}

	// Watchers wait for the end of the last run. A run that continues does not tell them.
	if o.Status != model.Continued {
		self := x.self("")
		for _, who := range x.audience() {
			d.Messages = append(d.Messages, closedMessage(who, self, o))
		}
	}

	x.releaseSections(d)
	x.Outcome, x.timers, x.children, x.calls, x.updates = o, nil, nil, nil, nil
	d.Close, d.Closed = &x.Outcome, x.Start.Run
	x.dropTasks()
	x.Parked, x.Blocked, x.Paused = false, nil, nil
}

// audience returns all steps that wait for the outcome: the watchers and the parent.
func (x *Execution) audience() []model.Link {
	who := slices.Clone(x.watchers)
	if x.Start.Parent.ID != "" {
		who = append(who, x.Start.Parent)
	}
	return who
}

// continuedStart returns the start of the next run. The next run gets the state, the signals that
// were not taken, the updates that were not begun, the watchers, and a pause. It also gets the
// settled promises and the cancel request that the code cannot have seen (I7).
func (x *Execution) continuedStart(t *model.Turn, at model.Time, fresh model.RunID) model.Start {
	s := model.Start{
		Address: x.Start.Address, Run: fresh, At: at, Input: t.Close.Input, RequestID: x.Start.RequestID, Parent: x.Start.Parent,
		OnParentClose: x.Start.OnParentClose, First: x.Start.First, Previous: x.Start.Run, Origin: x.Start.Origin, Labels: x.labels,
		Trace: x.Start.Trace, Terms: x.Start.Terms, Expires: x.Start.Expires,
	}
	if s.First.IsZero() {
		s.First, s.Origin = x.Start.Run, x.Start.Input.Digest()
	}

	carry := func(e model.Event) {
		e.Seq, e.At = int64(len(s.Carried)+1), at
		s.Carried = append(s.Carried, e)
	}
	for _, e := range x.states {
		e.ID = "" // it was the id of a step in the run before
		carry(e)
	}

	// Signals, promises and updates keep the order in which they arrived.
	waiting := slices.Concat(x.signals, x.unheard)
	for _, u := range x.updates {
		if !slices.Contains(t.Close.Begun, u.Seq) {
			waiting = append(waiting, u)
		}
	}

	slices.SortFunc(waiting, func(a, b model.Event) int { return cmp.Compare(a.Seq, b.Seq) })
	for _, e := range waiting {
		carry(e)
	}
	for _, w := range x.watchers {
		carry(model.Event{Kind: model.EventWatched, Watcher: &w})
	}
	if x.Paused != nil {
		carry(model.Event{Kind: model.EventPaused, Failure: &model.Failure{Message: x.Paused.Detail}})
	}
	if x.Canceling > t.Seen {
		carry(model.Event{Kind: model.EventCancelRequest, Failure: &model.Failure{Kind: model.FailureCanceled, Message: "requested before the run continued as new"}})
	}

	return s
}

// RetryDue reports whether the run has a step whose back-off is over and whose outcome is not
// recorded yet.
func RetryDue(x *Execution, now model.Time) bool {
	return slices.ContainsFunc(x.timers, func(t Timer) bool {
		_, ok := RetryOf(t.ID)
		return ok && t.Due <= now
	})
}
