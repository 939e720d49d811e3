package core

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// deliverPast begins a run that has a past. If the message names a run in ToRun, the new run takes
// the place of that run, which must be the current one (retry, reset). Otherwise the new run is a
// new execution (fork, import).
//
//arch:parameters the same values as Deliver
func deliverPast(x *Execution, m *model.Message, now model.Time, fresh model.RunID, lim Limits) (*Execution, Decision) {
	var d Decision
	p, takesOver := m.Past, !m.ToRun.IsZero()
	switch {
	case strings.HasPrefix(m.To.Type, model.TaskPrefix):
		d.refuse(fault.Invalid, fmt.Sprintf("%s is a task: it has no code to continue with, so submit it again", m.To))
		return x, d
	case takesOver && (x.Open() != (p.Next != 0) || x.Open() && p.Next != x.Next):
		d.refuse(fault.Conflict, fmt.Sprintf("run %s has changed since its history was read: try again", m.ToRun))
		return x, d
	case takesOver || x == nil || mayReplace(x, m):
	case m.RequestID != "" && m.RequestID == x.Start.RequestID:
		// The client repeats its request.
		d.Answer = model.Answer{Run: x.Start.Run, Status: x.Outcome.Status, Existing: true}
		return x, d
	default:
		d.refuse(fault.AlreadyExists, fmt.Sprintf("execution %s exists (%s): take another key", m.To, x.Outcome.Status))
		return x, d
	}

	s := model.Start{
		Address: m.To, Run: fresh, At: now, Input: m.Input, RequestID: m.RequestID, Carried: model.EventsOf(p.Events),
		Labels: m.Labels, Began: p.Began, Seeds: p.Seeds, Identity: p.Identity, Earlier: p.Earlier, Source: p.Source, Origin: p.Origin,
		Trace: m.Trace, Begins: p.Begins,
	}

	if takesOver {
		s = x.successorStart(s)
	} else if x != nil {
		s.Replaced = x.Start.Run
	}

	// The new run must fit the limits before anything of the old run changes.
	x.claimUpdates(s.Carried, takesOver)
	next := begin(s)
	if kind, text := next.unfit(p, lim); text != "" {
		d.refuse(kind, text)
		return x, d
	}

	if takesOver && x.Open() {
		x.giveWay(&d, next)
	}
	if x != nil {
		d.Replaces = x.Start.Run
	}
	d.Start = &next.Start

	if p.Status.Closed() {
		next.Outcome = model.Outcome{Status: p.Status, Output: p.Output, Failure: p.Failure, At: p.At, Seen: next.Next - 1}
		d.Close, d.Closed = &next.Outcome, fresh
		next.dropTasks() // tasks that were open when the imported run ended
		next.sections, next.timers = nil, nil
	} else {
		next.watchAgain(&d)
		next.park(&d)
	}

	d.Answer = model.Answer{Run: fresh, Status: next.Outcome.Status}
	return next, d
}

// claimUpdates removes the senders of the updates in a past, except senders that the new run must
// answer. The new run must answer an update if the run that it replaces is open and has not
// answered that update. All other senders have their answer, or wait for the run that the past was
// copied from.
func (x *Execution) claimUpdates(past []model.Event, takesOver bool) {
	for i := range past {
		e := &past[i]
		if e.Kind == model.EventUpdateReceived && (!takesOver || !x.Open() || !contains(x.updates, e)) {
			e.RequestID, e.Watcher = "", nil
		}
	}
}

// contains reports whether updates contains u, at any position.
func contains(updates []model.Event, u *model.Event) bool {
	return (u.RequestID != "" || u.Waiter().ID != "") && slices.ContainsFunc(updates, func(o model.Event) bool {
		return o.Name == u.Name && o.RequestID == u.RequestID && o.Waiter() == u.Waiter()
	})
}

// unfit returns why a run cannot begin with its past; empty when it can.
func (x *Execution) unfit(p *model.Past, lim Limits) (fault.Kind, string) {
	a := x.Start.Address
	switch n, size := len(p.Events), p.Size(); {
	case n > lim.Past:
		return fault.Exhausted, fmt.Sprintf("the past of %s has %d events: a run may begin with %d", a, n, lim.Past)
	case size > lim.PastBytes:
		return fault.Exhausted, fmt.Sprintf("the past of %s has %d bytes: a run may begin with %d", a, size, lim.PastBytes)
	case len(x.labels) > model.MaxLabels:
		return fault.Exhausted, fmt.Sprintf("the past of %s has %d labels: a run may have %d", a, len(x.labels), model.MaxLabels)
	case x.wouldExceed(0, lim):
		return fault.Exhausted, fmt.Sprintf("the past of %s has %d bytes: a history may have %d", a, x.bytes, lim.Bytes)
	case lim.Unread > 0 && x.unread > lim.Unread && !p.Status.Closed():
		return fault.Exhausted, fmt.Sprintf("the past of %s has %d bytes of signals, updates and promises that its code has not dealt with: a run may hold %d", a, x.unread, lim.Unread)
	}

	if why := x.overflowReason(lim); why != "" {
		return fault.Exhausted, why
	}
	if len(x.sections) > 0 && !p.Status.Closed() {
		return fault.Invalid, fmt.Sprintf("the past of %s ends inside section %s: a run that begins with a past holds no locks", a, x.sections[0].id)
	}

	last := x.Start.Zero()
	for i := range x.Start.Carried {
		e := &x.Start.Carried[i]
		if e.Kind == model.EventStarted || e.Kind == model.EventClosed || !e.Kind.Known() {
			return fault.Invalid, fmt.Sprintf("event %d of the past of %s is of kind %s, which a past may not have", e.Seq, a, e.Kind)
		}
		if e.At < last {
			return fault.Invalid, fmt.Sprintf("event %d of the past of %s is older than the one before it", e.Seq, a)
		}
		last = e.At
	}

	if last > x.Start.At.Add(maxAhead) {
		return fault.Invalid, fmt.Sprintf("the past of %s reaches to %s, which is in the future: the run could not continue before", a, last)
	}
	return 0, ""
}

// maxAhead is how far ahead of our clock the clock that recorded a past may be. The times of a run
// never decrease, so a run with a past from the future would show its code wrong times until our
// clock reaches that future.
const maxAhead = 24 * time.Hour

// successorStart returns the start of the run that takes the place of this one. The new run belongs
// to the same chain and to the same parent. If this run is open, the new run takes over its
// watchers.
func (x *Execution) successorStart(s model.Start) model.Start {
	s.First, s.Previous, s.Origin = x.Start.First, x.Start.Run, x.Start.Origin
	if s.First.IsZero() {
		s.First, s.Origin = x.Start.Run, x.Start.Input.Digest()
	}
	s.RequestID, s.Parent, s.OnParentClose = x.Start.RequestID, x.Start.Parent, x.Start.OnParentClose
	s.Terms = x.Start.Terms
	s.Expires = expiry(&s) // the new run has the full time-out and all attempts again
	if !x.Open() {
		return s
	}

	at := max(s.At, s.Zero()) // the clock that recorded the past may be ahead of ours
	if n := len(s.Carried); n > 0 {
		at = max(at, s.Carried[n-1].At)
	}
	for _, w := range x.watchers {
		s.Carried = append(s.Carried, model.Event{Kind: model.EventWatched, Watcher: &w, At: at, Seq: int64(len(s.Carried) + 1)})
	}

	return s
}

// giveWay ends an open run because the next run takes its place, as continue-as-new does. The next
// run takes over the children that are in its past. giveWay cancels the others if their policy says
// so.
func (x *Execution) giveWay(d *Decision, next *Execution) {
	d.StopAll = len(x.timers) > 0
	for _, c := range x.children {
		if c.policy == model.CancelChild && next.child(c.id) < 0 {
			d.Messages = append(d.Messages, x.cancelChild(c, "its parent was reset"))
		}
	}

	for i := range x.updates {
		if u := &x.updates[i]; !contains(next.updates, u) {
			x.refuseUpdate(d, u, model.Continued, "was reset")
		}
	}

	x.releaseSections(d)
	s := &next.Start
	x.Outcome = model.Outcome{
		Status: model.Continued, At: max(s.At, x.Last), Seen: min(s.Source.Position, x.Next-1), Next: s.Run,
		Failure: &model.Failure{Kind: model.FailureReset, Message: fmt.Sprintf("reset to event %d", s.Source.Position)},
	}

	d.Close, d.Closed = &x.Outcome, x.Start.Run
	x.timers, x.children, x.calls, x.updates = nil, nil, nil, nil
	x.Parked, x.Blocked, x.Paused = false, nil, nil
}

// watchAgain asks for the outcome of each child whose end is not in the past (the events that the
// run started with). Without that, these children would report only to the run that started them.
func (x *Execution) watchAgain(d *Decision) {
	for i := range x.Start.Carried {
		e := &x.Start.Carried[i]
		if e.Kind == model.EventChildStarted && x.child(e.ID) >= 0 {
			d.Messages = append(d.Messages, model.Message{
				Kind: model.MessageWatch, To: e.Target, ToRun: e.Run, From: model.Link{Address: x.Start.Address, Run: x.Start.Run, ID: e.ID},
			})
		}
	}
}

// deliverDelete removes closed runs: the current one, or earlier ones. It refuses to remove an open
// run.
func deliverDelete(x *Execution, m *model.Message) (*Execution, Decision) {
	var d Decision
	if x != nil && slices.Contains(m.Runs, x.Start.Run) {
		if x.Open() {
			d.refuse(fault.Conflict, fmt.Sprintf("execution %s is running: cancel it, wait for its end, then delete it", m.To))
			return x, d
		}
		x = nil
	}
	d.Deletes = m.Runs
	return x, d
}
