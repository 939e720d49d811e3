package core_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/model"
)

// TestRandomInputs applies random inputs to a few executions that send messages to each other, and
// compares every decision with that of the naive model. After every input the world checks I1, I2,
// I3, I4, I8, I10 and I14. The test reads the histories to check I4, I5, I6, I7, I12 and I13. A
// book of all messages and answers checks I11 and I12. In the end the test delivers all mail. A
// step or a client that still waits after that must have a reason to wait.
func TestRandomInputs(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(t *rapid.T) {
		p := newPlay(t)
		actions := map[string]func(*rapid.T){
			"":        func(t *rapid.T) { p.w.fatal = t.Fatalf; p.checkHistories(t); p.book.check(t) },
			"clock":   p.clock,
			"start":   p.start,
			"signal":  p.signal,
			"client":  p.client,
			"update":  p.update,
			"operate": p.operate,
			"turn":    p.turn,
			"turn2":   p.turn, // turns are twice as frequent as other inputs
			"fire":    p.fire,
			"release": p.release,
			"mail":    p.mail,
			"mail2":   p.mail,
			"crash":   p.crash,
		}
		for range 3 {
			t.Repeat(actions)
		}
		for len(p.w.mail) > 0 {
			p.mail(t)
		}
		p.checkHistories(t)
		p.book.check(t)
		p.checkSettled(t)
	})
}

type play struct {
	w       *world
	models  map[model.Address]*naive
	next    int // the next number for a signal or an attempt
	retries int
	accept  []accepted
	book    *book
}

// accepted is a signal that an execution has accepted. The test keeps them in the order of
// acceptance.
type accepted struct {
	to    model.Address
	value string
}

func newPlay(t *rapid.T) *play {
	p := &play{w: newWorld(t.Fatalf), models: map[model.Address]*naive{}}
	p.book = newBook(p.w)
	p.w.lim = core.Limits{
		Events: rapid.Int64Range(8, 60).Draw(t, "events"), Signals: rapid.IntRange(1, 6).Draw(t, "signals"), Timers: rapid.IntRange(1, 4).Draw(t, "timers"),
	}
	return p
}

func pick[T any](t *rapid.T, what string, from ...T) T { return rapid.SampledFrom(from).Draw(t, what) }

func (p *play) model(a model.Address) *naive {
	if p.models[a] == nil {
		p.models[a] = &naive{lim: p.w.lim}
	}
	return p.models[a]
}

func (p *play) key(t *rapid.T) model.Address { return address(pick(t, "key", "a", "b", "c")) }

// startedAddress returns an address that has a run.
func (p *play) startedAddress(t *rapid.T) model.Address {
	var keys []model.Address
	for _, k := range []string{"a", "b", "c"} {
		if p.w.seat(address(k)).x != nil {
			keys = append(keys, address(k))
		}
	}
	if len(keys) == 0 {
		t.Skip("nothing has begun")
	}
	return pick(t, "key", keys...)
}

func (p *play) clock(t *rapid.T) {
	p.w.now = p.w.now.Add(time.Duration(rapid.IntRange(-5, 20).Draw(t, "seconds")) * time.Second)
}

func (p *play) number() string {
	p.next++
	return fmt.Sprint(p.next)
}

func (p *play) start(t *rapid.T) {
	m := &model.Message{
		Kind: model.MessageStart, To: p.key(t), Input: value(pick(t, "input", "", "1", "2")), Reuse: model.ReusePolicy(rapid.IntRange(0, 2).Draw(t, "reuse")),
		RequestID: pick(t, "request", "", "", "r1", "r2"),
	}
	m.Labels, m.Terms = p.labels(t), p.terms(t)
	for range pick(t, "with", 0, 0, 0, 1, 2, 7) {
		m.With = append(m.With, model.Event{Name: pick(t, "name", "x", "y"), Input: value(p.number())})
	}
	p.deliver(t, m)
}

func (p *play) labels(t *rapid.T) (labels []model.Label) {
	for range pick(t, "labels", 0, 0, 1, 2) {
		labels = model.SetLabel(labels, pick(t, "label", "a", "b", "c"), pick(t, "value", "1", "2"))
	}
	return labels
}

func (p *play) signal(t *rapid.T) {
	m := &model.Message{Kind: model.MessageSignal, To: p.key(t), Name: pick(t, "name", "x", "y"), Input: value(p.number())}
	p.deliver(t, m)
}

// client sends something other than a start or a signal.
func (p *play) client(t *rapid.T) {
	m := &model.Message{To: p.key(t)}
	m.Kind = pick(t, "kind", model.MessageSettle, model.MessageCancel, model.MessageWatch, model.MessageNothing, model.MessageClosed, model.MessageAnswer)
	switch m.Kind {
	case model.MessageSettle:
		m.Name, m.Input = pick(t, "promise", "p", "q"), value(p.number())
	case model.MessageCancel:
		m.Failure = &model.Failure{Kind: model.FailureCanceled, Message: "client"}
	// No execution sent this message: it is late, or meant for an earlier run.
	case model.MessageClosed:
		m.ID, m.Status, m.From = pick(t, "step", "c1", "c2", "nobody"), model.Completed, model.Link{Address: address("z")}
	case model.MessageAnswer: // an answer to a step that never sent anything
		m.ID = pick(t, "step", "c1", "s1", "nobody")
	default:
	}

	p.toRun(t, m)
	if m.Kind == model.MessageWatch && rapid.Bool().Draw(t, "step") {
		m.From = model.Link{Address: address("z"), Run: runID(999), ID: pick(t, "watcher", "w1", "w2")}
	}
	p.deliver(t, m)
}

// toRun restricts a message to one run, now and then.
func (p *play) toRun(t *rapid.T, m *model.Message) {
	if rapid.IntRange(0, 3).Draw(t, "to_run") == 0 {
		m.ToRun = runID(rapid.IntRange(1, p.w.runs+1).Draw(t, "run"))
	}
}

// mail delivers a message that an execution sent. It draws a sender and a receiver, and delivers
// the next message between them.
func (p *play) mail(t *rapid.T) {
	var heads []int
	seen := map[string]bool{}
	for i, m := range p.w.mail {
		if k := m.From.Address.Key + " " + m.To.Key; !seen[k] {
			seen[k] = true
			heads = append(heads, i)
		}
	}
	if len(heads) == 0 {
		t.Skip("no mail")
	}
	i := pick(t, "message", heads...)
	m := p.w.mail[i]
	p.w.mail = slices.Delete(slices.Clone(p.w.mail), i, i+1)
	p.deliver(t, &m)
}

func (p *play) deliver(t *rapid.T, m *model.Message) {
	want := p.model(m.To).deliver(m, p.w.now, p.w.fresh())
	sent := len(p.w.mail)
	d := p.w.deliver(m)
	p.compare(t, m.To, &want, &d, refusal(d.Refusal()))
	if len(p.w.mail)-sent != len(want.Messages) {
		t.Fatalf("%d messages left, want %d", len(p.w.mail)-sent, len(want.Messages))
	}

	if d.Answer.Existing != want.Answer.Existing {
		t.Fatalf("existing is %v, want %v", d.Answer.Existing, want.Answer.Existing)
	}
	if x := p.w.seat(m.To).x; d.Refusal() == nil && x != nil && d.Answer.Run != x.Start.Run && m.ToRun.IsZero() {
		t.Fatalf("the answer names %s, current is %s", name(d.Answer.Run), name(x.Start.Run))
	}
	p.book.recordDelivery(t, m, &d)
	for _, e := range d.Events {
		p.checkAccepted(m.To, e)
	}

	if d.Start != nil {
		for _, e := range d.Start.Carried {
			p.checkAccepted(m.To, e)
		}
	}
}

func (p *play) checkAccepted(a model.Address, e model.Event) {
	if e.Kind == model.EventSignalReceived {
		p.accept = append(p.accept, accepted{a, string(e.Input.Data)})
	}
}

func (p *play) fire(t *rapid.T) {
	a := p.startedAddress(t)
	ids := []string{"t1", "t2", "d1", "ghost"}
	for _, tm := range p.w.seat(a).x.Timers() {
		ids = append(ids, tm.ID)
	}
	slices.Sort(ids)
	id := pick(t, "timer", ids...)
	want := p.model(a).fire(id, p.w.now)
	d := p.w.fire(a, id)
	p.compare(t, a, &want, &d, "")
	p.book.recordDecision(t, a, &d)
}

func (p *play) lastSeen(t *rapid.T, x *core.Execution) int64 {
	switch rapid.IntRange(0, 9).Draw(t, "seen") {
	case 0:
		return rapid.Int64Range(-1, x.Next).Draw(t, "at")
	case 1, 2:
		return rapid.Int64Range(0, max(0, x.Next-1)).Draw(t, "at")
	default:
		return x.Next - 1
	}
}

func (p *play) release(t *rapid.T) {
	a := p.startedAddress(t)
	seen := p.lastSeen(t, p.w.seat(a).x)
	want := p.model(a).release(seen)
	d, ok := p.w.release(a, seen, []model.Reason{{Code: model.WaitNothing}})
	if ok != want {
		t.Fatalf("released is %v, want %v", ok, want)
	}
	p.compare(t, a, &expected{}, &d, "")
}

// crash lets another node take the run over from the store. What was only in memory is lost.
func (p *play) crash(t *rapid.T) {
	a := p.startedAddress(t)
	p.w.crash(a)
	p.model(a).current().seen = 0
	clear(p.model(a).current().rung)
}

func (p *play) turn(t *rapid.T) {
	a := p.startedAddress(t)
	x := p.w.seat(a).x
	turn := &model.Turn{Run: x.Start.Run, Seen: p.lastSeen(t, x)}
	for range rapid.IntRange(0, 4).Draw(t, "commands") {
		turn.Commands = append(turn.Commands, p.command(t, x))
	}

	switch rapid.IntRange(0, 11).Draw(t, "end") {
	case 0:
		turn.Close = &model.Close{Status: pick(t, "status", model.Completed, model.Failed, model.Canceled, model.Terminated), Output: value(p.number())}
		if turn.Close.Status == model.Failed {
			turn.Close.Output = model.Payload{}
			turn.Close.Begun = p.begunUpdates(t, x)
			p.failure(t, turn.Close)
		}
	case 1, 2:
		turn.Close = &model.Close{Status: model.Continued, Input: value(pick(t, "input", "", "1", "2")), Begun: p.begunUpdates(t, x)}
	case 3:
		turn.Blocked = &model.Reason{Code: model.WaitMismatch, Detail: pick(t, "why", "x", "y")}
	}

	if rapid.IntRange(0, 2).Draw(t, "ahead?") == 0 {
		turn.Ahead = rapid.IntRange(0, len(turn.Commands)).Draw(t, "ahead")
	}
	want := p.model(a).turn(turn, p.w.now, p.w.fresh())
	d, err := p.w.turn(a, turn)
	p.compare(t, a, &want, &d, refusal(err))
	p.book.recordTurn(t, a, turn, &d)
}

func (p *play) command(t *rapid.T, x *core.Execution) model.Command {
	has := core.FactsOf(x)
	// The turn takes a signal or answers an update that does not exist, so the core must refuse the
	// whole turn.
	wrong := rapid.IntRange(0, 19).Draw(t, "wrong") == 0
	kinds := []model.CommandKind{
		model.CommandRecord, model.CommandRecord, model.CommandRetry, model.CommandStartTimer, model.CommandStartTimer, model.CommandStopTimer,
		model.CommandWithdraw, model.CommandStartChild, model.CommandWatch, model.CommandSend, model.CommandSend,
	}

	if wrong || len(has.Updates) > 0 {
		kinds = append(kinds, model.CommandAnswer, model.CommandAnswer)
	}
	c := model.Command{Kind: pick(t, "command", kinds...)}
	e := &c.Event

	switch c.Kind {
	case model.CommandSchedule, model.CommandLock, model.CommandUnlock:
		// See task_test.go and locks_test.go.
	case model.CommandRecord:
		facts := []model.EventKind{model.EventStepCompleted, model.EventStepFailed, model.EventStateSet, model.EventStateSet, model.EventPinned, model.EventLabeled, model.EventNoted}
		if wrong || len(has.Signals) > 0 {
			facts = append(facts, model.EventSignalTaken, model.EventSignalTaken)
		}
		e.Kind, e.ID = pick(t, "event", facts...), pick(t, "step", "s1", "s2")
		switch e.Kind {
		case model.EventSignalTaken:
			e.Ref = 99
			if !wrong {
				e.Ref = pick(t, "signal", has.Signals...)
			}
		case model.EventStateSet:
			e.Name, e.Output = pick(t, "state", "u", "v", "w"), value(pick(t, "value", "", p.number()))
		case model.EventPinned:
			e.Name = pick(t, "version", "v1", "v2")
		case model.EventNoted:
			e.Name, e.Input = pick(t, "note", "n1", "n2"), value(p.number())
		case model.EventLabeled:
			e.Name, e.Output = pick(t, "label", "a", "b", "c"), model.TextPayload(pick(t, "value", "", "1", "2"))
		default:
		}
	case model.CommandRetry:
		p.retries++
		e.ID, e.Attempt, c.Delay = pick(t, "step", "s1", "s2"), p.retries, time.Duration(rapid.IntRange(-1, 10).Draw(t, "delay"))*time.Second
	case model.CommandStartTimer:
		e.ID, e.Due = pick(t, "timer", "t1", "t2", "d1", "d2", "d3"), p.w.now.Add(time.Duration(rapid.IntRange(0, 15).Draw(t, "due"))*time.Second)
		c.Delay = time.Duration(rapid.IntRange(0, 10).Draw(t, "delay")) * time.Second
		if c.Delay > 0 && rapid.Bool().Draw(t, "no due time") {
			e.Due = 0
		}
	case model.CommandStopTimer:
		e.ID = pick(t, "timer", "t1", "t2", "d1", "d2", "d3")
	case model.CommandWithdraw:
		e.ID = pick(t, "id", append(has.Calls, "t1", "s1", "s2", "c1", "c2", "w1")...)
	case model.CommandStartChild:
		e.ID, e.Target, e.Input, e.Policy = pick(t, "child", "c1", "c2"), p.key(t), value(pick(t, "input", "", "1")), model.ParentClosePolicy(rapid.IntRange(0, 1).Draw(t, "policy"))
		c.Reuse, c.Labels, c.Terms = model.ReusePolicy(rapid.IntRange(0, 2).Draw(t, "reuse")), p.labels(t), p.terms(t)
	case model.CommandWatch:
		e.ID, e.Target = pick(t, "watch", "w1", "w2"), p.key(t)
		if rapid.Bool().Draw(t, "run") {
			e.Run = runID(rapid.IntRange(1, p.w.runs+1).Draw(t, "which"))
		}
	case model.CommandSend:
		e.ID, e.Target = "m"+p.number(), p.key(t)
		c.Message = p.sentMessage(t, e.Target)
	case model.CommandAnswer:
		e.ID, e.Ref = "a"+p.number(), 99
		if !wrong {
			e.Ref = pick(t, "update", has.Updates...)
		}
		if rapid.IntRange(0, 3).Draw(t, "fails") == 0 {
			e.Failure = &model.Failure{Kind: codeFailure, Message: p.number()}
		} else {
			e.Output = value(p.number())
		}
	}

	return c
}

// compare checks that the core decided as the naive model did, and left the same state.
//
//arch:parameters it compares two decisions and what was refused
func (p *play) compare(t *rapid.T, a model.Address, want *expected, got *core.Decision, refused string) {
	if refused != want.refused {
		t.Fatalf("refused as %q, want %q", refused, want.refused)
	}
	if g, w := facts(a, got), facts(a, &want.Decision); g != w {
		t.Fatalf("decided:\n%swant:\n%s", g, w)
	}
	r, x := p.model(a).current(), p.w.seat(a).x
	if (r == nil) != (x == nil) {
		t.Fatalf("there is a run: %v, want %v", x != nil, r != nil)
	}

	if r == nil || !r.open() {
		if x != nil && x.Open() {
			t.Fatal("the run is open, want closed")
		}
		return
	}

	timers := map[string]model.Time{}
	for _, tm := range x.Timers() {
		timers[tm.ID] = tm.Due
	}
	if !maps.Equal(timers, r.timers) {
		t.Fatalf("timers %v, want %v", timers, r.timers)
	}

	if s, w := &x.Start, &r.start; s.Begins != w.Begins || s.Expires != w.Expires || s.Attempt != w.Attempt || fmt.Sprint(s.Terms) != fmt.Sprint(w.Terms) || fmt.Sprint(s.Cause) != fmt.Sprint(w.Cause) {
		t.Fatalf("started as %+v, want %+v", s, w)
	}
	if x.Pin != r.pin() || (x.Paused != nil) != r.isPaused() {
		t.Fatalf("pinned to %q, paused %v, want %q, %v", x.Pin, x.Paused != nil, r.pin(), r.isPaused())
	}
	if f := core.FactsOf(x); !slices.Equal(f.Calls, r.calls()) || len(f.Updates) != len(r.updates()) || len(f.States) != len(r.states()) {
		t.Fatalf("calls %v, updates %v, states %v, want %v, %v, %v", f.Calls, f.Updates, f.States, r.calls(), r.updates(), r.states())
	}

	if !slices.Equal(x.Labels(), r.labels()) {
		t.Fatalf("labels %v, want %v", x.Labels(), r.labels())
	}
	blocked := ""
	if x.Blocked != nil {
		blocked = fmt.Sprint(*x.Blocked)
	}
	if x.Parked != r.parked || blocked != r.blocked {
		t.Fatalf("parked %v, blocked %q, want %v, %q", x.Parked, blocked, r.parked, r.blocked)
	}
}

// facts describes a decision. It leaves out marks and timers, because the test compares those as
// state, and it leaves out the texts of failures.
func facts(a model.Address, d *core.Decision) string {
	c := *d
	c.StartTimers, c.StopTimers, c.StopAll, c.Mark = nil, nil, false, nil
	c.Messages = slices.Clone(c.Messages)

	for i := range c.Messages {
		m := &c.Messages[i]
		if m.Failure != nil && (m.Kind == model.MessageCancel && m.From.ID == "" || m.Kind == model.MessageClosed && m.From.Run.IsZero()) {
			m.Failure = nil
		}
		if m.Kind == model.MessageAnswer {
			m.Failure = kindOnly(m.Failure)
		}
	}

	c.Replies = slices.Clone(c.Replies)
	for i := range c.Replies {
		c.Replies[i].Answer.Failure = kindOnly(c.Replies[i].Answer.Failure)
	}

	if c.Start != nil {
		s := *c.Start
		s.Carried = slices.Clone(s.Carried)
		for i := range s.Carried {
			s.Carried[i].Failure = nil
		}
		c.Start = &s
	}

	return decisionText(a, &c)
}

// kindOnly removes the text of a failure if the core has written it. A text of the code must arrive
// unchanged.
func kindOnly(f *model.Failure) *model.Failure {
	if f == nil || f.Kind == codeFailure {
		return f
	}
	return &model.Failure{Kind: f.Kind}
}

// checkHistories checks what can be read from all histories together.
func (p *play) checkHistories(t *rapid.T) {
	for _, a := range slices.SortedFunc(maps.Keys(p.w.seats), func(x, y model.Address) int { return strings.Compare(x.Key, y.Key) }) {
		var left []string // accepted signals, in order, as the histories of the address have them
		var all []string
		var before *stored
		for i, r := range p.w.seats[a].runs {
			p.history(t, r)
			for j, e := range r.all() {
				if e.Kind == model.EventSignalReceived && !(r.carriedOver() && j < len(r.start.Carried)) {
					all = append(all, string(e.Input.Data))
				}
			}

			if r.carriedOver() {
				if got := signalsOf(r.start.Carried); !slices.Equal(got, left) {
					t.Fatalf("I7: %s carries the signals %v, the run before left %v", name(r.start.Run), got, left)
				}
			}

			if r.carriedOver() {
				p.checkCarried(t, before, r)
			}
			left, before = r.untaken(), r
			if i < len(p.w.seats[a].runs)-1 && !r.outcome.Status.Closed() {
				t.Fatalf("%s is open and not the last one", name(r.start.Run))
			}
		}

		var want []string
		for _, s := range p.accept {
			if s.to == a {
				want = append(want, s.value)
			}
		}

		if !slices.Equal(all, want) {
			t.Fatalf("I7: accepted %v, in the histories %v", want, all)
		}
	}
}

func (r *stored) carriedOver() bool { return !r.start.Previous.IsZero() }

func signalsOf(events []model.Event) (values []string) {
	for _, e := range events {
		if e.Kind == model.EventSignalReceived {
			values = append(values, string(e.Input.Data))
		}
	}
	return values
}

func (r *stored) untaken() (values []string) {
	taken := map[int64]bool{}
	for _, e := range r.all() {
		if e.Kind == model.EventSignalTaken {
			taken[e.Ref] = true
		}
	}
	for _, e := range r.all() {
		if e.Kind == model.EventSignalReceived && !taken[e.Seq] {
			values = append(values, string(e.Input.Data))
		}
	}
	return values
}

// history checks one run.
func (p *play) history(t *rapid.T, r *stored) {
	p.talk(t, r)
	taken, settled := map[int64]int{}, map[string]int{}
	open := map[string]bool{} // open children

	cancels := 0
	for i, e := range r.all() {
		if e.Seq != int64(i+1) {
			t.Fatalf("I1: %s has event %d at position %d", name(r.start.Run), e.Seq, i+1)
		}

		switch e.Kind {
		case model.EventSignalTaken:
			if taken[e.Ref]++; taken[e.Ref] > 1 || e.Ref >= e.Seq {
				t.Fatalf("I7: signal %d was taken %d times, last at %d", e.Ref, taken[e.Ref], e.Seq)
			}
		case model.EventPromiseSettled:
			if settled[e.Name]++; settled[e.Name] > 1 {
				t.Fatalf("I6: promise %s was settled %d times", e.Name, settled[e.Name])
			}
		case model.EventTimerFired:
			if e.Due > e.At {
				t.Fatalf("I4: timer %s was due at %s and fired at %s", e.ID, since(e.Due), since(e.At))
			}
		case model.EventChildStarted:
			if open[e.ID] {
				t.Fatalf("I5: child %s was asked for twice", e.ID)
			}
			open[e.ID] = true
		case model.EventChildClosed:
			if !open[e.ID] {
				t.Fatalf("I5: the outcome of child %s was recorded although no step waits", e.ID)
			}
			open[e.ID] = false
		case model.EventWithdrawn:
			open[e.ID] = false
		case model.EventCancelRequest:
			if cancels++; cancels > 1 {
				t.Fatalf("%s was cancelled twice", name(r.start.Run))
			}
		default:
		}
	}
}
