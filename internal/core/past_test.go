package core_test

import (
	"testing"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/model"
)

// The clock of the node that begins a fork is behind the clock of the node that recorded the past.
// New events are not older than the last event of the past. If the fork keeps no event, they are
// not older than the start of the forked run. Otherwise the code would see time go back.
func TestPastOfAClockThatIsAhead(t *testing.T) {
	t.Parallel()
	for _, kept := range [][]model.Event{nil, {{Kind: model.EventStepCompleted, ID: "a", At: 2000}}} {
		began := model.Time(1000)
		last := began
		if len(kept) > 0 {
			last = kept[len(kept)-1].At
		}
		to := model.Address{Tenant: "t", Type: "wf", Key: "fork"}
		m := model.Message{Kind: model.MessageStart, To: to, Past: &model.Past{
			Began: began, Events: model.PastOf(kept), Source: model.Source{Address: to, Run: model.RunID{1}, Position: int64(len(kept))},
		}}
		x, d := core.Deliver(nil, &m, 500, model.RunID{2}, core.DefaultLimits)
		if err := d.Refusal(); err != nil {
			t.Fatal(err)
		}

		start := *d.Start
		_, d = core.Deliver(x, &model.Message{Kind: model.MessageSignal, To: to, Name: "s"}, 510, model.RunID{}, core.DefaultLimits)
		if len(d.Events) != 1 || d.Events[0].At < last {
			t.Errorf("with %d events kept, recorded %+v, want it not before %d", len(kept), d.Events, last)
		}
		if y, err := core.Recover(start, model.Outcome{Status: model.Running}, d.Events, nil); err != nil || y.Last != x.Last {
			t.Errorf("recovered with %+v, %v; last is %d", y, err, x.Last)
		}
	}
}

// The clock of the node that resets a run is behind the clock of the node that began it. The new
// run takes over the watchers, with times that are not older than the beginning of the run.
// Otherwise the core would refuse the reset.
func TestResetOfAClockThatIsAhead(t *testing.T) {
	t.Parallel()
	to, old := model.Address{Tenant: "t", Type: "wf", Key: "k"}, model.RunID{1}
	x, _ := core.Deliver(nil, &model.Message{Kind: model.MessageStart, To: to}, 1000, old, core.DefaultLimits)
	watcher := model.Link{Address: model.Address{Tenant: "t", Type: "wf", Key: "w"}, Run: model.RunID{9}, ID: "a"}
	x, _ = core.Deliver(x, &model.Message{Kind: model.MessageWatch, To: to, From: watcher}, 1000, model.RunID{}, core.DefaultLimits)

	m := model.Message{Kind: model.MessageStart, To: to, ToRun: old, Past: &model.Past{Began: 1000, Next: x.Next, Source: model.Source{Address: to, Run: old}}}
	_, d := core.Deliver(x, &m, 500, model.RunID{2}, core.DefaultLimits)
	if err := d.Refusal(); err != nil {
		t.Fatal(err)
	}
	if c := d.Start.Carried; len(c) != 1 || c[0].Waiter() != watcher || c[0].At < 1000 {
		t.Errorf("the next run begins with %+v, want its watcher, not before 1000", c)
	}
}

// The clock of the node that begins a run with a past is behind the start time of the past. If the
// code has begun in the past, the run does not wait for that time again, and a cancel request lets
// the code clean up. If the code has not begun, it waits.
func TestPastOfADelayedRun(t *testing.T) {
	t.Parallel()
	for _, kept := range [][]model.Event{nil, {{Kind: model.EventStepCompleted, ID: "a", At: 2000}}} {
		to := model.Address{Tenant: "t", Type: "wf", Key: "fork"}
		m := model.Message{Kind: model.MessageStart, To: to, Past: &model.Past{
			Began: 1000, Begins: 1500, Events: model.PastOf(kept), Source: model.Source{Address: to, Run: model.RunID{1}, Position: int64(len(kept))},
		}}
		x, d := core.Deliver(nil, &m, 500, model.RunID{2}, core.DefaultLimits)
		if err := d.Refusal(); err != nil {
			t.Fatal(err)
		}

		if waits := x.Withheld() != nil; waits != (kept == nil) || len(x.Timers()) > 0 != waits {
			t.Errorf("with %d events kept, the run waits: %v, with timers %v", len(kept), waits, x.Timers())
		}
		x, _ = core.Deliver(x, &model.Message{Kind: model.MessageCancel, To: to}, 510, model.RunID{}, core.DefaultLimits)
		if x.Open() != (kept != nil) {
			t.Errorf("with %d events kept, the canceled run is %s", len(kept), x.Outcome.Status)
		}
	}
}
