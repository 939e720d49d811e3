package lane_test

import (
	"slices"
	"testing"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

func labelCommand(id, name, value string) model.Command {
	return model.Command{Kind: model.CommandRecord, Event: model.Event{
		Kind: model.EventLabeled, ID: id, Name: name, Output: model.TextPayload(value),
	}}
}

func (r *rig) labels(a model.Address) (out []string) {
	r.t.Helper()
	rows, err := r.st.LoadLabels(r.t.Context(), []store.RunKey{{Shard: a.Shard(shards), Run: r.current(a).Start.Run}})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, row := range rows {
		out = append(out, row.Label.Name+"="+row.Label.Value)
	}
	return out
}

func (r *rig) wantLabels(a model.Address, want ...string) {
	r.t.Helper()
	if got := r.labels(a); !slices.Equal(got, want) {
		r.t.Errorf("%s has the labels %v, want %v", a, got, want)
	}
}

// A batch has one write per label: the last of several changes wins. After a refused batch, the
// lane applies the label changes again.
func TestLabelsOfABatch(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a, b := in(0, 0), in(1, 0)
	r.send(model.Message{Kind: model.MessageStart, To: a, Labels: []model.Label{{Name: "m", Value: "1"}, {Name: "o", Value: "1"}}}, "a")
	r.settle()
	r.wantLabels(a, "m=1", "o=1")

	r.start(b, "b")
	r.flush() // the batch is in flight
	r.turn(a, commandTurn(labelCommand("1", "l", "1"), labelCommand("2", "m", "2"), labelCommand("3", "l", "2"), labelCommand("4", "o", "")))
	r.turn(a, commandTurn(labelCommand("5", "m", ""), labelCommand("6", "n", "1")))
	r.flush()
	r.commitNow()
	var rows []string
	for _, l := range r.commit.Labels {
		rows = append(rows, l.Label.Name+"="+l.Label.Value)
	}
	if want := []string{"l=2", "m=", "o=", "n=1"}; !slices.Equal(rows, want) {
		t.Errorf("the batch writes %v, want %v", rows, want)
	}
	r.settle()
	r.wantLabels(a, "l=2", "n=1")
	r.wantEvents(a, "labeled 1", "labeled 2", "labeled 3", "labeled 4", "labeled 5", "labeled 6")

	refused := 0
	r.refuse = func(*store.Batch) error {
		if refused++; refused > 1 {
			return nil
		}
		return store.Errorf(store.Refused, "commit", "poison")
	}
	next := model.Turn{Commands: []model.Command{labelCommand("7", "l", "3")}, Close: &model.Close{Status: model.Continued}}
	r.turn(a, next)
	r.signal(b, "s", "s")
	r.settle()
	r.wantLabels(a, "l=3", "n=1")
	if run := r.current(a).Start; run.Previous.IsZero() || len(run.Labels) != 2 {
		t.Errorf("the next run begins as %+v", run)
	}
}

// A run is reset twice, the second time to an earlier position. It then has the labels that it had
// at that position.
func TestLabelsOfRunsWithAPast(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a := key("a")
	r.send(model.Message{Kind: model.MessageStart, To: a, Labels: []model.Label{{Name: "m", Value: "1"}, {Name: "o", Value: "1"}}}, "a")
	r.settle()
	r.turn(a, commandTurn(step("one"), labelCommand("1", "l", "1"), labelCommand("2", "m", "2"), labelCommand("3", "o", "")))
	r.settle()

	reset := func(keep int) {
		t.Helper()
		run := r.current(a).Start.Run
		past := r.history(a, run)
		r.send(model.Message{Kind: model.MessageStart, To: a, ToRun: run, Labels: r.current(a).Start.Labels, Past: &model.Past{
			Events: model.PastOf(past[:keep]), Next: int64(len(past)) + 1, Source: model.Source{Address: a, Run: run, Position: int64(keep)},
		}}, keep)
		r.settle()
		r.wantAnswer(keep, "")
	}

	reset(4)
	r.wantLabels(a, "l=1", "m=2")
	reset(1)
	r.wantLabels(a, "m=1", "o=1")
}
