package core_test

import (
	"testing"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/model"
)

// The clock of the node that begins a fork is behind that of the node which the past was made by. What is recorded is not older than the past, nor than
// its beginning when nothing of it was kept: the code would see time go back.
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
		if err := d.Refused(); err != nil {
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
