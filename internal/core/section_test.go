package core_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// alone returns one run with a section. There are no entities: the test sends the messages that the
// entities would send.
func alone(t *testing.T, locks ...string) (*lockPlay, model.Address, model.RunID) {
	p := newLockPlay(t.Fatalf, 1, 0)
	a := p.runs[0]
	p.start(a)
	var set []model.Address
	for _, k := range locks {
		set = append(set, entityAddress(k))
	}
	p.must(p.command(a, model.Command{Kind: model.CommandLock, Event: model.Event{ID: "s", Locks: set}}))
	return p, a, p.seat(a).x.Start.Run
}

// sendToSection delivers a message of an entity to the section, and returns what the run recorded
// and sent.
func (p *lockPlay) sendToSection(m model.Message) string {
	d := p.deliver(&m)
	p.mail = nil
	return textOf(&d)
}

func textOf(d *core.Decision) string {
	var texts []string
	for _, e := range d.Events {
		texts = append(texts, strings.TrimSpace(fmt.Sprint(e.Kind, " ", e.Target.Key)))
	}
	for _, m := range d.Messages {
		texts = append(texts, fmt.Sprintf("→ %s %s", m.Kind, m.To.Key))
	}
	return strings.Join(texts, ", ")
}

func grant(a model.Address, run model.RunID, id, entity string) model.Message {
	return model.Message{Kind: model.MessageGrant, To: a, ToRun: run, ID: id, From: model.Link{Address: entityAddress(entity)}, Epoch: 7}
}

// The section asks for its entities one after the other, in an order that does not depend on the
// code. It records each grant once, and answers an unwanted grant with a release (I17).
func TestSectionAsksInOrder(t *testing.T) {
	t.Parallel()
	p, a, run := alone(t, "c", "a", "b", "a")
	for _, c := range []struct{ says, want string }{
		{"c", "→ release c"}, // the section has not asked entity c
		{"a", "lock_granted a, → lock b"},
		{"a", ""},
		{"z", "→ release z"},
		{"b", "lock_granted b, → lock c"},
		{"a", ""},
		{"c", "lock_granted c"},
		{"c", ""},
	} {
		if got := p.sendToSection(grant(a, run, "s", c.says)); got != c.want {
			t.Errorf("%s grants: %q, want %q", c.says, got, c.want)
		}
	}

	if got := p.sendToSection(grant(a, run, "other", "a")); got != "→ release a" {
		t.Errorf("a grant of a section that there is not: %q", got)
	}
	if got := p.sendToSection(grant(a, runID(77), "s", "a")); got != "→ release a" {
		t.Errorf("a grant of another run: %q", got)
	}
	if got := p.sendToSection(grant(address("nobody"), run, "s", "a")); got != "→ release a" {
		t.Errorf("a grant of a run that does not exist: %q", got)
	}
	d, err := p.turn(a, &model.Turn{Run: run, Seen: p.seat(a).x.Next - 1, Commands: []model.Command{{Kind: model.CommandUnlock, Event: model.Event{ID: "s", Section: "s"}}}})
	if want := "unlocked, → release a, → release b, → release c"; err != nil || textOf(&d) != want {
		t.Errorf("the end: %q, %v, want %q", textOf(&d), err, want)
	}
	if got := p.sendToSection(grant(a, run, "s", "c")); got != "→ release c" {
		t.Errorf("a grant behind the end: %q", got)
	}
	p.finish(a, 0)
	if got := p.sendToSection(grant(a, run, "s", "c")); got != "→ release c" {
		t.Errorf("a grant behind the end of the run: %q", got)
	}
}

// An entity that cannot be locked ends the section, which releases its other locks.
func TestSectionIsRefused(t *testing.T) {
	t.Parallel()
	p, a, run := alone(t, "a", "b", "c")
	p.sendToSection(grant(a, run, "s", "a"))
	refused := model.Message{Kind: model.MessageAnswer, To: a, ToRun: run, ID: "s", Failure: &model.Failure{Kind: "invalid", Message: "no"}}
	if got, want := p.sendToSection(refused), "answered, → release a, → release b"; got != want {
		t.Errorf("refused: %q, want %q", got, want)
	}
	if got := p.sendToSection(refused); got != "" {
		t.Errorf("refused again: %q", got)
	}
	if fs := core.SectionsOf(p.seat(a).x); len(fs) > 0 {
		t.Errorf("sections are left: %v", fs)
	}
}

// A run cannot begin with a past that ends inside a section, because the new run would not hold the
// locks. If the past belongs to a closed run that is imported as closed, it may end inside a
// section.
func TestPastDoesNotEndInASection(t *testing.T) {
	t.Parallel()
	asked := model.Event{Kind: model.EventLockAsked, At: epoch, ID: "s", Locks: []model.Address{entityAddress("a")}}
	over := model.Event{Kind: model.EventUnlocked, At: epoch, ID: "s", Section: "s"}
	for _, c := range []struct {
		events []model.Event
		status model.Status
		want   string
	}{
		{[]model.Event{asked}, 0, "invalid"},
		{[]model.Event{asked, over}, 0, ""},
		{[]model.Event{asked}, model.Failed, ""},
	} {
		m := &model.Message{Kind: model.MessageStart, To: address("p"), Past: &model.Past{Events: model.PastOf(c.events), Status: c.status}}
		x, d := core.Deliver(nil, m, epoch, runID(1), core.DefaultLimits)
		if got := refusal(d.Refusal()); got != c.want {
			t.Errorf("%d events, %s: refused as %q, want %q", len(c.events), c.status, got, c.want)
		}
		if x != nil && len(core.SectionsOf(x)) > 0 {
			t.Errorf("the run begins in %v", core.SectionsOf(x))
		}
	}
}

// Executions refuse messages that are only for entities. They do not answer a release.
func TestExecutionIsNoEntity(t *testing.T) {
	t.Parallel()
	p, a, _ := alone(t, "a")
	for _, k := range []model.MessageKind{model.MessageCall, model.MessageLock, model.MessageRelease, model.MessageUnlock} {
		d := p.deliver(&model.Message{Kind: k, To: a, From: model.Link{Address: address("w"), Run: runID(5), ID: "x"}})
		if told := len(d.Messages) > 0; refusal(d.Refusal()) != "invalid" || told != (k != model.MessageRelease) {
			t.Errorf("%s: %v, and told: %v", k, d.Refusal(), told)
		}
	}
}

func TestCloneOfSectionsIsIndependent(t *testing.T) {
	t.Parallel()
	p, a, run := alone(t, "a", "b")
	p.sendToSection(grant(a, run, "s", "a"))
	before := p.seat(a).x.Clone()
	other := p.seat(a).x.Clone()
	p.sendToSection(grant(a, run, "s", "b"))
	if diff := core.Diff(before, other); diff != "" || !slices.Equal(core.SectionsOf(other)[0].Epochs, []int64{7}) {
		t.Errorf("a clone has changed: %s", diff)
	}
}

// A worker may not let a section wait for the code of another execution.
func TestSectionRefusesUpdates(t *testing.T) {
	t.Parallel()
	p, a, run := alone(t, "a")
	p.sendToSection(grant(a, run, "s", "a"))
	update := model.Command{Kind: model.CommandSend, Event: model.Event{ID: "u", Section: "s"}, Message: &model.Message{Kind: model.MessageUpdate, To: address("z"), Name: "change"}}
	err := p.command(a, update)
	if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "waits for update change") {
		t.Errorf("an update in a section: %v, want it refused", err)
	}
	update.Event.Section = "" // sent by another coroutine, outside of the section
	p.must(p.command(a, update))
}
