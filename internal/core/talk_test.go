package core_test

import (
	"maps"
	"slices"

	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/model"
)

// This file has the inputs of the property tests that concern updates, answers, state, pause and
// terminate.

// codeFailure is the kind of the failures that the code of a workflow answers with.
const codeFailure = "code"

// update lets a client send an update. It uses few request ids, so that ids repeat.
func (p *play) update(t *rapid.T) {
	m := &model.Message{
		Kind: model.MessageUpdate, To: p.key(t), Name: pick(t, "name", "x", "y"), Input: value(pick(t, "input", "1", "1", "2")), RequestID: pick(t, "request", "", "u1", "u2", "u3"),
	}
	p.toRun(t, m)
	p.deliver(t, m)
}

// operate lets an operator intervene.
func (p *play) operate(t *rapid.T) {
	m := &model.Message{To: p.key(t), RequestID: pick(t, "request", "", "o1")}
	m.Kind = pick(t, "kind", model.MessagePause, model.MessagePause, model.MessageResume, model.MessageResume, model.MessageTerminate)
	if m.Kind != model.MessageResume && rapid.Bool().Draw(t, "why") {
		m.Failure = &model.Failure{Message: pick(t, "reason", "broken", "too slow")}
	}
	p.toRun(t, m)
	p.deliver(t, m)
}

// sentMessage returns a message of a workflow to another, or to itself.
func (p *play) sentMessage(t *rapid.T, to model.Address) *model.Message {
	return &model.Message{
		Kind: pick(t, "kind", model.MessageSignal, model.MessageSettle, model.MessageCancel, model.MessageUpdate, model.MessageUpdate, model.MessageUpdate,
			model.MessagePause, model.MessageResume, model.MessageTerminate),
		To: to, Name: pick(t, "name", "x", "y"), Input: value(p.number()),
	}
}

// begunUpdates draws the updates that a run has begun when it continues as new. Now and then it
// adds an update that the run does not have.
func (p *play) begunUpdates(t *rapid.T, x *core.Execution) (begun []int64) {
	for _, seq := range append(core.FactsOf(x).Updates, 99) {
		if rapid.IntRange(0, 2).Draw(t, "begun") == 0 {
			begun = append(begun, seq)
		}
	}
	return begun
}

// book records what was sent and answered, independently of the executions.
type book struct {
	w     *world
	calls map[model.Link]*call    // messages of steps, by the step
	asked map[asked]*account      // updates of clients, by their request
	begun map[model.RunID][]int64 // updates that the code had begun when it continued as new
}

type call struct {
	to        model.Address
	kind      model.MessageKind
	delivered bool
	answers   int
}

type asked struct {
	to      model.Address
	request string
}

type account struct{ accepted, replies int }

func newBook(w *world) *book {
	return &book{w: w, calls: map[model.Link]*call{}, asked: map[asked]*account{}, begun: map[model.RunID][]int64{}}
}

func (b *book) account(a model.Address, request string) *account {
	k := asked{a, request}
	if b.asked[k] == nil {
		b.asked[k] = &account{}
	}
	return b.asked[k]
}

// recordDelivery records the result of a message.
func (b *book) recordDelivery(t *rapid.T, m *model.Message, d *core.Decision) {
	if c := b.calls[m.From]; c != nil && c.kind == m.Kind {
		c.delivered = true
	}
	for _, e := range d.Events {
		if e.Kind == model.EventUpdateReceived && e.RequestID != "" {
			b.account(m.To, e.RequestID).accepted++
		}
	}
	b.recordDecision(t, m.To, d)
}

// recordTurn records what the code sent and answered.
func (b *book) recordTurn(t *rapid.T, a model.Address, turn *model.Turn, d *core.Decision) {
	for _, m := range d.Messages {
		if m.From.ID != "" && m.Kind != model.MessageStart && m.Kind != model.MessageWatch {
			b.calls[m.From] = &call{to: m.To, kind: m.Kind}
		}
	}
	if d.Close != nil {
		b.begun[turn.Run] = turn.Close.Begun
	}
	b.recordDecision(t, a, d)
}

func (b *book) recordDecision(t *rapid.T, a model.Address, d *core.Decision) {
	for _, m := range d.Messages {
		if m.Kind != model.MessageAnswer {
			continue
		}
		c := b.calls[model.Link{Address: m.To, Run: m.ToRun, ID: m.ID}]
		if c == nil {
			t.Fatalf("I11: no request was sent that this answers: %s", messageText(&m))
		}
		if c.answers++; c.answers > 1 {
			t.Fatalf("I11: answered twice: %s", messageText(&m))
		}
	}

	for _, r := range d.Replies {
		b.account(a, r.RequestID).replies++
	}
	if d.Close != nil && d.Close.Status != model.Continued {
		b.checkClosed(t, a, d)
	}
}

// checkClosed checks that every step that waits for the outcome gets it once (I8).
func (b *book) checkClosed(t *rapid.T, a model.Address, d *core.Decision) {
	r := b.w.seat(a).last()
	want, told := map[model.Link]int{}, map[model.Link]int{}
	for _, e := range r.all() {
		if e.Kind == model.EventWatched {
			want[e.Waiter()] = 1
		}
	}

	if r.start.Parent.ID != "" {
		want[r.start.Parent] = 1
	}

	for _, m := range d.Messages {
		if m.Kind == model.MessageClosed {
			told[model.Link{Address: m.To, Run: m.ToRun, ID: m.ID}]++
		}
	}

	if !maps.Equal(want, told) {
		t.Fatalf("I8: the end of %s is told to %v, want %v", name(r.start.Run), told, want)
	}
	if d.Close.Status == model.Terminated || d.Close.TimedOut() {
		b.checkTerminated(t, r, d)
	}
}

// checkTerminated checks that the children of a terminated run are cancelled, unless their policy
// lets them outlive it (I8).
func (b *book) checkTerminated(t *rapid.T, r *stored, d *core.Decision) {
	open := map[string]model.Address{}
	for _, e := range r.all() {
		switch {
		case e.Kind == model.EventChildStarted && e.Policy == model.CancelChild:
			open[e.ID] = e.Target
		case e.Kind == model.EventChildClosed, e.Kind == model.EventWithdrawn:
			delete(open, e.ID)
		}
	}

	want, told := map[model.Address]int{}, map[model.Address]int{}
	for _, to := range open {
		want[to]++
	}

	for _, m := range d.Messages {
		if m.Kind == model.MessageCancel {
			told[m.To]++
		}
	}

	if !maps.Equal(want, told) || len(r.timers) > 0 {
		t.Fatalf("I8: %s is terminated, cancels %v, want %v, and has %d timers", name(r.start.Run), told, want, len(r.timers))
	}
}

// check checks that everything that was delivered is answered, or is an update that an open run
// still holds (I11, I12).
func (b *book) check(t *rapid.T) {
	held := map[model.Link]int{}
	pending := map[asked]int{}
	for a, s := range b.w.seats {
		if s.x == nil || !s.x.Open() {
			continue
		}
		for _, u := range s.last().unansweredUpdates() {
			held[u.Waiter()]++
			pending[asked{a, u.RequestID}]++
		}
	}

	for from, c := range b.calls {
		switch waits := held[from]; {
		case waits+c.answers > 1, waits > 0 && c.kind != model.MessageUpdate:
			t.Fatalf("I11: %s, a %s to %s, has %d answers and is held %d times", linkText(from), c.kind, c.to.Key, c.answers, waits)
		case c.delivered != (waits+c.answers == 1):
			t.Fatalf("I11: %s, a %s to %s: delivered is %v, it has %d answers and is held %d times", linkText(from), c.kind, c.to.Key, c.delivered, c.answers, waits)
		}
	}

	for k, c := range b.asked {
		if n := pending[k]; n > 1 || c.accepted-c.replies != n {
			t.Fatalf("I12: request %s of %s was accepted %d times and answered %d times, and waits %d times", k.request, k.to.Key, c.accepted, c.replies, n)
		}
	}
}

// checkSettled checks what must hold when no mail is on its way: a sender that still waits for an
// answer waits for the code of an open run.
func (p *play) checkSettled(t *rapid.T) {
	for _, s := range p.w.seats {
		if s.x == nil || !s.x.Open() {
			continue
		}
		for _, id := range core.FactsOf(s.x).Calls {
			c := p.book.calls[model.Link{Address: s.x.Start.Address, Run: s.x.Start.Run, ID: id}]
			if !c.delivered || c.answers > 0 {
				t.Fatalf("I11: %s waits for the answer to its %s, which was answered %d times", id, c.kind, c.answers)
			}
		}
	}
}

// talk checks the answers in one history: each answer is there once, and belongs to a message or an
// update that waited for it.
func (p *play) talk(t *rapid.T, r *stored) {
	calls, updates := map[string]bool{}, map[int64]bool{}
	for _, e := range r.all() {
		switch e.Kind {
		case model.EventSent:
			calls[e.ID] = true
		case model.EventWithdrawn:
			delete(calls, e.ID)
		case model.EventAnswered:
			if !calls[e.ID] {
				t.Fatalf("I11: %s has an answer to %s, which waits for none", name(r.start.Run), e.ID)
			}
			delete(calls, e.ID)
		case model.EventUpdateReceived:
			updates[e.Seq] = true
		case model.EventUpdateAnswered:
			if !updates[e.Ref] {
				t.Fatalf("I12: %s has an answer to update #%d, which waits for none", name(r.start.Run), e.Ref)
			}
			delete(updates, e.Ref)
		default:
		}
	}
}

// checkCarried checks what a run takes over from the run before it.
func (p *play) checkCarried(t *rapid.T, before, r *stored) {
	var left, got []string
	for _, u := range before.unansweredUpdates() {
		if !slices.Contains(p.book.begun[before.start.Run], u.Seq) {
			left = append(left, string(u.Input.Data)+u.RequestID+linkText(u.Waiter()))
		}
	}

	for _, e := range r.start.Carried {
		if e.Kind == model.EventUpdateReceived {
			got = append(got, string(e.Input.Data)+e.RequestID+linkText(e.Waiter()))
		}
	}

	if !slices.Equal(got, left) {
		t.Fatalf("I12: %s carries the updates %v, the run before left %v", name(r.start.Run), got, left)
	}
	if got, want := values(r.start.Carried), values(before.all()); !maps.Equal(got, want) {
		t.Fatalf("I13: %s begins with %v, the run before had %v", name(r.start.Run), got, want)
	}
	if got, want := isPaused(r.start.Carried), isPaused(before.all()); got != want {
		t.Fatalf("I14: %s begins paused: %v, the run before was: %v", name(r.start.Run), got, want)
	}
}

// unansweredUpdates returns the updates that a run has received and not answered.
func (r *stored) unansweredUpdates() (open []model.Event) {
	answered := map[int64]bool{}
	for _, e := range r.all() {
		if e.Kind == model.EventUpdateAnswered {
			answered[e.Ref] = true
		}
	}
	for _, e := range r.all() {
		if e.Kind == model.EventUpdateReceived && !answered[e.Seq] {
			open = append(open, e)
		}
	}
	return open
}

// values returns the state that a history leaves.
func values(events []model.Event) map[string]string {
	set := map[string]string{}
	for _, e := range events {
		switch {
		case e.Kind != model.EventStateSet:
		case len(e.Output.Data) == 0:
			delete(set, e.Name)
		default:
			set[e.Name] = string(e.Output.Data)
		}
	}
	return set
}

func isPaused(events []model.Event) (is bool) {
	for _, e := range events {
		if e.Kind == model.EventPaused || e.Kind == model.EventResumed {
			is = e.Kind == model.EventPaused
		}
	}
	return is
}
