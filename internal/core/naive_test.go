package core_test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/model"
)

// naive is a second implementation of the core for the property tests. It keeps only the histories
// and the open timers, and finds out everything else by reading them from the beginning, every
// time.
type naive struct {
	runs []*naiveRun
	lim  core.Limits
}

type naiveRun struct {
	start   model.Start
	events  []model.Event // at the positions 1 to n
	timers  map[string]model.Time
	status  model.Status
	outcome model.Outcome
	parked  bool
	blocked string
	seen    int64           // the furthest position that its code has reported
	rung    map[string]bool // back-offs that the worker has been woken for
}

func (n *naive) current() *naiveRun {
	if len(n.runs) == 0 {
		return nil
	}
	return n.runs[len(n.runs)-1]
}

// expected is the expected result of an input.
type expected struct {
	core.Decision
	refused string
}

func (x *expected) refuse(kind string) { x.refused = kind }

// labels returns the labels that the run was started with, as the code has changed them.
func (r *naiveRun) labels() []model.Label {
	all := map[string]string{}
	for _, l := range r.start.Labels {
		all[l.Name] = l.Value
	}
	for _, e := range r.events {
		if e.Kind != model.EventLabeled {
			continue
		}
		if all[e.Name] = string(e.Output.Data); all[e.Name] == "" {
			delete(all, e.Name)
		}
	}
	return model.Labels(all)
}

func (r *naiveRun) add(x *expected, now model.Time, e model.Event) {
	e.Seq, e.At = int64(len(r.events))+1, max(now, r.last())
	r.events = append(r.events, e)
	x.Events = append(x.Events, e)
	r.parked = r.withheld()
}

func (n *naive) deliver(m *model.Message, now model.Time, fresh model.RunID) expected {
	x := n.take(m, now, fresh)
	switch m.Kind {
	case model.MessageStart, model.MessageWatch, model.MessageClosed, model.MessageAnswer, model.MessageNothing:
		return x // the sender gets an outcome, or no answer
	default:
	}
	if m.From.ID != "" && !x.Pending {
		a := model.Message{Kind: model.MessageAnswer, To: m.From.Address, ToRun: m.From.Run, ID: m.From.ID}
		if x.refused != "" {
			a.Failure = &model.Failure{Kind: x.refused}
		}
		x.Messages = append(x.Messages, a)
	}
	return x
}

// take applies a message, except for the answer to the step that sent it.
func (n *naive) take(m *model.Message, now model.Time, fresh model.RunID) (x expected) {
	r := n.current()
	self := model.Link{Address: m.To}
	bounce := func(status model.Status, out model.Payload) {
		if m.From.ID != "" && (m.Kind == model.MessageStart || m.Kind == model.MessageWatch) {
			x.Messages = append(x.Messages, model.Message{
				Kind: model.MessageClosed, To: m.From.Address, ToRun: m.From.Run, ID: m.From.ID, From: self, Status: status, Input: out,
			})
		}
	}

	// The message is the outcome of something that a step has asked for.
	outcome := m.Kind == model.MessageClosed || m.Kind == model.MessageAnswer
	if m.Kind == model.MessageUpdate && m.RequestID != "" && r != nil && r.open() {
		for _, u := range r.updates() {
			switch {
			case u.RequestID != m.RequestID:
				continue
			case u.Name != m.Name || !u.Input.Equal(m.Input):
				x.refuse("conflict") // the id belongs to another update
			default:
				x.Pending = true // whichever run the message names
			}
			return x
		}
	}

	if m.ToRun != (model.RunID{}) && (r == nil || r.start.Run != m.ToRun) {
		if !outcome {
			x.refuse("not_found")
			bounce(model.Failed, model.Payload{})
		}
		return x
	}

	if m.Kind == model.MessageStart {
		n.start(&x, r, m, now, fresh, bounce)
		return x
	}

	if r == nil {
		x.refuse("not_found")
		bounce(model.Failed, model.Payload{})
		return x
	}

	if !r.open() {
		switch {
		case m.Kind == model.MessageWatch:
			bounce(r.status, r.outcome.Output)
		case !outcome:
			x.refuse("conflict")
		}
		return x
	}

	full := int64(len(r.events))+1 >= n.lim.Events
	switch m.Kind {
	case model.MessageSignal:
		if n.isFlooded(r, model.Event{Name: m.Name}) || full {
			x.refuse("exhausted")
			return x
		}
		r.add(&x, now, model.Event{Kind: model.EventSignalReceived, Name: m.Name, Input: m.Input, RequestID: m.RequestID})
	case model.MessageSettle:
		settled := r.count(func(e *model.Event) bool { return e.Kind == model.EventPromiseSettled && e.Name == m.Name })
		switch {
		case settled > 0:
			x.refuse("conflict")
		case full:
			x.refuse("exhausted")
		default:
			r.add(&x, now, model.Event{Kind: model.EventPromiseSettled, Name: m.Name, Output: m.Input, Failure: m.Failure, RequestID: m.RequestID})
		}
	case model.MessageCancel:
		byParent := m.From.ID == "" && m.From.Run != (model.RunID{})
		isParent := r.start.Parent.Address == m.From.Address && r.start.Parent.Run == m.From.Run
		switch {
		case r.cancel() != 0 || byParent && !isParent:
		case r.isBeforeStart():
			why := model.Failure{Kind: model.FailureCanceled, Message: "canceled"}
			if m.Failure != nil {
				why.Message = m.Failure.Message
			}
			n.close(&x, r, model.Outcome{Status: model.Canceled, Failure: &why, At: max(now, r.last()), Seen: int64(len(r.events))}, nil)
		default:
			r.add(&x, now, model.Event{Kind: model.EventCancelRequest, Failure: m.Failure, RequestID: m.RequestID})
		}
	case model.MessageWatch:
		n.watch(&x, r, now, m.From)
	case model.MessageClosed:
		if slices.ContainsFunc(r.children(), func(c model.Event) bool { return c.ID == m.ID }) {
			r.add(&x, now, model.Event{
				Kind: model.EventChildClosed, ID: m.ID, Status: m.Status, Output: m.Input, Failure: m.Failure, Target: m.From.Address, Run: m.From.Run,
			})
		}
	case model.MessageAnswer:
		if slices.Contains(r.calls(), m.ID) {
			r.add(&x, now, model.Event{Kind: model.EventAnswered, ID: m.ID, Output: m.Input, Failure: m.Failure})
		}
	case model.MessageUpdate:
		if len(r.updates()) >= n.lim.Signals || full {
			x.refuse("exhausted")
		} else {
			x.Pending = true
			e := model.Event{Kind: model.EventUpdateReceived, Name: m.Name, Input: m.Input, RequestID: m.RequestID}
			if m.From.ID != "" {
				e.Watcher = m.From.Pointer()
			}
			r.add(&x, now, e)
		}
	case model.MessageTerminate:
		f := model.Failure{Kind: model.FailureTerminated, Message: "terminated"}
		if m.Failure != nil {
			f.Message += ": " + m.Failure.Message
		}
		n.close(&x, r, model.Outcome{Status: model.Terminated, Failure: &f, At: max(now, r.last()), Seen: int64(len(r.events))}, nil)
	case model.MessagePause:
		switch {
		case r.isPaused():
		case full:
			x.refuse("exhausted")
		default:
			r.add(&x, now, model.Event{Kind: model.EventPaused, Failure: m.Failure, RequestID: m.RequestID})
		}
	case model.MessageResume:
		if r.isPaused() {
			r.add(&x, now, model.Event{Kind: model.EventResumed, RequestID: m.RequestID})
		}
	default:
	}

	return x
}

func (n *naive) watch(x *expected, r *naiveRun, now model.Time, who model.Link) {
	if who.ID != "" && who != r.start.Parent && !slices.Contains(r.watchers(), who) {
		r.add(x, now, model.Event{Kind: model.EventWatched, Watcher: who.Pointer()})
	}
}

// start applies a start.
//
//arch:parameters the model takes the same values as the core
func (n *naive) start(x *expected, r *naiveRun, m *model.Message, now model.Time, fresh model.RunID, bounce func(model.Status, model.Payload)) {
	repeated := r != nil && m.RequestID != "" && m.RequestID == r.start.RequestID
	fits := r == nil || !repeated && !r.open() && (m.Reuse == model.ReuseAlways || m.Reuse == model.ReuseIfFailed && r.status != model.Completed)
	if fits {
		if n.isFlooded(nil, m.With...) {
			x.refuse("exhausted")
			return
		}

		s := model.Start{Address: m.To, Run: fresh, At: now, Input: m.Input, RequestID: m.RequestID, OnParentClose: m.Policy, Labels: m.Labels}
		naiveTerms(&s, m.Terms)
		if m.From.ID != "" {
			s.Parent = m.From
		}

		for i, e := range m.With {
			e.Kind, e.Seq, e.At = model.EventSignalReceived, int64(i+1), now
			s.Carried = append(s.Carried, e)
		}

		if r != nil {
			x.Replaces = r.start.Run
		}
		n.begin(x, s)
		return
	}

	x.Answer.Existing = true
	first := r.start.Input
	sameInput := first.Equal(m.Input)
	if len(r.start.Origin) > 0 {
		sameInput = bytes.Equal(r.start.Origin, m.Input.Digest())
	}

	switch {
	case m.From.ID != "" && m.From == r.start.Parent:
	case !sameInput:
		x.refuse("conflict")
		bounce(model.Failed, model.Payload{})
	case repeated:
		if !broughtAlong(&r.start, m.With) {
			x.refuse("conflict")
		}
	case !r.open():
		bounce(r.status, r.outcome.Output)
		if len(m.With) > 0 {
			x.refuse("conflict")
		}
	case len(m.With) > 0 && (n.isFlooded(r, m.With...) || int64(len(r.events)+1+len(m.With)) > n.lim.Events):
		x.refuse("exhausted")
	default:
		for _, e := range m.With {
			e.Kind = model.EventSignalReceived
			r.add(x, now, e)
		}
		n.watch(x, r, now, m.From)
	}
}

// isFlooded reports whether a run has no room for signals. There is a bound for each name. The
// bound for all names together is half of the events of a history.
func (n *naive) isFlooded(r *naiveRun, further ...model.Event) bool {
	names, all := map[string]int{}, len(further)
	if r != nil {
		for _, e := range r.pendingSignals() {
			names[e.Name]++
			all++
		}
	}
	for _, e := range further {
		if names[e.Name]++; names[e.Name] > n.lim.Signals {
			return true
		}
	}

	return all > max(n.lim.Signals, int(n.lim.Events/2))
}

// broughtAlong reports whether the first run of a chain began with the signals.
func broughtAlong(s *model.Start, signals []model.Event) bool {
	for i, e := range signals {
		if !s.Previous.IsZero() || i >= len(s.Carried) || s.Carried[i].Name != e.Name || !s.Carried[i].Input.Equal(e.Input) {
			return false
		}
	}
	return true
}

func (n *naive) begin(x *expected, s model.Start) {
	r := &naiveRun{start: s, events: slices.Clone(s.Carried), status: model.Running, timers: map[string]model.Time{}, rung: map[string]bool{}}
	if s.Begins > s.At {
		r.timers["begin\x1f"] = s.Begins
	}
	if s.Expires > 0 {
		r.timers["expire\x1f"] = s.Expires
	}
	r.parked = r.withheld()
	n.runs = append(n.runs, r)
	x.Start = &s
}

func (n *naive) fire(id string, now model.Time) (x expected) {
	r := n.current()
	due, ok := r.timers[id]
	if !ok || !r.open() || due > now {
		return x
	}

	if step, isRetry := core.RetryOf(id); isRetry {
		if !r.rung[id] {
			x.Retry, r.rung[id] = step, true
		}
		return x
	}

	delete(r.timers, id)
	switch id {
	case "begin\x1f":
		r.parked = r.isPaused()
		x.Begins = !r.parked
	case "expire\x1f":
		f := model.Failure{Kind: model.FailureTimeout, Type: model.TimeoutExecution, Message: "the execution did not end within " + r.start.Terms.Timeout.String()}
		n.close(&x, r, model.Outcome{Status: model.Failed, Failure: &f, At: max(now, r.last()), Seen: int64(len(r.events))}, nil)
	default:
		r.add(&x, now, model.Event{Kind: model.EventTimerFired, ID: id, Due: due})
	}

	return x
}

func (n *naive) release(seen int64) (ok bool) {
	r := n.current()
	if !r.open() || seen > int64(len(r.events)) {
		return false
	}
	r.seen = max(r.seen, seen)
	if seen != int64(len(r.events)) {
		return false
	}
	r.parked = true
	return true
}

// invalid returns the kind of error with which the core must refuse a turn; empty if it must apply
// the turn.
func (n *naive) invalid(r *naiveRun, t *model.Turn) string {
	if !r.open() {
		return "conflict"
	}
	if t.Seen < 0 || t.Seen > int64(len(r.events)) || t.Ahead > len(t.Commands) {
		return "invalid"
	}
	if len(t.Commands) > 0 && t.Close == nil && int64(len(r.events)+1+len(t.Commands)) > n.lim.Events {
		return "exhausted"
	}

	open := map[string]bool{}
	for id := range r.timers {
		open[id] = true
	}
	if t.Close != nil && t.Close.Status == model.Terminated {
		return "invalid"
	}

	var taken, answered []int64
	for _, c := range t.Commands {
		switch c.Kind {
		case model.CommandRecord:
			if c.Event.Kind == model.EventSignalTaken {
				has := slices.ContainsFunc(r.pendingSignals(), func(e model.Event) bool { return e.Seq == c.Event.Ref })
				if !has || slices.Contains(taken, c.Event.Ref) {
					return "invalid"
				}
				taken = append(taken, c.Event.Ref)
			}
		case model.CommandAnswer:
			has := slices.ContainsFunc(r.updates(), func(e model.Event) bool { return e.Seq == c.Event.Ref })
			if !has || slices.Contains(answered, c.Event.Ref) {
				return "invalid"
			}
			answered = append(answered, c.Event.Ref)
		case model.CommandStartTimer:
			open[c.Event.ID] = true
		case model.CommandStopTimer, model.CommandWithdraw:
			delete(open, c.Event.ID)
		default:
		}
	}

	if len(open) > n.lim.Timers {
		return "exhausted"
	}
	return ""
}

func (n *naive) turn(t *model.Turn, now model.Time, fresh model.RunID) (x expected) {
	r := n.current()
	if x.refused = n.invalid(r, t); x.refused != "" {
		return x
	}
	commands, end := t.Commands, t.Close
	if t.Ahead > 0 && t.Seen < int64(len(r.events)) {
		commands, end, x.Diverged = t.Commands[:t.Ahead], nil, true
	}
	r.seen = max(r.seen, t.Seen)

	if t.Blocked != nil {
		if why := fmt.Sprint(*t.Blocked); why != r.blocked {
			r.blocked, r.parked = why, r.withheld()
		}
		return x
	}

	if r.blocked != "" {
		r.blocked, r.parked = "", r.withheld()
	}

	before := maps.Clone(r.timers)
	for i := range commands {
		n.command(&x, r, &commands[i], now)
		for id := range r.timers {
			if due, ok := before[id]; ok {
				r.timers[id] = due // stopped and started again in one turn: unchanged
			}
		}
	}

	if end != nil {
		n.end(&x, r, t, now, fresh)
	}
	return x
}

func (n *naive) command(x *expected, r *naiveRun, c *model.Command, now model.Time) {
	e := c.Event
	self := model.Link{Address: r.start.Address, Run: r.start.Run, ID: e.ID}
	stopRetry := func() {
		for id := range r.timers {
			if strings.HasPrefix(id, "retry\x1f") && strings.HasSuffix(id, "\x1f"+e.ID) {
				delete(r.timers, id)
			}
		}
	}

	child := func() (c model.Event, ok bool) {
		open := r.children()
		i := slices.IndexFunc(open, func(c model.Event) bool { return c.ID == e.ID })
		if i < 0 {
			return c, false
		}
		return open[i], true
	}

	switch c.Kind {
	case model.CommandSchedule, model.CommandLock, model.CommandUnlock:
		// Other tests check tasks and sections: see task_test.go and town_test.go.
	case model.CommandRecord:
		if e.Kind != model.EventSignalTaken && e.Kind != model.EventNoted {
			stopRetry()
		}
		r.add(x, now, e)
	case model.CommandRetry:
		stopRetry()
		e.Kind, e.Due = model.EventAttemptFailed, now.Add(max(0, c.Delay))
		r.add(x, now, e)
		r.timers[fmt.Sprintf("retry\x1f%d\x1f%s", e.Attempt, e.ID)] = e.Due
	case model.CommandStartTimer:
		_, open := r.timers[e.ID]
		firedUnseen := r.count(func(f *model.Event) bool { return f.Kind == model.EventTimerFired && f.ID == e.ID && f.Seq > r.seen })
		if !open && firedUnseen == 0 {
			r.timers[e.ID] = e.Due
			if after := now.Add(c.Delay); c.Delay != 0 && (e.Due == 0 || after < e.Due) {
				r.timers[e.ID] = after
			}
		}
	case model.CommandStopTimer:
		delete(r.timers, e.ID)
	case model.CommandWithdraw:
		delete(r.timers, e.ID)
		stopRetry()
		if c, ok := child(); ok && c.Policy == model.CancelChild {
			x.Messages = append(x.Messages, n.cancelOf(r, c))
		}
		e.Kind = model.EventWithdrawn
		r.add(x, now, e)
	case model.CommandStartChild:
		if _, ok := child(); ok {
			return
		}
		e.Kind = model.EventChildStarted
		r.add(x, now, e)
		x.Messages = append(x.Messages, model.Message{Kind: model.MessageStart, To: e.Target, Input: e.Input, Reuse: c.Reuse, Policy: e.Policy, Labels: c.Labels, From: self, Terms: c.Terms})
	case model.CommandWatch:
		if _, ok := child(); ok {
			return
		}
		e.Kind, e.Policy = model.EventChildStarted, model.AbandonChild
		r.add(x, now, e)
		x.Messages = append(x.Messages, model.Message{Kind: model.MessageWatch, To: e.Target, ToRun: e.Run, From: self})
	case model.CommandAnswer:
		pending := r.updates()
		u := pending[slices.IndexFunc(pending, func(u model.Event) bool { return u.Seq == e.Ref })]
		e.Kind = model.EventUpdateAnswered
		r.add(x, now, e)
		n.tell(x, r, u, model.Answer{Status: model.Running, Output: e.Output, Failure: e.Failure})
	case model.CommandSend:
		m := *c.Message
		m.From = self
		e.Kind = model.EventSent
		r.add(x, now, e)
		x.Messages = append(x.Messages, m)
	}
}

func (n *naive) cancelOf(r *naiveRun, c model.Event) model.Message {
	return model.Message{Kind: model.MessageCancel, To: c.Target, From: model.Link{Address: r.start.Address, Run: r.start.Run}}
}

// tell answers an update.
func (n *naive) tell(x *expected, r *naiveRun, u model.Event, a model.Answer) {
	if w := u.Waiter(); w.ID != "" {
		x.Messages = append(x.Messages, model.Message{Kind: model.MessageAnswer, To: w.Address, ToRun: w.Run, ID: w.ID, Input: a.Output, Failure: a.Failure})
	}
	if u.RequestID != "" {
		a.Run = r.start.Run
		x.Replies = append(x.Replies, core.Reply{RequestID: u.RequestID, Answer: a})
	}
}

// end ends a run as a turn says.
//
//arch:parameters the model takes the same values as the core
func (n *naive) end(x *expected, r *naiveRun, t *model.Turn, now model.Time, fresh model.RunID) {
	o := model.Outcome{Status: t.Close.Status, Output: t.Close.Output, Failure: t.Close.Failure, At: max(now, r.last()), Seen: t.Seen}
	begins, repeats := r.nextAttempt(t.Close, o.At)
	if repeats {
		o.Status = model.Continued
	}
	if o.Status == model.Continued {
		o.Next = fresh
	}
	waits := r.isPaused()
	n.close(x, r, o, t.Close.Begun)
	if o.Status != model.Continued {
		return
	}

	s := n.next(x, r, t, o.At, fresh, waits)
	if repeats {
		s.Input, s.Begins, s.Attempt = r.start.Input, begins, max(r.start.Attempt, 1)+1
		s.Cause = &model.Failure{Kind: o.Failure.Kind, Message: o.Failure.Message, Permanent: o.Failure.Permanent}
	}

	n.begin(x, s)
}

func (n *naive) close(x *expected, r *naiveRun, o model.Outcome, begun []int64) {
	for _, c := range r.children() {
		if c.Policy == model.CancelChild {
			x.Messages = append(x.Messages, n.cancelOf(r, c))
		}
	}

	for _, u := range r.updates() {
		if o.Status != model.Continued || slices.Contains(begun, u.Seq) {
			n.tell(x, r, u, model.Answer{Status: o.Status, Failure: &model.Failure{Kind: model.FailureConflict}})
		}
	}

	if o.Status != model.Continued {
		self := model.Link{Address: r.start.Address, Run: r.start.Run}
		who := r.watchers()
		if r.start.Parent.ID != "" {
			who = append(who, r.start.Parent)
		}
		for _, l := range who {
			x.Messages = append(x.Messages, model.Message{
				Kind: model.MessageClosed, To: l.Address, ToRun: l.Run, ID: l.ID, From: self, Status: o.Status, Input: o.Output, Failure: o.Failure,
			})
		}
	}

	clear(r.timers)
	r.status, r.parked, r.blocked, r.outcome = o.Status, false, "", o
	x.Close = &o
}

// next returns the start of the next run, after a run that continues as new or is repeated.
//
//arch:parameters the model takes the same values as the core
func (n *naive) next(x *expected, r *naiveRun, t *model.Turn, at model.Time, fresh model.RunID, paused bool) model.Start {
	s := model.Start{
		Address: r.start.Address, Run: fresh, At: at, Input: t.Close.Input, RequestID: r.start.RequestID, Parent: r.start.Parent,
		OnParentClose: r.start.OnParentClose, First: r.start.First, Previous: r.start.Run, Origin: r.start.Origin, Labels: r.labels(),
		Terms: r.start.Terms, Expires: r.start.Expires,
	}
	if s.First == (model.RunID{}) {
		s.First, s.Origin = r.start.Run, r.start.Input.Digest()
	}

	for _, e := range r.states() {
		e.ID = ""
		s.Carried = append(s.Carried, e)
	}

	signals, updates := r.pendingSignals(), r.updates()
	for _, e := range r.events {
		waits := slices.ContainsFunc(signals, func(o model.Event) bool { return o.Seq == e.Seq }) ||
			slices.ContainsFunc(updates, func(o model.Event) bool { return o.Seq == e.Seq }) && !slices.Contains(t.Close.Begun, e.Seq) ||
			e.Kind == model.EventPromiseSettled && e.Seq > r.seen
		if waits {
			s.Carried = append(s.Carried, e)
		}
	}

	for _, w := range r.watchers() {
		s.Carried = append(s.Carried, model.Event{Kind: model.EventWatched, Watcher: w.Pointer()})
	}
	if paused {
		s.Carried = append(s.Carried, model.Event{Kind: model.EventPaused})
	}
	if r.cancel() > t.Seen {
		s.Carried = append(s.Carried, model.Event{Kind: model.EventCancelRequest})
	}
	for i := range s.Carried {
		s.Carried[i].Seq, s.Carried[i].At = int64(i+1), at
	}
	x.Replaces = r.start.Run

	return s
}
