package storetest

import (
	"strings"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

var labelTests = []test{
	{name: "labels of a start", run: testStartLabels},
	{name: "a start that makes way leaves no labels", run: testLabelsOfAbsent},
	{name: "labels change with an event", run: testLabelChanges},
	{name: "a label of nothing refuses the batch", run: testLabelOfNothing},
	{name: "a refused batch changes no label", run: testRefusedLabels},
	{name: "the largest labels", run: testLargestLabels},
	{name: "labels are listed newest first, in pages", run: testLabelPages},
	{name: "labels survive", run: testDurableLabels, needs: durable},
}

// labels returns labels. The arguments are name, value, name, value, …
func labels(pairs ...string) (out []model.Label) {
	for i := 0; i < len(pairs); i += 2 {
		out = model.SetLabel(out, pairs[i], pairs[i+1])
	}
	return out
}

// labeledRun returns a run that is started with labels.
func (x *suite) labeledRun(key string, pairs ...string) Subject {
	s := x.SubjectOf(model.Address{Tenant: "t", Type: "w", Key: key})
	s.Start.Labels = labels(pairs...)
	return s
}

// by returns a query by labels. The arguments are name, value, name, value, …
func by(pairs ...string) store.Query {
	q := store.Query{Tenant: "t"}
	for _, l := range labels(pairs...) {
		q.Labels = append(q.Labels, model.LabelCondition{Name: l.Name, Values: []string{l.Value}})
	}
	return q
}

// Label returns the change of a label of the run.
func (s Subject) Label(name, value string) store.LabelRow {
	return store.LabelRow{RunKey: s.RunKey, Label: model.Label{Name: name, Value: value}}
}

func (x *suite) wantLabels(what string, s Subject, want ...string) {
	x.Helper()
	var rows []store.LabelRow
	for _, l := range labels(want...) {
		rows = append(rows, store.LabelRow{RunKey: s.RunKey, Label: l})
	}
	x.Want(what, rows, try(x.Store.LoadLabels(x.Context(), []store.RunKey{s.RunKey})).or(x))
}

func testStartLabels(x *suite) {
	l := x.Join(1).Lanes[0]
	a, b, c := x.labeledRun("a", "region", "eu", "tier", "gold"), x.labeledRun("b", "region", "us"), x.labeledRun("c")
	l.Write(func(w *store.Batch) { w.Starts = []store.StartRow{a.StartRow(), b.StartIfAbsent(), c.StartRow()} })

	var want []store.LabelRow
	for _, s := range []Subject{a, b} {
		for _, l := range s.Start.Labels {
			want = append(want, s.Label(l.Name, l.Value))
		}
	}

	if a.Compare(b.RunKey) > 0 {
		want = append(want[2:], want[:2]...)
	}
	x.Want("labels", want, try(x.Store.LoadLabels(x.Context(), []store.RunKey{c.RunKey, b.RunKey, a.RunKey, {Run: x.RunID()}})).or(x))
	x.Want("no keys", []store.LabelRow(nil), try(x.Store.LoadLabels(x.Context(), nil)).or(x))
	row := try(x.Store.LoadExecution(x.Context(), a.Shard, a.Start.Address, a.Run)).or(x)
	x.Want("the start itself", a.Start, row.Start)
	x.Want("by region", []string{"a"}, x.list(by("region", "eu")))
	x.Want("by both", []string{"a"}, x.list(by("region", "eu", "tier", "gold")))
	x.Want("by one of them", []string(nil), x.list(by("region", "us", "tier", "gold")))
	x.Want("in other case", []string(nil), x.list(by("region", "EU")))
	x.Want("by name in other case", []string(nil), x.list(by("Region", "eu")))
	other := by("region", "eu")
	other.Tenant = "other"
	x.Want("of another tenant", []string(nil), x.list(other))
}

func testLabelsOfAbsent(x *suite) {
	l := x.Join(1).Lanes[0]
	a, b, c := x.labeledRun("k", "n", "first"), x.labeledRun("k", "n", "second"), x.labeledRun("c", "n", "other")
	l.Write(func(w *store.Batch) { w.Starts = []store.StartRow{a.StartIfAbsent()} })
	got := l.Write(func(w *store.Batch) { w.Starts = []store.StartRow{b.StartIfAbsent(), c.StartIfAbsent()} })
	if len(got.Existing) != 1 || got.Existing[0].Execution.Start.Run != a.Run {
		x.Fatalf("existing: %+v", got.Existing)
	}
	x.Want("labels of the start that it found", a.Start.Labels, got.Existing[0].Execution.Start.Labels)
	x.wantLabels("of the run that is there", a, "n", "first")
	x.wantLabels("of the run that is not", b)
	x.wantLabels("of the other one", c, "n", "other")
}

func testLabelChanges(x *suite) {
	l := x.Join(1).Lanes[0]
	a := x.labeledRun("a", "keep", "1", "change", "1", "drop", "1")
	l.Write(func(w *store.Batch) { w.Starts = []store.StartRow{a.StartRow()} })

	l.Write(func(w *store.Batch) {
		w.Events = []store.EventRow{a.Event(1)}
		w.Labels = []store.LabelRow{a.Label("change", "2"), a.Label("drop", ""), a.Label("new", "3"), a.Label("never", "")}
	})

	x.wantLabels("after the change", a, "keep", "1", "change", "2", "new", "3")
	x.Want("by the old value", []string(nil), x.list(by("change", "1")))
	x.Want("by the new one", []string{"a"}, x.list(by("change", "2")))
	x.Want("by what is gone", []string(nil), x.list(by("drop", "1")))
	row := try(x.Store.LoadExecution(x.Context(), a.Shard, a.Start.Address, a.Run)).or(x)
	x.Want("what it was started with", a.Start, row.Start)

	// The last change is in the batch that closes the run. The closed run keeps it.
	l.Write(func(w *store.Batch) {
		w.Closes = []store.CloseRow{a.Close(model.Completed)}
		w.Labels = []store.LabelRow{a.Label("change", "3")}
	})

	x.wantLabels("of a closed run", a, "keep", "1", "change", "3", "new", "3")
	next := x.labeledRun("a", "change", "4")
	l.Write(func(w *store.Batch) { w.Starts = []store.StartRow{next.Replace(a.Run)} })
	x.Want("the run before", []string(nil), x.list(by("change", "3")))
	all := by("change", "3")
	all.AllRuns = true
	x.Want("the run before, among all", []string{"a"}, x.list(all))
	x.Want("the current run", []string{"a"}, x.list(by("change", "4")))
}

func testLabelOfNothing(x *suite) {
	l := x.Join(1).Lanes[0]
	b := l.Batch()
	b.Labels = []store.LabelRow{x.labeledRun("a").Label("n", "1")}
	l.Refuse(b, store.Refused)
	a := x.labeledRun("a")
	l.Write(func(w *store.Batch) {
		w.Starts = []store.StartRow{a.StartRow()}
		w.Labels = []store.LabelRow{a.Label("n", "1")}
	})
	x.wantLabels("of a run that starts in the batch", a, "n", "1")
}

func testRefusedLabels(x *suite) {
	l := x.Join(1).Lanes[0]
	a, b := x.labeledRun("a", "n", "1", "m", "1"), x.labeledRun("b", "n", "1")
	l.Write(func(w *store.Batch) { w.Starts = []store.StartRow{a.StartRow()} })
	before := x.Contents()
	w := l.Batch()
	w.Starts = []store.StartRow{b.StartRow()}
	w.Labels = []store.LabelRow{a.Label("n", "2"), a.Label("m", ""), a.Label("o", "1")}
	w.Free = []model.ShardID{model.MaxShards - 1} // the node does not own it: refuses the batch
	l.Refuse(w, store.Refused)
	x.Want("contents", before, x.Contents())
}

func testLargestLabels(x *suite) {
	l := x.Join(1).Lanes[0]
	a := x.labeledRun("a")
	long := func(c string, n int) string { return strings.Repeat(c, n) }
	for i := range model.MaxLabels {
		a.Start.Labels = model.SetLabel(a.Start.Labels, long(string(rune('A'+i)), model.MaxLabelName), long("é", model.MaxLabelValue/2))
	}
	l.Write(func(w *store.Batch) { w.Starts = []store.StartRow{a.StartRow()} })
	x.Want("by the longest", []string{"a"}, x.list(by(long("C", model.MaxLabelName), long("é", model.MaxLabelValue/2))))
	got := try(x.Store.LoadLabels(x.Context(), []store.RunKey{a.RunKey})).or(x)
	if len(got) != model.MaxLabels {
		x.Errorf("%d labels, want %d", len(got), model.MaxLabels)
	}
}

func testLabelPages(x *suite) {
	l := x.Join(1).Lanes[0]
	want := map[string][]string{}
	for i := range 30 {
		value := []string{"eu", "us", "us"}[i%3]
		s := x.labeledRun(string(rune('A'+i)), "region", value)
		s.Start.At = Noon + model.Time(i/4) // four runs have the same time
		l.Write(func(w *store.Batch) { w.Starts = []store.StartRow{s.StartRow()} })
		for _, v := range []string{value, "both"} {
			want[v] = append([]string{s.Start.Address.Key}, want[v]...)
		}
	}

	for value, keys := range want {
		q := store.Query{Tenant: "t", Limit: 4, Labels: []model.LabelCondition{{Name: "region", Values: []string{value}}}}
		if value == "both" {
			q.Labels[0].Values = []string{"eu", "us", "nowhere"}
		}
		x.Want("pages of "+value, keys, x.pages(q))
	}
}

// pages returns everything that matches, read page by page.
func (x *suite) pages(q store.Query) (keys []string) {
	x.Helper()
	for {
		p := try(x.Store.List(x.Context(), q)).or(x)
		for i := range p.Executions {
			keys = append(keys, p.Executions[i].Start.Address.Key)
		}
		if !p.More || len(p.Executions) == 0 {
			return keys
		}
		last := p.Executions[len(p.Executions)-1].Start
		q.After = store.PageMark{Started: last.At, Run: last.Run}
	}
}

func testDurableLabels(x *suite) {
	l := x.Join(1).Lanes[0]
	a := x.labeledRun("a", "region", "eu")
	l.Write(func(w *store.Batch) { w.Starts = []store.StartRow{a.StartRow()} })
	l.Write(func(w *store.Batch) { w.Labels = []store.LabelRow{a.Label("region", "us")} })
	x.reopen()
	x.wantLabels("after it was opened again", a, "region", "us")
	x.Want("by the value", []string{"a"}, x.list(by("region", "us")))
}
