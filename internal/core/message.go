package core

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Deliver applies a message to an address. x is the current run of the address, or nil. Deliver
// returns the run that is current after the message, and the decision. fresh is the id of the run
// that a start creates.
//
//arch:parameters the core is pure: the time, the fresh id and the limits come in as values
func Deliver(x *Execution, m *model.Message, now model.Time, fresh model.RunID, lim Limits) (*Execution, Decision) {
	var d Decision
	m = m.Bounded()

	// A repeated update must find its first delivery before any other check refuses it.
	if m.Kind == model.MessageUpdate && x != nil {
		if u := x.pendingUpdate(m.RequestID); u != nil {
			d.Answer.Run, d.Answer.Status = x.Start.Run, x.Outcome.Status
			if f := MisuseOf(m, useOf(u)); f != nil {
				d.misuse(m, f)
				return x, d
			}
			// The client repeats its request. It waits for the same answer, even if the request
			// names a run and a later run gives the answer. If Deliver refused it here, the engine
			// would remember the refusal instead of the answer.
			d.Pending = true
			return x, d
		}
	}

	// A grant must be answered even when the section, or its run, is gone: see deliverGrant.
	if m.Kind == model.MessageGrant {
		return x, deliverGrant(x, m, now)
	}

	// The message names a run that is not the current one.
	if !m.ToRun.IsZero() && (x == nil || x.Start.Run != m.ToRun) {
		if !isAnswer(m) {
			kind := fault.NotFound
			if m.Past != nil {
				kind = fault.Conflict // another client was first
			}
			d.refuse(kind, fmt.Sprintf("run %s of %s is not the current one", m.ToRun, m.To))
			d.bounce(m, model.Outcome{Status: model.Failed, Failure: d.Answer.Failure})
		}
		return x, d // the message is an answer, and the run that waited for it is over
	}

	// These kinds also work on an address without a run, or on a closed run.
	switch {
	case m.Kind == model.MessageStart && m.Past != nil:
		return deliverPast(x, m, now, fresh, lim)
	case m.Kind == model.MessageStart:
		return deliverStart(x, m, now, fresh, lim)
	case m.Kind == model.MessageDelete:
		return deliverDelete(x, m)
	}

	if x == nil {
		d.refuse(fault.NotFound, fmt.Sprintf("execution %s does not exist", m.To))
		d.bounce(m, model.Outcome{Status: model.Failed, Failure: d.Answer.Failure})
		return nil, d
	}

	// From here on there is a run. The code that applies a report checks the claim of the report
	// itself, even on a closed run.
	d.Answer.Run, d.Answer.Status = x.Start.Run, x.Outcome.Status
	if m.Kind == model.MessageReport {
		return x, Report(x, m.Report, now, lim)
	}

	// A run that is a single task, without a workflow, has no code that could take a signal, a
	// promise or an update.
	if x.Alone() && forCode(m) {
		d.refuse(fault.Invalid, fmt.Sprintf("%s is a task: there is no workflow that would take a %s", m.To, m.Kind))
		d.acknowledge(m)
		return x, d
	}

	if m.Kind == model.MessageMailbox && x.answerRead(&d, m) {
		return x, d
	}

	// A closed run still answers questions about its outcome. It ignores answers and refuses
	// everything else.
	if !x.Open() {
		if m.Kind == model.MessageWatch {
			d.bounce(m, x.Outcome)
		} else if !isAnswer(m) {
			d.refuse(fault.Conflict, fmt.Sprintf("execution %s is closed (%s)", m.To, x.Outcome.Status))
			d.acknowledge(m)
		}
		return x, d
	}

	// The run is open: apply the message.
	switch m.Kind {
	case model.MessageSignal:
		x.receive(&d, now, model.Event{Name: m.Name, Input: m.Input, RequestID: m.RequestID}, lim)
	case model.MessageSettle:
		x.settle(&d, m, now, lim)
	case model.MessageCancel:
		switch {
		case x.Canceling != 0 || !x.mayCancel(m.From):
		case x.isBeforeStart():
			x.cancelEarly(&d, m.Failure, now)
		case x.Alone():
			x.cancelAlone(&d, m, now)
		default:
			x.append(&d, now, model.Event{Kind: model.EventCancelRequest, Failure: m.Failure, RequestID: m.RequestID})
		}
	case model.MessageWatch:
		x.watch(&d, now, m.From)
	case model.MessageClosed:
		if x.child(m.ID) >= 0 {
			x.appendAnswer(&d, now, model.Event{
				Kind: model.EventChildClosed, ID: m.ID, Status: m.Status, Output: m.Input, Failure: m.Failure,
				Target: m.From.Address, Run: m.From.Run,
			}, lim)
		}
	case model.MessageAnswer:
		if x.waitsFor(m.ID) {
			x.appendAnswer(&d, now, model.Event{Kind: model.EventAnswered, ID: m.ID, Output: m.Input, Failure: m.Failure}, lim)
		} else {
			x.lockRefused(&d, m, now)
		}
	case model.MessageUpdate:
		x.accept(&d, m, now, lim)
	case model.MessageTerminate:
		x.terminate(&d, m.Failure, now)
	case model.MessagePause:
		x.pause(&d, m, now, lim)
	case model.MessageResume:
		if x.Paused != nil {
			x.append(&d, now, model.Event{Kind: model.EventResumed, RequestID: m.RequestID})
			x.park(&d)
		}
	case model.MessageMailbox:
		x.manageSignal(&d, m, now, lim)
	case model.MessageCall, model.MessageLock, model.MessageRelease, model.MessageUnlock:
		d.refuse(fault.Invalid, fmt.Sprintf("%s is an execution: only entities take a %s", m.To, m.Kind))
	case model.MessageStart, model.MessageNothing, model.MessageDelete, model.MessageQuery, model.MessageReport, model.MessageRequeue, model.MessageWrite,
		model.MessageGrant:
	}

	d.acknowledge(m)
	return x, d
}

// forCode reports whether the code of a workflow takes the message.
func forCode(m *model.Message) bool {
	return m.Kind == model.MessageSignal || m.Kind == model.MessageSettle || m.Kind == model.MessageUpdate || m.Kind == model.MessageMailbox
}

// isAnswer reports whether a message is itself an answer, so that its sender expects none.
func isAnswer(m *model.Message) bool {
	return m.Kind == model.MessageClosed || m.Kind == model.MessageAnswer
}

// acknowledge tells the step that sent a message whether the message took effect or was refused. It
// does not answer an update that is pending, because the code answers it later.
func (d *Decision) acknowledge(m *model.Message) {
	switch m.Kind {
	case model.MessageStart, model.MessageWatch, model.MessageClosed, model.MessageAnswer, model.MessageNothing, model.MessageGrant, model.MessageRelease:
		return
	default:
	}
	if m.From.ID != "" && !d.Pending {
		d.Messages = append(d.Messages, answerMessage(m.From, model.Answer{Failure: d.Answer.Failure}))
	}
}

// answerMessage returns the message that carries an answer to the step that asked.
func answerMessage(to model.Link, a model.Answer) model.Message {
	return model.Message{Kind: model.MessageAnswer, To: to.Address, ToRun: to.Run, ID: to.ID, Input: a.Output, Failure: a.Failure}
}

// pendingUpdate finds the update of a request that has no answer yet, or nil.
func (x *Execution) pendingUpdate(request string) *model.Event {
	if request == "" {
		return nil
	}
	if i := slices.IndexFunc(x.updates, func(u model.Event) bool { return u.RequestID == request }); i >= 0 {
		return &x.updates[i]
	}
	return nil
}

// useOf returns what the sender of an update has used the request id of the update for.
func useOf(u *model.Event) *model.Use {
	m := model.Message{Kind: model.MessageUpdate, Name: u.Name, Input: u.Input, RequestID: u.RequestID}
	return m.Use()
}

// accept records an update that the code will answer.
func (x *Execution) accept(d *Decision, m *model.Message, now model.Time, lim Limits) {
	e := model.Event{Kind: model.EventUpdateReceived, Name: m.Name, Input: m.Input, RequestID: m.RequestID}
	if m.From.ID != "" {
		e.Watcher = m.From.Pointer()
	}
	switch {
	case len(x.updates) >= lim.Signals:
		d.refuse(fault.Exhausted, fmt.Sprintf("execution %s holds %d updates that it has not answered, which is the limit",
			x.Start.Address, len(x.updates)))
	case x.admit(d, &e, lim):
		x.append(d, now, e)
		d.Pending = true
	}
}

// answer sends the answer of an update to its sender: a step of another run, or a client.
func (x *Execution) answer(d *Decision, u *model.Event, a model.Answer) {
	if w := u.Waiter(); w.ID != "" {
		d.Messages = append(d.Messages, answerMessage(w, a))
	}
	if u.RequestID != "" {
		a.Run = x.Start.Run
		d.Replies = append(d.Replies, Reply{RequestID: u.RequestID, Answer: a, For: useOf(u)})
	}
}

// refuseUpdate answers an update that the code will never answer.
func (x *Execution) refuseUpdate(d *Decision, u *model.Event, s model.Status, what string) {
	x.answer(d, u, model.Answer{Status: s, Failure: &model.Failure{
		Kind: model.FailureConflict, Message: fmt.Sprintf("execution %s %s before it answered update %s", x.Start.Address, what, u.Name),
	}})
}

// pause parks the run until it is resumed. Messages that arrive until then are recorded, and timers
// fire; the code sees both when the run is resumed.
func (x *Execution) pause(d *Decision, m *model.Message, now model.Time, lim Limits) {
	if x.Paused != nil {
		return
	}
	e := model.Event{Kind: model.EventPaused, Failure: m.Failure, RequestID: m.RequestID}
	if why := x.full(e.Size(), lim); why != "" {
		d.refuse(fault.Exhausted, why)
		return
	}
	x.append(d, now, e)
	x.Parked = true
	d.Mark = x.mark()
}

// mayCancel reports whether a cancel request from this sender applies to the run. When a parent
// closes, or gives up on its child, its request names no step. Such a request is meant only for
// executions that the parent has started itself. It must not cancel an execution that the parent
// only attached to, or a later execution that has the same key.
func (x *Execution) mayCancel(from model.Link) bool {
	return from.ID != "" || from.Run.IsZero() || (from.Address == x.Start.Parent.Address && from.Run == x.Start.Parent.Run)
}

// settle resolves or rejects a promise. It refuses to settle a promise a second time (I6).
func (x *Execution) settle(d *Decision, m *model.Message, now model.Time, lim Limits) {
	if slices.Contains(x.settled, m.Name) {
		d.refuse(fault.Conflict, fmt.Sprintf("promise %s of %s is settled already", m.Name, x.Start.Address))
		return
	}
	e := model.Event{Kind: model.EventPromiseSettled, Name: m.Name, Output: m.Input, Failure: m.Failure, RequestID: m.RequestID}
	// Signals that the code never takes must not keep out the promise that the code waits for.
	lim.Unread += lim.Unread / 4
	if x.admit(d, &e, lim) {
		x.append(d, now, e)
	}
}

// watch adds a step that waits for the outcome of the run, unless the step is already there.
func (x *Execution) watch(d *Decision, now model.Time, who model.Link) {
	if who.ID == "" || who == x.Start.Parent || slices.Contains(x.watchers, who) {
		return
	}
	x.append(d, now, model.Event{Kind: model.EventWatched, Watcher: who.Pointer()})
}

// bounce answers the step that sent a message, if the message leads to no wait for this run. A step
// that sent a start or a watch gets the outcome o. Other steps get the answer of the decision. If a
// client sent the message, bounce sends nothing, because the client gets the Answer.
func (d *Decision) bounce(m *model.Message, o model.Outcome) {
	switch m.Kind {
	case model.MessageStart, model.MessageWatch:
		if m.From.ID != "" {
			d.Messages = append(d.Messages, closedMessage(m.From, model.Link{Address: m.To}, o))
		}
	default:
		d.acknowledge(m)
	}
}

// closedMessage returns the message that tells a step the outcome of an execution.
func closedMessage(to, from model.Link, o model.Outcome) model.Message {
	return model.Message{
		Kind: model.MessageClosed, To: to.Address, ToRun: to.Run, ID: to.ID, From: from,
		Status: o.Status, Input: o.Output, Failure: o.Failure,
	}
}

// deliverStart starts an execution, attaches to the execution that has the key, or refuses.
//
//arch:parameters the same values as Deliver
func deliverStart(x *Execution, m *model.Message, now model.Time, fresh model.RunID, lim Limits) (*Execution, Decision) {
	var d Decision
	if x != nil && !mayReplace(x, m) {
		return x, attach(x, m, now, lim)
	}

	// A new run must be able to hold the signals that come with its start.
	if why := (&Execution{Start: model.Start{Address: m.To}}).floodReason(m.With, lim); why != "" {
		d.refuse(fault.Exhausted, fmt.Sprintf("a start with %d signals: %s", len(m.With), why))
		return x, d
	}

	if why := lim.bundleReason(m); why != "" {
		d.refuse(fault.Exhausted, why)
		return x, d
	}

	// Build the start of the run.
	s := model.Start{
		Address: m.To, Run: fresh, At: now, Input: m.Input, RequestID: m.RequestID, OnParentClose: m.Policy,
		Labels: m.Labels, Task: m.Task, Trace: m.Trace,
	}

	if m.From.ID != "" {
		s.Parent = m.From
	}

	for i, e := range m.With {
		e.Kind, e.Seq, e.At = model.EventSignalReceived, int64(i+1), now
		s.Carried = append(s.Carried, e)
	}

	if x != nil {
		d.Replaces, s.Replaced = x.Start.Run, x.Start.Run
		if again := m.Task != nil && m.Task.Same != nil; again && m.Input.Equal(x.Start.Input) {
			// This start submits the same task again. A client that repeats the submission sends
			// the original input.
			s.Origin = x.Start.Origin
		}
	}

	// Begin the run. It stays parked when its start time is in the future.
	agree(&s, m.Terms)
	x = begin(s)
	x.park(&d)
	d.Start = &x.Start
	d.Answer = model.Answer{Run: fresh, Status: model.Running}

	return x, d
}

// mayReplace reports whether a start may begin a new run although the address already has a run.
func mayReplace(x *Execution, m *model.Message) bool {
	if x.Open() || (m.RequestID != "" && m.RequestID == x.Start.RequestID) {
		return false
	}
	switch m.Reuse {
	case model.ReuseAlways:
		return true
	case model.ReuseIfFailed:
		return x.Outcome.Status != model.Completed
	case model.ReturnExisting:
	}
	return false
}

// attach answers a start with the run that has the key.
func attach(x *Execution, m *model.Message, now model.Time, lim Limits) Decision {
	var d Decision
	d.Answer = model.Answer{Run: x.Start.Run, Status: x.Outcome.Status, Existing: true}
	if m.From.ID != "" && m.From == x.Start.Parent {
		return d // the same step asks again after a crash
	}

	if !x.hasInput(m.Input) {
		d.refuse(fault.Conflict, fmt.Sprintf("execution %s was started with another input", m.To))
		d.bounce(m, model.Outcome{Status: model.Failed, Failure: d.Answer.Failure})
		return d
	}

	if m.RequestID != "" && m.RequestID == x.Start.RequestID {
		if !x.cameWith(m.With) {
			d.misuse(m, refusedID(fmt.Sprintf("request id %q of %s was used for a start without these signals: this start needs another request id", m.RequestID, m.To)))
		}
		return d // a client repeats the start that began this chain: its signals are there
	}

	if !x.Open() {
		d.bounce(m, x.Outcome)
		if len(m.With) > 0 {
			d.refuse(fault.Conflict, fmt.Sprintf("execution %s is closed (%s)", m.To, x.Outcome.Status))
		}
		return d
	}

	// The run gets all signals that come with the start, or none of them. So all of them are
	// checked before the first is recorded, and none is checked again.
	if why := x.noRoomFor(m, lim); why != "" {
		d.refuse(fault.Exhausted, why)
		return d
	}

	for _, e := range m.With {
		e.Kind = model.EventSignalReceived
		x.append(&d, now, e)
	}
	x.watch(&d, now, m.From)
	return d
}

// cameWith reports whether the start of the chain of runs brought these signals. In a later run of
// the chain it may report false wrongly, because that run has only the signals that no run has
// taken. That is safe: the engine remembers the answer to a start with signals, so a repetition of
// that start does not get here.
func (x *Execution) cameWith(signals []model.Event) bool {
	if len(signals) == 0 {
		return true
	}
	if !x.Start.Previous.IsZero() || len(x.Start.Carried) < len(signals) {
		return false
	}
	for i := range signals {
		first := &x.Start.Carried[i]
		if first.Kind != model.EventSignalReceived || first.Name != signals[i].Name ||
			first.Input.Comparable() && signals[i].Input.Comparable() && !first.Input.Equal(signals[i].Input) {
			return false
		}
	}
	return true
}

// hasInput reports whether the chain of runs was started with this input.
func (x *Execution) hasInput(in model.Payload) bool {
	if len(x.Start.Origin) > 0 {
		return bytes.Equal(x.Start.Origin, in.Digest())
	}
	return x.Start.Input.Equal(in)
}
