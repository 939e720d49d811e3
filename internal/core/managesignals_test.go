package core_test

import (
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// signalDesk is an execution whose operator looks at its signals.
type signalDesk struct {
	t   *testing.T
	typ string
	x   *core.Execution
	all []model.Event
}

func newSignalDesk(t *testing.T) *signalDesk {
	t.Helper()
	return newSignalDeskOf(t, "order")
}

func newSignalDeskOf(t *testing.T, typ string) *signalDesk {
	t.Helper()
	k := &signalDesk{t: t, typ: typ}
	k.send(&model.Message{Kind: model.MessageStart, Input: model.Payload{}})
	return k
}

func (k *signalDesk) send(m *model.Message) core.Decision {
	k.t.Helper()
	m.To = model.Address{Tenant: "default", Type: k.typ, Key: "a"}
	x, d := core.Deliver(k.x, m, 5, model.RunID{1}, core.DefaultLimits)
	k.x, k.all = x, append(k.all, d.Events...)
	return d
}

func (k *signalDesk) signal(name string) {
	k.t.Helper()
	d := k.signalFor(name)
	if err := d.Refusal(); err != nil {
		k.t.Fatal(err)
	}
}

func (k *signalDesk) signalFor(name string) core.Decision {
	return k.send(&model.Message{Kind: model.MessageSignal, Name: name, Input: model.Payload{Data: []byte(name)}})
}

func (k *signalDesk) do(do, id string) (core.Decision, []model.Call) {
	k.t.Helper()
	d := k.send(&model.Message{Kind: model.MessageMailbox, Name: do, ID: id, RequestID: "r", Failure: &model.Failure{Message: "why"}})
	if d.Refusal() != nil {
		return d, nil
	}
	c, err := model.DecodeCalls(d.Answer.Output)
	if err != nil {
		k.t.Fatal(err)
	}
	return d, c.Calls
}

func (k *signalDesk) list() []model.Call {
	k.t.Helper()
	d, all := k.do(model.MailboxList, "")
	if d.HasWrites() {
		k.t.Errorf("a list writes %+v", d)
	}
	return all
}

func (k *signalDesk) names() (names string) {
	for _, c := range k.list() {
		names += c.Operation + " "
	}
	return strings.TrimSpace(names)
}

// turn applies a turn in which the code has seen events up to a position and takes these signals.
func (k *signalDesk) turn(seen int64, takes ...int64) {
	k.t.Helper()
	t := &model.Turn{Run: k.x.Start.Run, Seen: seen}
	for _, seq := range takes {
		t.Commands = append(t.Commands, model.Command{Kind: model.CommandRecord, Event: model.Event{Kind: model.EventSignalTaken, ID: "take", Ref: seq}})
	}
	x, d, err := core.Apply(k.x, t, 6, model.RunID{}, core.DefaultLimits)
	if err != nil {
		k.t.Fatal(err)
	}
	k.x, k.all = x, append(k.all, d.Events...)
}

// reload lets another owner read the run from the store.
func (k *signalDesk) reload() {
	k.t.Helper()
	x, err := core.Recover(k.x.Start, k.x.Outcome, k.all, k.x.Timers())
	if err != nil {
		k.t.Fatal(err)
	}
	k.x = x
}

// An operator drops all signals of one name, a page at a time, and no signal of another name.
func TestDropNamedSignals(t *testing.T) {
	t.Parallel()
	k := newSignalDesk(t)
	const more = 7
	for range model.MailboxDropped + more {
		k.signal("go")
	}
	k.signal("stop")

	for _, want := range []struct{ dropped, left int }{{model.MailboxDropped, more}, {more, 0}, {0, 0}} {
		d := k.send(&model.Message{Kind: model.MessageMailbox, Name: model.MailboxDropNamed, ID: "go", Failure: &model.Failure{Message: "why"}})
		c, err := model.DecodeCalls(d.Answer.Output)
		if err != nil || d.Refusal() != nil || len(c.Calls) != want.dropped || c.Total != want.left || len(d.Events) != want.dropped {
			t.Fatalf("%d are dropped by %d events and %d are left, %v, %v; want %+v", len(c.Calls), len(d.Events), c.Total, err, d.Refusal(), want)
		}
		k.reload()
	}
	if got := k.names(); got != "stop" {
		t.Errorf("%q is left", got)
	}
}

// Workers of another protocol read signals from the event log. There, a skipped signal would appear
// twice, and a dropped signal would still appear. So the core refuses both requests.
func TestSignalsOfAnEventLogStay(t *testing.T) {
	t.Parallel()
	k := newSignalDeskOf(t, model.FlovynPrefix+"orders")
	k.signal("go")
	id := k.list()[0].ID
	for order, what := range map[string]string{model.MailboxSkip: id, model.MailboxDrop: id, model.MailboxDropNamed: "go"} {
		d := k.send(&model.Message{Kind: model.MessageMailbox, Name: order, ID: what, Failure: &model.Failure{Message: "why"}})
		if err := d.Refusal(); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "from its event log") || d.HasWrites() {
			t.Errorf("%s: %v", order, err)
		}
	}
	if got := k.names(); got != "go" {
		t.Errorf("%q is left", got)
	}
}

// An operator uses a newer build than the owner. The owner refuses an order that it does not know,
// says why, and changes nothing.
func TestUnknownOrderAboutSignals(t *testing.T) {
	t.Parallel()
	k := newSignalDesk(t)
	k.signal("go")
	d := k.send(&model.Message{Kind: model.MessageMailbox, Name: "drop-everything", ID: "go"})
	err := d.Refusal()
	if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), `does not know the order "drop-everything", because it runs an older build`) || d.HasWrites() {
		t.Errorf("%v, %+v", err, d.Events)
	}
	if got := k.names(); got != "go" {
		t.Errorf("%q is left", got)
	}
}

// Each change that an operator makes to unread signals is an event of the history. So an owner that
// reads the history has the same unread signals.
func TestManagedSignals(t *testing.T) {
	t.Parallel()
	k := newSignalDesk(t)
	for _, name := range []string{"go", "stop", "go", "halt"} {
		k.signal(name)
	}
	all := k.list()
	if len(all) != 4 || all[2].Position != 3 || all[2].Operation != "go" || all[2].Bytes == 0 || all[2].Input.Size() != 0 {
		t.Fatalf("%+v", all)
	}
	if _, shown := k.do(model.MailboxShow, all[1].ID); len(shown) != 1 || string(shown[0].Input.Data) != "stop" || shown[0].Position != 2 {
		t.Errorf("%+v", shown)
	}

	d, skipped := k.do(model.MailboxSkip, all[0].ID)
	if len(d.Events) != 2 || d.Events[0].Ref != 1 || d.Events[1].Kind != model.EventSignalReceived || skipped[0].ID == all[0].ID || skipped[0].Position != 4 {
		t.Errorf("skipped by %+v: %+v", d.Events, skipped)
	}
	d, dropped := k.do(model.MailboxDrop, all[1].ID)
	if len(d.Events) != 1 || d.Events[0].Kind != model.EventSignalDropped || d.Events[0].Ref != 2 || d.Events[0].Failure.Message != "why" ||
		d.Events[0].RequestID != "r" || d.Events[0].Seen || dropped[0].Operation != "stop" {
		t.Errorf("dropped by %+v: %+v", d.Events, dropped)
	}
	for range 2 {
		if got := k.names(); got != "go halt go" {
			t.Errorf("%s is left", got)
		}
		k.reload()
	}

	k.turn(7, 3)
	for _, id := range []string{all[0].ID, all[1].ID, all[2].ID, "9-1"} {
		for _, do := range []string{model.MailboxShow, model.MailboxSkip, model.MailboxDrop} {
			if d, _ := k.do(do, id); !fault.Is(d.Refusal(), fault.NotFound) || d.HasWrites() {
				t.Errorf("%s of what is not there: %v", do, d.Refusal())
			}
		}
	}
	if d, _ := k.do("burn", all[3].ID); !fault.Is(d.Refusal(), fault.Invalid) {
		t.Errorf("burn: %v", d.Refusal())
	}

	k.send(&model.Message{Kind: model.MessageTerminate})
	if d, _ := k.do(model.MailboxDrop, all[3].ID); !fault.Is(d.Refusal(), fault.Conflict) || k.names() != "halt go" {
		t.Errorf("of a closed run: %v, %s", d.Refusal(), k.names())
	}
}

// The event that drops a signal says whether the history may depend on the signal. If the history
// does depend on it, the event always says so.
func TestDropsSayWhatWasNoticed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		before  func(k *signalDesk) // the signal that is dropped has position 1 or higher
		noticed bool
	}{
		{"the code has not run", func(*signalDesk) {}, false},
		{"the code has run before it came", func(k *signalDesk) { k.turn(0) }, false},
		{"the code has seen it", func(k *signalDesk) { k.turn(k.x.Next - 1) }, true},
		{"an owner has read the run, and the code has recorded nothing since", func(k *signalDesk) { k.turn(k.x.Next - 1); k.reload() }, false},
		{"the code has recorded something since", func(k *signalDesk) {
			k.signal("other")
			k.turn(k.x.Next-1, k.x.Next-1)
			k.reload()
		}, true},
	} {
		k := newSignalDesk(t)
		k.signal("go")
		id := k.list()[0].ID
		c.before(k)
		d, _ := k.do(model.MailboxDrop, id)
		if len(d.Events) != 1 || d.Events[0].Seen != c.noticed {
			t.Errorf("%s: %v, %+v", c.name, d.Refusal(), d.Events)
		}
	}

	k := newSignalDesk(t)
	k.signal("old")
	k.turn(1, 1)
	k.send(&model.Message{Kind: model.MessagePause})
	k.signal("go")
	k.turn(0) // the turn of a worker that has ended a step and has seen no event
	k.reload()
	if d, _ := k.do(model.MailboxDrop, k.list()[0].ID); len(d.Events) != 1 || d.Events[0].Seen {
		t.Errorf("during a pause: %+v", d.Events)
	}
}
