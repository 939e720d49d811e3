package core

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

var narrow = Limits{Events: 1000, Bytes: 100_000, Signals: 1000, Unread: 30_000, Timers: 100, Tasks: 100, Locks: 10, Past: 100, PastBytes: 1 << 20}

var roomy = model.Address{Type: "flow", Key: "a"}

func text(n int) model.Payload { return model.Payload{Data: make([]byte, n)} }

func startRoomy(t *testing.T, m model.Message) (*Execution, Decision) {
	t.Helper()
	m.Kind, m.To = model.MessageStart, roomy
	return Deliver(nil, &m, 1000, model.RunID{1}, narrow)
}

func send(x *Execution, kind model.MessageKind, m model.Message) Decision {
	m.Kind, m.To = kind, roomy
	_, d := Deliver(x, &m, x.Last+1, model.RunID{2}, narrow)
	return d
}

func recoverRun(t *testing.T, x *Execution, events []model.Event) *Execution {
	t.Helper()
	r, err := Recover(x.Start, x.Outcome, events, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The core bounds the bytes of the messages that the code has not read. After a recovery it counts
// the same bytes. It no longer counts a message when the code has taken it.
func TestUnreadBytesAreBounded(t *testing.T) {
	t.Parallel()
	x, _ := startRoomy(t, model.Message{})
	var events []model.Event
	take := func(d Decision) Decision { events = append(events, d.Events...); return d }
	for i, kind := range []model.MessageKind{model.MessageSignal, model.MessageUpdate, model.MessageSettle} {
		name := string(rune('a' + i))
		if d := take(send(x, kind, model.Message{Name: name, Input: text(9_000), RequestID: name})); d.Refusal() != nil {
			t.Fatal(d.Refusal())
		}
	}
	for _, kind := range []model.MessageKind{model.MessageSignal, model.MessageUpdate, model.MessageSettle} {
		d := send(x, kind, model.Message{Name: "more", Input: text(12_000), RequestID: "more"})
		if !fault.Is(d.Refusal(), fault.Exhausted) || d.HasWrites() || !strings.Contains(d.Refusal().Error(), "would exceed the limit of 3") {
			t.Errorf("%s beyond the limit: %v", kind, d.Refusal())
		}
	}
	_, d := Deliver(x, &model.Message{Kind: model.MessageStart, To: roomy, RequestID: "with", With: []model.Event{{Name: "a", Input: text(9_000)}}}, x.Last, model.RunID{2}, narrow)
	if !fault.Is(d.Refusal(), fault.Exhausted) || d.HasWrites() {
		t.Errorf("a signal with a start beyond the limit: %v", d.Refusal())
	}
	if r := recoverRun(t, x, events); r.Unread() != x.Unread() || r.Bytes() != x.Bytes() || x.Bytes() < 27_000 {
		t.Errorf("recovered with %d of %d bytes unread, want %d of %d", r.Unread(), r.Bytes(), x.Unread(), x.Bytes())
	}

	turn := &model.Turn{Seen: 3, Commands: []model.Command{
		{Kind: model.CommandRecord, Event: model.Event{Kind: model.EventSignalTaken, Ref: 1}},
		{Kind: model.CommandAnswer, Event: model.Event{Ref: 2}},
	}}
	_, d, err := Apply(x, turn, x.Last, model.RunID{}, narrow)
	if take(d); err != nil || x.Unread() != 0 {
		t.Errorf("%d bytes unread after the code has dealt with all of it: %v", x.Unread(), err)
	}
	r := recoverRun(t, x, events)
	if r.MarkAllSeen(); r.Unread() != 0 {
		t.Errorf("%d bytes unread after a recovery", r.Unread())
	}
	if d := send(x, model.MessageSignal, model.Message{Name: "a", Input: text(40_000)}); d.Refusal() != nil {
		t.Errorf("a large signal may wait alone: %v", d.Refusal())
	}
}

// There is a bound for the signals of each name. The bound for all names together is low enough
// that the next run can begin with all of them.
func TestSignalsAreBoundedByName(t *testing.T) {
	t.Parallel()
	lim := narrow
	lim.Signals, lim.Events = 100, 500
	x, _ := startRoomy(t, model.Message{})
	send := func(name string) error {
		_, d := Deliver(x, &model.Message{Kind: model.MessageSignal, To: x.Start.Address, Name: name}, x.Last, model.RunID{}, lim)
		return d.Refusal()
	}
	for range 100 {
		if err := errors.Join(send("a"), send("b")); err != nil {
			t.Fatal(err)
		}
	}
	err := send("a")
	if !fault.Is(err, fault.Exhausted) || !strings.Contains(err.Error(), `100 unread signals "a": at most 100 of one name`) {
		t.Errorf("one too many of a name: %v", err)
	}
	with := &model.Message{Kind: model.MessageStart, To: x.Start.Address, Input: x.Start.Input, With: []model.Event{{Name: "c"}, {Name: "a"}}}
	if _, d := Deliver(x, with, x.Last, model.RunID{9}, lim); !fault.Is(d.Refusal(), fault.Exhausted) || x.Signals() != 200 {
		t.Errorf("a start with one too many of a name: %v, %d signals", d.Refusal(), x.Signals())
	}
	for i := range 50 {
		if err := send(fmt.Sprint("other ", i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := send("c"); !fault.Is(err, fault.Exhausted) || !strings.Contains(err.Error(), "at most 250 of all names") {
		t.Errorf("one too many of all names: %v", err)
	}

	// A signal that is taken makes room for another one of its name, also after a recovery and
	// after continue-as-new.
	took := &model.Turn{Seen: x.Next - 1, Commands: []model.Command{{Kind: model.CommandRecord, Event: model.Event{Kind: model.EventSignalTaken, Ref: x.signals[1].Seq}}}}
	if _, _, err := Apply(x, took, x.Last, model.RunID{}, lim); err != nil || x.signalsOf("b") != 99 || x.signalsOf("a") != 100 {
		t.Fatalf("%v: %d and %d left", err, x.signalsOf("a"), x.signalsOf("b"))
	}
	next := &model.Turn{Seen: x.Next - 1, Close: &model.Close{Status: model.Continued}}
	if x, _, err = Apply(x, next, x.Last, model.RunID{7}, lim); err != nil || x.Signals() != 249 || x.Next != 250 {
		t.Fatalf("%v: the next run begins with %d signals at %d", err, x.Signals(), x.Next)
	}
	if err := send("a"); err == nil || send("b") != nil {
		t.Errorf("in the next run: %v", err)
	}
}

func TestStartsWithSignalsAreBounded(t *testing.T) {
	t.Parallel()
	with := []model.Event{{Name: "a", Input: text(20_000)}, {Name: "a", Input: text(20_000)}}
	if x, d := startRoomy(t, model.Message{With: with}); x != nil || !fault.Is(d.Refusal(), fault.Exhausted) {
		t.Errorf("a start with signals beyond the limit: %v", d.Refusal())
	}
	past := &model.Past{Events: model.PastOf([]model.Event{
		{Kind: model.EventSignalReceived, Name: "a", Input: text(20_000)}, {Kind: model.EventSignalReceived, Name: "a", Input: text(20_000)},
	})}
	if x, d := startRoomy(t, model.Message{Past: past}); x != nil || !fault.Is(d.Refusal(), fault.Exhausted) {
		t.Errorf("a past with signals beyond the limit: %v", d.Refusal())
	}
	past.Events = model.PastOf([]model.Event{{Kind: model.EventStepCompleted, Output: text(200_000)}})
	if x, d := startRoomy(t, model.Message{Past: past}); x != nil || !fault.Is(d.Refusal(), fault.Exhausted) {
		t.Errorf("a past beyond the limit of a history: %v", d.Refusal())
	}
}

// An open run gets all signals that come with a start, or none of them, even if no message waits
// for its code yet.
func TestOpenRunGetsAllSignalsOfAStartOrNone(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		sizes   []int
		refused bool
	}{
		"together beyond the limit":                 {[]int{20_000, 20_000}, true},
		"together beyond the limit of a name":       {[]int{12_000, 12_000}, false},
		"one beyond the limit":                      {[]int{40_000}, false},
		"one beyond the limit, and another":         {[]int{40_000, 1}, true},
		"together beyond the limit of the history":  {[]int{101_000}, true},
		"together below every limit":                {[]int{1_000, 1_000, 1_000}, false},
		"the last of many is beyond the limit":      {[]int{10_000, 10_000, 9_000, 9_000}, true},
		"as many bytes as a new run may begin with": {[]int{9_000, 9_000, 9_000}, false},
	} {
		m := model.Message{Kind: model.MessageStart, To: roomy, RequestID: "again"}
		for _, size := range c.sizes {
			m.With = append(m.With, model.Event{Name: "a", Input: text(size)})
		}

		x, _ := startRoomy(t, model.Message{})
		_, d := Deliver(x, &m, x.Last+1, model.RunID{2}, narrow)
		want := len(c.sizes)
		if c.refused {
			want = 0
		}
		if fault.Is(d.Refusal(), fault.Exhausted) != c.refused || d.HasWrites() == c.refused || x.Signals() != want {
			t.Errorf("%s: %d signals: %v", what, x.Signals(), d.Refusal())
		}
	}
}

// If a turn does not fit, the core refuses the whole turn, and the error names the limit. It
// accepts the turn that ends the run. The limit of unread messages bounds what the next run begins
// with.
func TestHistoryBytesAreBounded(t *testing.T) {
	t.Parallel()
	x, _ := startRoomy(t, model.Message{Input: text(1000)})
	step := func(n int) *model.Turn {
		return &model.Turn{Seen: x.Next - 1, Commands: []model.Command{{Kind: model.CommandRecord, Event: model.Event{Kind: model.EventStepCompleted, ID: "s", Output: text(n)}}}}
	}
	if _, _, err := Apply(x, step(70_000), x.Last, model.RunID{}, narrow); err != nil || x.Warning(narrow) != nil {
		t.Fatal(err)
	}

	before := x.Clone()
	_, d, err := Apply(x, step(40_000), x.Last, model.RunID{}, narrow)
	if !fault.Is(err, fault.Exhausted) || d.HasWrites() || x.Bytes() != before.Bytes() || !strings.Contains(err.Error(), "limit of 100000") {
		t.Errorf("a turn beyond the limit: %v", err)
	}
	if _, _, err := Apply(x, step(15_000), x.Last, model.RunID{}, narrow); err != nil {
		t.Error(err)
	}
	w := x.Warning(narrow)
	if w == nil || w.Code != model.WaitLarge {
		t.Errorf("warned with %v at %d bytes", w, x.Bytes())
	}
	if d, ok := Release(x, x.Next-1, []model.Reason{{Code: model.WaitNothing}}, narrow); !ok || len(d.Mark.Waits) != 2 || d.Mark.Waits[1] != *w {
		t.Errorf("parked with %v", d.Mark)
	}
	if d := send(x, model.MessageSignal, model.Message{Name: "a", Input: text(20_000)}); !fault.Is(d.Refusal(), fault.Exhausted) || !strings.Contains(d.Refusal().Error(), "limit of 100000") {
		t.Errorf("a signal beyond the limit of the history: %v", d.Refusal())
	}
	if d := send(x, model.MessagePause, model.Message{Failure: &model.Failure{Message: strings.Repeat("x", 1<<20)}}); d.Refusal() == nil {
		t.Error("a pause beyond the limit of the history")
	}
	if d := send(x, model.MessageSignal, model.Message{Name: "a", Input: text(5_000)}); d.Refusal() != nil {
		t.Fatal(d.Refusal())
	}

	end := step(40_000)
	end.Close = &model.Close{Status: model.Continued, Input: text(10)}
	next, d, err := Apply(x, end, x.Last, model.RunID{3}, narrow)
	if err != nil || d.Start == nil || next.Unread() < 5_000 || next.Bytes() > 6_000 {
		t.Errorf("continued as new with %d bytes: %v", next.Bytes(), err)
	}
}

// The core cannot refuse an outcome that a run has asked for. If the history has no room for the
// outcome, the core records a small failure instead, so that the code gets an answer.
func TestOutcomesWithoutRoomAreDropped(t *testing.T) {
	t.Parallel()
	x, _ := startRoomy(t, model.Message{})
	spec := &model.TaskSpec{Kind: "work", Queue: "q", Retry: model.Retry{MaxAttempts: 5}}
	turn := &model.Turn{}
	for _, id := range []string{"t1", "t2", "t3"} {
		turn.Commands = append(turn.Commands, model.Command{Kind: model.CommandSchedule, Event: model.Event{ID: id, Task: spec}})
	}
	turn.Commands = append(turn.Commands,
		model.Command{Kind: model.CommandStartChild, Event: model.Event{ID: "c", Target: model.Address{Type: "flow", Key: "child"}}},
		model.Command{Kind: model.CommandSend, Event: model.Event{ID: "m"}, Message: &model.Message{Kind: model.MessageSignal, To: model.Address{Type: "flow", Key: "b"}}})
	if _, _, err := Apply(x, turn, x.Last, model.RunID{}, narrow); err != nil {
		t.Fatal(err)
	}

	report := func(id string, r model.TaskReport) Decision {
		if _, ok := Claim(x, id, "w", x.Last); !ok {
			t.Fatal("not claimed")
		}
		r.Ref = model.ClaimRef{TaskRef: model.TaskRef{ID: id}, Claim: x.Task(id).Claim}
		return Report(x, &r, x.Last, narrow)
	}
	if d := report("t1", model.TaskReport{Output: text(98_300)}); d.Events[0].Kind != model.EventStepCompleted {
		t.Fatal(d.Events)
	}

	dropped := func(what string, d Decision) {
		t.Helper()
		if len(d.Events) != 1 || d.Events[0].Size() > 3000 || len(d.Events[0].Output.Data) > 0 || d.Events[0].Failure.Kind != fault.Exhausted.String() {
			t.Errorf("%s: %+v", what, d.Events)
		}
	}

	dropped("output", report("t2", model.TaskReport{Output: text(5_000)}))
	dropped("failure", report("t3", model.TaskReport{Failure: &model.Failure{Message: strings.Repeat("x", 1<<20), Stack: strings.Repeat("x", 1<<20)}}))
	d := send(x, model.MessageClosed, model.Message{ID: "c", Status: model.Completed, Input: text(5_000)})
	if dropped("child", d); d.Events[0].Status != model.Failed {
		t.Errorf("the child is %s", d.Events[0].Status)
	}
	dropped("answer", send(x, model.MessageAnswer, model.Message{ID: "m", Input: text(5_000)}))
	if x.Bytes() > 110_000 {
		t.Errorf("the history has %d bytes", x.Bytes())
	}
}

// The core cuts long texts of a worker that does not bound its texts itself.
func TestTextsOfForeignWorkersAreCut(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1<<20)
	f := &model.Failure{Kind: long, Type: long, Message: long, Stack: long}
	x, _ := startRoomy(t, model.Message{})
	lim := DefaultLimits

	_, d, err := Apply(x, &model.Turn{Commands: []model.Command{
		{Kind: model.CommandRecord, Event: model.Event{Kind: model.EventStepFailed, ID: "a", Failure: f}},
		{Kind: model.CommandRetry, Event: model.Event{ID: "b", Failure: f}},
		{Kind: model.CommandSend, Event: model.Event{ID: "c"}, Message: &model.Message{Kind: model.MessageCancel, To: model.Address{Type: "flow", Key: "b"}, Failure: f}},
	}}, x.Last, model.RunID{}, lim)
	if err != nil || bytesOf(d.Events) > 100<<10 || d.Messages[0].Failure.Size() > 64<<10 || len(f.Message) != 1<<20 {
		t.Errorf("a turn left %d bytes of events: %v", bytesOf(d.Events), err)
	}
	_, d, err = Apply(x, &model.Turn{Seen: x.Next - 1, Blocked: &model.Reason{Code: model.WaitMismatch, Detail: long}}, x.Last, model.RunID{}, lim)
	if err != nil || len(d.Mark.Blocked.Detail) > model.MaxReasonText {
		t.Errorf("blocked with %d bytes: %v", len(d.Mark.Blocked.Detail), err)
	}
	if d := send(x, model.MessageCancel, model.Message{Failure: f}); d.Events[0].Size() > 64<<10 {
		t.Errorf("a cancel request has %d bytes", d.Events[0].Size())
	}
	if d := send(x, model.MessageTerminate, model.Message{Failure: f}); d.Close.Failure.Size() > 64<<10 {
		t.Errorf("terminated with %d bytes", d.Close.Failure.Size())
	}
	if _, d, _ := Apply(mustStart(t), &model.Turn{Close: &model.Close{Status: model.Failed, Failure: f}}, 2000, model.RunID{}, lim); d.Close.Failure.Size() > 64<<10 {
		t.Errorf("failed with %d bytes", d.Close.Failure.Size())
	}
}

func mustStart(t *testing.T) *Execution {
	x, _ := startRoomy(t, model.Message{})
	return x
}

// Signals of one name leave room for signals of other names, in bytes too.
func TestSignalsOfOneNameLeaveRoom(t *testing.T) {
	t.Parallel()
	x, _ := startRoomy(t, model.Message{})
	sent := 0
	var refusal error
	for refusal == nil {
		d := send(x, model.MessageSignal, model.Message{Name: "never", Input: text(1_000)})
		refusal = d.Refusal()
		sent++
	}
	if !fault.Is(refusal, fault.Exhausted) || !strings.Contains(refusal.Error(), `unread signals "never": at most 22500 of one name may wait`) || sent < 15 {
		t.Errorf("signal %d: %v", sent, refusal)
	}
	_, with := Deliver(x, &model.Message{Kind: model.MessageStart, To: roomy, With: []model.Event{{Name: "never", Input: text(1_000)}}}, x.Last, model.RunID{2}, narrow)
	if !fault.Is(with.Refusal(), fault.Exhausted) {
		t.Errorf("a signal with a start: %v", with.Refusal())
	}
	for _, kind := range []model.MessageKind{model.MessageSignal, model.MessageUpdate, model.MessageSettle} {
		if d := send(x, kind, model.Message{Name: "wanted", Input: text(1_000), RequestID: kind.String()}); d.Refusal() != nil {
			t.Errorf("%s: %v", kind, d.Refusal())
		}
	}
}
