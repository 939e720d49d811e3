package core

import (
	"fmt"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// FindSignal returns the unread signal with the id; nil when the code has taken the signal or the
// run never received it.
func (x *Execution) FindSignal(id string) *model.Event {
	for i := range x.signals {
		if e := &x.signals[i]; model.SignalID(x.Start.Run, e) == id {
			return e
		}
	}

	return nil
}

// LookAtSignals answers an operator who only reads signals.
func (x *Execution) LookAtSignals(m *model.Message) (model.Answer, error) {
	var d Decision
	x.answerRead(&d, m)

	return d.Answer, d.Refusal()
}

// unreadSignals returns the signals that the code has not taken, as an operator sees them.
func (x *Execution) unreadSignals() *model.Calls {
	c := &model.Calls{Total: len(x.signals)}
	for i := range x.signals[:min(len(x.signals), model.MailboxListed)] {
		c.Calls = append(c.Calls, model.SignalOf(i+1, x.Start.Run, &x.signals[i]))
	}

	return c
}

// answerRead answers an operator who only reads signals. It reports false when the message asks for
// a change.
func (x *Execution) answerRead(d *Decision, m *model.Message) bool {
	switch m.Name {
	case model.MailboxList:
		d.Answer.Output = x.unreadSignals().Encode()
	case model.MailboxShow:
		e := x.FindSignal(m.ID)
		if e == nil {
			d.refuse(fault.NotFound, x.notUnread(m))
			break
		}
		shown := model.SignalOf(x.signal(e.Seq)+1, x.Start.Run, e)
		shown.Input = e.Input
		d.Answer.Output = (&model.Calls{Calls: []model.Call{shown}, Total: len(x.signals)}).Encode()
	default:
		return false
	}

	return true
}

// unknownOrder returns the text of the refusal of a request that this build does not know. The
// request comes from a process with a newer build.
func unknownOrder(m *model.Message) string {
	return fmt.Sprintf("the process that owns %s does not know the order %q, because it runs an older build: "+
		"nothing has changed; upgrade that process, or use another order", m.To, m.Name)
}

// notUnread returns the text of the refusal when the run has no unread signal with the id.
func (x *Execution) notUnread(m *model.Message) string {
	return fmt.Sprintf("%s has no unread signal %s: its code may have taken it already", m.To, m.ID)
}

// manageSignal drops a signal, or skips it, which moves it behind the other unread signals. The
// caller has made sure that no worker can be about to take the signal, because a turn that takes a
// removed signal would contradict the history.
func (x *Execution) manageSignal(d *Decision, m *model.Message, now model.Time, lim Limits) {
	if m.To.ReadsLog() {
		d.refuse(fault.Invalid, fmt.Sprintf("workers read the signals of %s from its event log, in which they stay: they cannot be skipped or dropped", m.To))
		return
	}
	if m.Name == model.MailboxDropNamed {
		x.dropNamed(d, m, now, lim)
		return
	}
	e := x.FindSignal(m.ID)
	switch {
	case m.Name != model.MailboxSkip && m.Name != model.MailboxDrop:
		d.refuse(fault.Invalid, unknownOrder(m))
		return
	case e == nil:
		d.refuse(fault.NotFound, x.notUnread(m))
		return
	}

	signal := *e
	drop := x.dropOf(&signal, m)
	again := model.Event{Kind: model.EventSignalReceived, Name: signal.Name, Input: signal.Input, RequestID: signal.RequestID}
	size := drop.Size()
	if m.Name == model.MailboxSkip {
		size += again.Size()
	}
	if why := x.full(size, lim); why != "" || m.Name == model.MailboxSkip && x.Next+1 >= lim.Events {
		if why == "" {
			why = fmt.Sprintf("the history of %s has %d events, and two more would exceed the limit", x.Start.Run, x.Next)
		}
		d.refuse(fault.Exhausted, why)
		return
	}

	x.append(d, now, drop)
	left := model.SignalOf(0, x.Start.Run, &signal)
	if m.Name == model.MailboxSkip {
		x.append(d, now, again)
		left = model.SignalOf(len(x.signals), x.Start.Run, &x.signals[len(x.signals)-1])
	}
	d.Answer.Output = (&model.Calls{Calls: []model.Call{left}, Total: len(x.signals)}).Encode()
}

// dropOf returns the event that drops a signal.
func (x *Execution) dropOf(signal *model.Event, m *model.Message) model.Event {
	return model.Event{
		Kind: model.EventSignalDropped, Name: signal.Name, Ref: signal.Seq, Seen: x.mayBeNoticed(signal.Seq), RequestID: m.RequestID,
		Failure: m.Failure.Bounded(),
	}
}

// HasSignal reports whether the run has a signal of a name that the code has not taken.
func (x *Execution) HasSignal(name string) bool { return x.signalsOf(name) > 0 }

// dropNamed drops the oldest signals of a name, as many as fit into the history and into one
// commit. The answer lists the dropped signals, and its total is how many signals of the name are
// left.
func (x *Execution) dropNamed(d *Decision, m *model.Message, now model.Time, lim Limits) {
	var all []model.Event
	for i := range x.signals {
		if len(all) < model.MailboxDropped && x.signals[i].Name == m.ID {
			all = append(all, x.signals[i])
		}
	}

	dropped := &model.Calls{Calls: []model.Call{}}
	for i := range all {
		drop := x.dropOf(&all[i], m)
		if why := x.full(drop.Size(), lim); why != "" {
			if i == 0 {
				d.refuse(fault.Exhausted, why)
				return
			}
			break
		}
		x.append(d, now, drop)
		dropped.Calls = append(dropped.Calls, model.SignalOf(0, x.Start.Run, &all[i]))
	}
	dropped.Total = x.signalsOf(m.ID)
	d.Answer.Output = dropped.Encode()
}

// mayBeNoticed reports whether the history may depend on the signal at a position although the code
// has not taken the signal. For example, the code may have chosen a branch of a select because the
// signal was there. If the history may depend on the signal, a replay must show the signal to the
// code up to the event that drops it. Otherwise a replay never shows it.
//
// This owner knows which events workers have fed to the code since the owner took over the run. A
// signal that arrived before that may have reached the code under an earlier owner. But there are
// two cases in which the code cannot have noticed such a signal. In the first case, the signal
// arrived during the current pause of the run. In the second case, the code has recorded nothing
// since the signal arrived and waits for no timer.
func (x *Execution) mayBeNoticed(seq int64) bool {
	switch {
	case x.fed >= seq:
		return true
	case seq >= x.since || x.quiet != 0 && seq > x.quiet:
		return false
	}

	return x.acted > seq || x.codeTimers()
}

// codeTimers reports whether a timer of the code is open. The history has no event for the start of
// a timer, so the core does not know when the timer started.
func (x *Execution) codeTimers() bool {
	for i := range x.timers {
		if !OwnTimer(x.timers[i].ID) {
			return true
		}
	}

	return false
}
