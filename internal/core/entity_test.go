package core_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/model"
)

// desk is one entity that a test sends messages to, step by step.
type desk struct {
	*testing.T
	*town
	h *house
}

func newDesk(t *testing.T) *desk {
	w := newTown(t.Fatalf)
	return &desk{t, w, w.house(entityAddress("a"))}
}

func (d *desk) call(name string, change ...func(*model.Message)) core.Decision {
	return d.callAs(core.Arrival{Stored: true, Room: 100}, name, change...)
}

func (d *desk) callAs(a core.Arrival, name string, change ...func(*model.Message)) core.Decision {
	m := &model.Message{Kind: model.MessageCall, To: d.h.n.Row.Address, Name: name, From: model.Link{Address: address("w"), Run: runID(1), ID: name}}
	for _, c := range change {
		c(m)
	}
	got := d.h.n.Deliver(m, a, d.now)
	d.commit(d.h, &got)
	return got
}

func link(run int, id string) model.Link {
	return model.Link{Address: address("w"), Run: runID(run), ID: id}
}

func in(section string) func(*model.Message) {
	return func(m *model.Message) { m.Section = section }
}

func byClient(request string) func(*model.Message) {
	return func(m *model.Message) { m.From, m.RequestID = model.Link{}, request }
}

func (d *desk) lock(section string) {
	d.hand(&model.Message{Kind: model.MessageLock, To: d.h.n.Row.Address, From: link(1, section)})
}

func (d *desk) release(section string) {
	d.hand(&model.Message{Kind: model.MessageRelease, To: d.h.n.Row.Address, From: link(1, section)})
}

// run makes all calls that can be made now, and returns their names.
func (d *desk) run() string {
	before := len(d.h.made)
	for d.begin(d.h, 10) {
		d.town.end(d.h, 0, 10)
	}
	return strings.Join(d.h.made[before:], " ")
}

// takeSent returns the messages that left for the workflow since the last call.
func (d *desk) takeSent() string {
	r := route{d.h.n.Row.Address, address("w")}
	var texts []string
	for _, m := range d.post[r] {
		text := m.Kind.String() + " " + m.ID
		if m.Failure != nil {
			text += " " + m.Failure.Kind
		}
		texts = append(texts, text)
	}
	d.post[r] = nil
	d.routes = nil
	return strings.Join(texts, ", ")
}

func (d *desk) want(what, got, want string) {
	d.Helper()
	if got != want {
		d.Errorf("%s: %q, want %q", what, got, want)
	}
}

// Calls that wait together go to a worker together. Each call works on the state that the call
// before it has left. A call that fails does not change the state (L2, L4, L5).
func TestEntityMakesCallsInOrder(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	for _, n := range []string{"one", "fails1", "two", "three"} {
		d.call(n)
	}
	d.want("made", d.run(), "one two three")
	d.want("told", d.takeSent(), "answer one, answer fails1 code, answer two, answer three")
	d.want("state", string(d.h.row.State.Data), "one,two,three,")
	if len(d.h.mailbox) > 0 || d.h.row.Version != 1 {
		t.Errorf("%d items are left, and the row has version %d: all was one commit", len(d.h.mailbox), d.h.row.Version)
	}
}

// After a crash of the owner, workers make again the calls whose results are not committed. They do
// not make committed calls again (L3, L6).
func TestEntityMakesWhatWasNotReported(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	for _, n := range []string{"one", "two", "three"} {
		d.call(n)
	}
	d.begin(d.h, 10)
	lost := d.h.jobs[0]
	d.crashHouse(d.h)
	d.begin(d.h, 10)
	d.town.end(d.h, 0, 1) // the worker reports only the first call
	d.want("made", fmt.Sprint(d.h.made), "[one]")
	d.begin(d.h, 10)
	job := d.h.jobs[0]
	d.h.jobs = nil
	d.h.n.Return(job.items)
	if _, ok := d.h.n.Apply(lost.items, &model.Operated{Results: make([]model.OperationResult, 3)}, lost.version, d.now); ok {
		t.Error("a report of before the crash counts")
	}
	d.want("made then", d.run(), "two three")
	d.want("told", d.takeSent(), "answer one, answer two, answer three")
}

// When an operation removes the state, the next call starts with a new state. The lock stays (L8).
func TestEntityIsDeleted(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	remove := func() {
		d.begin(d.h, 1)
		job := d.h.jobs[0]
		d.h.jobs = nil
		got, ok := d.h.n.Apply(job.items, &model.Operated{Results: make([]model.OperationResult, 1), Changed: true}, job.version, d.now)
		if !ok {
			t.Fatal("the report does not count")
		}
		d.commit(d.h, &got)
	}

	d.call("one")
	d.run()
	d.lock("s")
	d.call("gone", in("s"))
	remove()
	if d.h.row == nil || d.h.row.Exists || !d.h.row.Locked() || len(d.h.row.State.Data) > 0 {
		t.Errorf("the row is %+v, want one that is locked and has no state", d.h.row)
	}
	epoch := d.h.row.Epoch
	d.release("s")
	if d.h.row != nil {
		t.Errorf("the row is %+v, want none", d.h.row)
	}
	d.lock("s2")
	if d.h.row.Epoch <= epoch {
		t.Errorf("epoch %d follows %d", d.h.row.Epoch, epoch)
	}
	d.release("s2")
	d.call("two")
	d.run()
	d.want("state", string(d.h.row.State.Data), "two,")
}

// The request of a lock is a barrier. Workers make the calls in front of it first. Calls behind it
// wait in order for the end of the section. Only the calls of the section itself do not wait (L24,
// L36).
func TestEntityIsLocked(t *testing.T) {
	t.Parallel()

	d := newDesk(t)
	d.call("before")
	d.lock("s")
	if d.lock("s"); d.h.n.MailCount() != 2 {
		t.Errorf("%d wait, want the call and one request", d.h.n.MailCount())
	}
	d.call("behind1")
	d.lock("t")
	d.call("behind2")
	d.want("told", d.takeSent(), "")
	d.want("made", d.run(), "before")
	d.want("told then", d.takeSent(), "answer before, grant s")
	d.want("made while it is locked", d.run(), "")
	d.call("in1", in("s"))
	d.want("made of the section", d.run(), "in1")
	d.lock("s") // the section holds the lock already and gets another grant
	d.want("told", d.takeSent(), "answer in1, grant s")
	d.call("late", in("t"))
	d.want("told one that waits", d.takeSent(), "answer late conflict")
	d.release("s")
	d.want("told", d.takeSent(), "")
	d.want("made behind it", d.run(), "behind1")
	d.want("told", d.takeSent(), "answer behind1, grant t")
	d.call("in2", in("s"))
	d.want("told the last holder", d.takeSent(), "answer in2 conflict")
	d.release("t")
	d.want("made in the end", d.run(), "behind2")
}

// When a section ends, the entity refuses the calls of the section that have no result. It ignores
// results of these calls that arrive later, because another section may hold the lock by then.
func TestEntityDropsCallsOfASectionThatEnds(t *testing.T) {
	t.Parallel()
	for _, crash := range []bool{false, true} {
		d := newDesk(t)
		d.lock("s")
		d.call("in", in("s"))
		d.lock("t")
		d.begin(d.h, 1)
		d.takeSent()
		d.release("s")
		d.want("told", d.takeSent(), "answer in conflict, grant t")

		if crash {
			d.crashHouse(d.h)
		} else {
			d.town.end(d.h, 0, 1)
		}

		d.call("mine", in("t"))
		d.want("made", d.run(), "mine")
		d.want("told", d.takeSent(), "answer mine")
	}
}

// A section that waits behind a call that is only in memory gets the lock when the call is gone.
func TestEntityGrantsWhatNothingStandsBefore(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.callAs(core.Arrival{Room: 10, Tag: "tag"}, "brief", byClient("r"))
	d.lock("s")
	d.h.n.Forget("tag", "")
	got := d.h.n.Settle(d.now)
	d.commit(d.h, &got)
	d.want("told", d.takeSent(), "grant s")

	d = newDesk(t)
	d.callAs(core.Arrival{Room: 10}, "brief", byClient("r"))
	d.lock("s")
	d.crashHouse(d.h)
	d.want("told after a crash", d.takeSent(), "grant s")
}

// Workers make views immediately, in parallel with everything else. Views change nothing (L10).
func TestEntityViewsWaitForNobody(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.call("one")
	d.lock("s")
	d.begin(d.h, 1)
	d.callAs(core.Arrival{Room: 10, View: true}, "look", byClient("r1"))
	d.callAs(core.Arrival{Room: 10, View: true}, "look", byClient("r2"))
	d.callAs(core.Arrival{Room: 10, View: true}, "change", byClient("r3"))
	look := func(name string) bool { return name == "look" }
	views := d.h.n.Views(look)
	if again := d.h.n.Views(func(string) bool { return true }); len(views) != 2 || len(again) > 0 {
		t.Fatalf("%d views, then %d", len(views), len(again))
	}

	r := &model.Operated{Results: make([]model.OperationResult, 2), Changed: true, State: value("spoilt"), Exists: true}
	got, ok := d.h.n.Apply(views, r, 0, d.now)
	if !ok || got.Entity != nil || len(got.Replies) != 2 {
		t.Errorf("views led to %+v, %v", got, ok)
	}
	d.town.end(d.h, 0, 1)
	d.want("told", d.takeSent(), "answer one, grant s")
	d.want("state", string(d.h.row.State.Data), "one,")
	if d.h.n.MailCount() != 1 {
		t.Errorf("what turned out to be an operation does not wait for its turn: %d wait", d.h.n.MailCount())
	}
}

// A repeated request waits for the same answer as the first one. A full mailbox refuses calls,
// except the calls of the section that holds the lock: the calls in the mailbox wait for that
// section.
func TestEntityRoomAndRequests(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	small := core.Arrival{Stored: true, Room: 2}
	d.lock("s")
	d.takeSent()

	for range 3 {
		if got := d.callAs(small, "one", byClient("r")); !got.Pending || got.Refusal() != nil {
			t.Errorf("the same request led to %+v", got)
		}
	}

	if n := d.h.n.MailCount(); n != 1 {
		t.Fatalf("%d wait, want one", n)
	}
	d.callAs(small, "two")
	if got := d.callAs(small, "three"); refusal(got.Refusal()) != "exhausted" {
		t.Errorf("one too many led to %+v", got)
	}
	d.want("told", d.takeSent(), "answer three exhausted")
	d.callAs(small, "in", in("s"))
	d.want("made", d.run(), "in")
	d.release("s")
	before := len(d.h.made)
	d.begin(d.h, 1)
	job := d.h.jobs[0]
	got, ok := d.h.n.Apply(job.items, &model.Operated{Results: []model.OperationResult{{Output: value("out")}}}, job.version, d.now)
	if !ok || len(got.Replies) != 1 || got.Replies[0].RequestID != "r" || string(got.Replies[0].Answer.Output.Data) != "out" || before != 1 {
		t.Errorf("the request was answered by %+v, %v", got.Replies, ok)
	}
}

// The sender of a one-way call gets an answer when the call is stored. It does not get the result.
func TestEntityOneWay(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	got := d.call("one", func(m *model.Message) { m.OneWay = true })
	if got.Pending || len(got.Mailbox) != 1 {
		t.Errorf("it led to %+v", got)
	}
	d.want("told", d.takeSent(), "answer one")
	d.want("made", d.run(), "one")
	d.want("told then", d.takeSent(), "")
}

// An operator can take only the lock that the request names.
func TestEntityIsUnlockedByAnOperator(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	unlock := func(epoch int64) string {
		got := d.h.n.Deliver(&model.Message{Kind: model.MessageUnlock, To: d.h.n.Row.Address, Epoch: epoch}, core.Arrival{}, d.now)
		d.commit(d.h, &got)
		return refusal(got.Refusal())
	}

	d.want("what is not locked", unlock(0), "not_found")
	d.lock("s")
	d.lock("t")
	d.want("another lock", unlock(1), "conflict")
	d.want("this lock", unlock(d.h.row.Epoch), "")
	d.want("told", d.takeSent(), "grant s, grant t")
	d.call("in", in("s"))
	d.want("told the last holder", d.takeSent(), "answer in conflict")
	d.release("s") // a late release, from a section that has lost the lock
	if d.h.row.Holder != link(1, "t") {
		t.Errorf("the holder is %+v", d.h.row.Holder)
	}
}

// A service has no state and cannot be locked; its calls may overlap.
func TestServiceHasNoLocks(t *testing.T) {
	t.Parallel()
	w := newTown(t.Fatalf)
	d := &desk{t, w, w.house(model.Address{Tenant: model.DefaultTenant, Type: model.ServicePrefix + "x", Key: "k"})}
	d.lock("s")
	d.want("told", d.takeSent(), "answer s invalid")
	d.call("one")
	d.call("two")
	for d.begin(d.h, 1) {
	}
	if len(d.h.jobs) != 2 {
		t.Fatalf("%d calls are made at a time", len(d.h.jobs))
	}

	d.town.end(d.h, 1, 1)
	d.town.end(d.h, 0, 1)
	d.want("told", d.takeSent(), "answer two, answer one")
	if d.h.row != nil || !slices.Equal(d.h.made, []string{"two", "one"}) {
		t.Errorf("made %v, and the row is %+v", d.h.made, d.h.row)
	}
}
