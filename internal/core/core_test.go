package core_test

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

func TestRecoverRefusesBrokenHistories(t *testing.T) {
	t.Parallel()
	start := model.Start{Run: runID(1), At: epoch, Carried: []model.Event{{Seq: 1, At: epoch, Kind: model.EventSignalReceived}}}
	running := model.Outcome{Status: model.Running}
	good := []model.Event{{Seq: 2, At: epoch, Kind: model.EventStepCompleted}, {Seq: 3, At: epoch + 1, Kind: model.EventStepCompleted}}
	if x, err := core.Recover(start, running, good, nil); err != nil || x.Next != 4 || x.Last != epoch+1 {
		t.Fatalf("a good history = %+v, %v", x, err)
	}

	for name, events := range map[string][]model.Event{
		"a gap":               {good[0], {Seq: 4, At: epoch + 1}},
		"a position twice":    {good[0], good[0]},
		"not from the start":  {good[1]},
		"the carried again":   {{Seq: 1, At: epoch}},
		"backwards":           {good[1], good[0]},
		"time goes back":      {{Seq: 2, At: epoch + 5}, {Seq: 3, At: epoch + 4}},
		"older than the run":  {{Seq: 2, At: epoch - 1}},
		"a negative position": {{Seq: -1, At: epoch}},
	} {
		if _, err := core.Recover(start, running, events, nil); !fault.Is(err, fault.Corrupt) || !strings.Contains(err.Error(), runID(1).String()) {
			t.Errorf("%s: %v, want a Corrupt error that names the run", name, err)
		}
	}
}

// A worker may have received the firing of a timer, but not yet have reported it, when the owner
// reads the state of the run again. If the worker sent a request for this timer before it saw the
// firing, the request must not start the timer a second time (I4).
func TestRecoveredRunKnowsFirings(t *testing.T) {
	t.Parallel()
	w := newWorld(t.Fatalf)
	a := address("order")
	w.deliver(&model.Message{Kind: model.MessageStart, To: a})
	ask := []model.Command{{Kind: model.CommandStartTimer, Event: model.Event{ID: "nap", Due: epoch + 5}}}
	if _, err := w.turn(a, &model.Turn{Run: runID(1), Commands: ask}); err != nil {
		t.Fatal(err)
	}

	w.now = epoch + 10
	w.fire(a, "nap")
	s := w.seat(a)
	x, err := core.Recover(s.last().start, s.last().outcome, s.last().events, nil)
	if err != nil {
		t.Fatal(err)
	}

	s.x = x
	d, err := w.turn(a, &model.Turn{Run: runID(1), Seen: 0, Commands: ask})
	if err != nil || len(d.StartTimers) > 0 {
		t.Errorf("the timer was started again: %v, %v", d.StartTimers, err)
	}
}

// A timer becomes due no later than the requested delay from now, even when the time of the history
// is ahead of the clock.
func TestTimerOfAHistoryThatIsAhead(t *testing.T) {
	t.Parallel()
	const second = 1_000_000
	for name, c := range map[string]struct {
		due   model.Time // the time that the code asks for
		delay time.Duration
		want  model.Time
	}{
		"history in step":      {epoch + second, time.Second, epoch + second},
		"history older":        {epoch + second - 5, time.Second, epoch + second - 5},
		"history a day ahead":  {epoch + 86_400*second + second, time.Second, epoch + second},
		"code ahead":           {0, time.Second, epoch + second},
		"no delay is told":     {epoch + 86_400*second, 0, epoch + 86_400*second},
		"nothing, a day ahead": {epoch + 86_400*second, time.Microsecond, epoch + 1},
	} {
		w := newWorld(t.Fatalf)
		a := address("order")
		w.now = epoch
		w.deliver(&model.Message{Kind: model.MessageStart, To: a})
		d, err := w.turn(a, &model.Turn{Run: runID(1), Commands: []model.Command{
			{Kind: model.CommandStartTimer, Event: model.Event{ID: "nap", Due: c.due}, Delay: c.delay},
		}})
		if err != nil || len(d.StartTimers) != 1 || d.StartTimers[0].Due != c.want {
			t.Errorf("%s: %v, %v; want it due at %s", name, d.StartTimers, err, c.want)
		}
	}
}

func TestCloneIsIndependent(t *testing.T) {
	t.Parallel()
	if (*core.Execution)(nil).Clone() != nil {
		t.Error("the clone of nothing is something")
	}
	w := newWorld(t.Fatalf)
	a := address("order")

	deliver := func(x *core.Execution, m model.Message) {
		m.To = a
		if _, d := core.Deliver(x, &m, w.now, runID(9), w.lim); d.Refusal() != nil {
			t.Fatal(d.Refusal())
		}
	}

	turn := func(x *core.Execution, commands ...model.Command) {
		if _, _, err := core.Apply(x, &model.Turn{Seen: x.Next - 1, Commands: commands}, w.now, runID(9), w.lim); err != nil {
			t.Fatal(err)
		}
	}

	grow := func(x *core.Execution, n string) {
		deliver(x, model.Message{Kind: model.MessageSignal, Name: n})
		deliver(x, model.Message{Kind: model.MessageSettle, Name: n})
		deliver(x, model.Message{Kind: model.MessageWatch, From: model.Link{Address: a, ID: n}})
		deliver(x, model.Message{Kind: model.MessageUpdate, Name: n})
		turn(
			x,
			model.Command{Kind: model.CommandStartTimer, Event: model.Event{ID: n, Due: w.now}},
			model.Command{Kind: model.CommandStartChild, Event: model.Event{ID: "child " + n, Target: a}},
			model.Command{Kind: model.CommandSend, Event: model.Event{ID: "call " + n, Target: a}, Message: &model.Message{Kind: model.MessageSignal, To: a}},
			model.Command{Kind: model.CommandRecord, Event: model.Event{Kind: model.EventStateSet, Name: n, Output: value("1")}},
		)
	}

	grown := func() *core.Execution {
		x, _ := core.Deliver(nil, &model.Message{Kind: model.MessageStart, To: a}, w.now, runID(1), w.lim)
		for _, n := range []string{"one", "two", "three"} {
			grow(x, n)
		}
		return x
	}

	x, same := grown(), grown()
	c := x.Clone()
	if diff := core.Diff(x, c); diff != "" {
		t.Fatalf("the clone differs:\n%s", diff)
	}

	// Remove the first child, call, timer, signal, update and state. Later steps add others.
	deliver(c, model.Message{Kind: model.MessageClosed, ID: "child one"})
	deliver(c, model.Message{Kind: model.MessageAnswer, ID: "call one"})
	core.Fire(c, "one", w.now)
	has := core.FactsOf(c)

	turn(
		c,
		model.Command{Kind: model.CommandRecord, Event: model.Event{Kind: model.EventSignalTaken, Ref: has.Signals[0]}},
		model.Command{Kind: model.CommandAnswer, Event: model.Event{Ref: has.Updates[0]}},
		model.Command{Kind: model.CommandRecord, Event: model.Event{Kind: model.EventStateSet, Name: "one"}},
	)

	if diff := core.Diff(x, same); diff != "" {
		t.Errorf("taking from the clone changed the original:\n%s", diff)
	}
	grow(c, "four")
	if diff := core.Diff(x, same); diff != "" {
		t.Errorf("adding to the clone changed the original:\n%s", diff)
	}
	grow(c, "five")
	if c.Size() <= x.Size() || x.Signals() != 3 || c.Signals() != 4 {
		t.Errorf("sizes %d and %d, signals %d and %d", x.Size(), c.Size(), x.Signals(), c.Signals())
	}
}

// The size of a run includes everything that the run holds for its code, for as long as the run
// holds it.
func TestSizeFollowsWhatIsHeld(t *testing.T) {
	t.Parallel()
	w := newWorld(t.Fatalf)
	a := address("order")
	const big = 1000
	load := value(strings.Repeat("x", big))
	w.deliver(&model.Message{Kind: model.MessageStart, To: a})

	turn := func(e model.Event, k model.CommandKind) {
		if _, err := w.turn(a, &model.Turn{Run: runID(1), Seen: w.seat(a).x.Next - 1, Commands: []model.Command{{Kind: k, Event: e}}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name     string
		put, end func()
	}{
		{
			"a signal",
			func() { w.deliver(&model.Message{Kind: model.MessageSignal, To: a, Input: load}) },
			func() {
				turn(model.Event{Kind: model.EventSignalTaken, Ref: w.seat(a).x.Next - 1}, model.CommandRecord)
			},
		},
		{
			"an update",
			func() { w.deliver(&model.Message{Kind: model.MessageUpdate, To: a, Input: load}) },
			func() { turn(model.Event{Ref: w.seat(a).x.Next - 1}, model.CommandAnswer) },
		},
		{
			"a value",
			func() { turn(model.Event{Kind: model.EventStateSet, Name: "n", Output: load}, model.CommandRecord) },
			func() { turn(model.Event{Kind: model.EventStateSet, Name: "n"}, model.CommandRecord) },
		},
	} {
		before := w.seat(a).x.Size()
		c.put()
		if got := w.seat(a).x.Size(); got < before+big {
			t.Errorf("%s of %d bytes: the size grows from %d to %d", c.name, big, before, got)
		}
		c.end()
		if got := w.seat(a).x.Size(); got != before {
			t.Errorf("%s is gone: the size is %d, was %d", c.name, got, before)
		}
	}
}

// A step may have any name that can be stored, even one that looks like the id of the timer for
// another step's back-off.
func TestRetryOf(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"", "retry", "retry\x1f", "retry\x1f1", "x\x1f1\x1fa", "Retry\x1f1\x1fa", "0|timer|1"} {
		if step, ok := core.RetryOf(id); ok {
			t.Errorf("%q is the back-off of %q", id, step)
		}
	}

	rapid.Check(t, func(t *rapid.T) {
		names := rapid.String().Filter(func(s string) bool { return utf8.ValidString(s) && !strings.Contains(s, "\x00") })
		step := rapid.OneOf(names, rapid.SampledFrom([]string{"", "\x1f", "a\x1fb", "retry\x1f1\x1fa"})).Draw(t, "step")
		w := newWorld(t.Fatalf)
		a := address("order")
		w.deliver(&model.Message{Kind: model.MessageStart, To: a})
		d, err := w.turn(a, &model.Turn{Commands: []model.Command{{Kind: model.CommandRetry, Event: model.Event{ID: step, Attempt: rapid.IntRange(-1, 1<<40).Draw(t, "attempt")}}}})
		if err != nil || len(d.StartTimers) != 1 {
			t.Fatalf("retry of %q: %v, %v", step, d.StartTimers, err)
		}
		if got, ok := core.RetryOf(d.StartTimers[0].ID); !ok || got != step {
			t.Fatalf("%q is the back-off of %q, want %q", d.StartTimers[0].ID, got, step)
		}
		if d := w.fire(a, d.StartTimers[0].ID); d.Retry != step {
			t.Fatalf("fired for %q, want %q", d.Retry, step)
		}
	})
}

func TestRefusalOf(t *testing.T) {
	t.Parallel()
	if err := core.RefusalOf(model.Answer{Run: runID(1)}); err != nil {
		t.Errorf("an answer without a failure = %v", err)
	}
	for k := fault.NotFound; k <= fault.Internal; k++ {
		err := core.RefusalOf(model.Answer{Failure: &model.Failure{Kind: k.String(), Message: "100% sure"}})
		if !fault.Is(err, k) || err.Error() != "100% sure" {
			t.Errorf("refusal of kind %s = %v", k, err)
		}
	}
}
