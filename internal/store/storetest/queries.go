package storetest

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

var queryTests = []test{
	{name: "reasons of open runs", run: testReasons},
	{name: "times of closing", run: testClosedTimes},
	{name: "random queries select what a naive filter does", run: testRandomQueries},
}

func testReasons(x *suite) {
	l := x.Join(1).Lanes[0]
	mark := func(key string, m store.MarkRow) Subject {
		s := x.labeledRun(key)
		m.RunKey = s.RunKey
		l.Write(func(w *store.Batch) { w.Starts, w.Marks = []store.StartRow{s.StartRow()}, []store.MarkRow{m} })
		return s
	}

	signal := []model.Reason{{Code: model.WaitSignal, Name: "go"}, {Code: model.WaitTimer}}
	mismatch := &model.Reason{Code: model.WaitMismatch, Detail: "why"}
	mark("ready", store.MarkRow{})
	waits := mark("waits", store.MarkRow{Parked: true, Waits: signal})
	blocked := mark("blocked", store.MarkRow{Blocked: mismatch})
	mark("both", store.MarkRow{Parked: true, Waits: signal, Blocked: mismatch})
	mark("limit", store.MarkRow{Blocked: &model.Reason{Code: model.WaitLimit}})
	mark("unpark", store.MarkRow{Waits: signal})

	want := func(keys string, codes ...model.ReasonCode) {
		x.Helper()
		x.Want(fmt.Sprint(codes), strings.Fields(keys), x.list(store.Query{Tenant: "t", Reasons: codes}))
	}

	want("both blocked", model.WaitMismatch)
	want("limit both blocked", model.WaitMismatch, model.WaitLimit)
	want("waits", model.WaitSignal)
	want("both blocked waits", model.WaitSignal, model.WaitMismatch)
	want("unpark ready", model.WaitTurn)
	want("", model.WaitTimer, "unheard")

	l.Write(func(w *store.Batch) {
		w.Marks = []store.MarkRow{waits.Unpark()}
		w.Closes = []store.CloseRow{blocked.Close(model.Canceled)}
	})

	want("both", model.WaitMismatch)
	want("", model.WaitSignal)
	want("unpark waits ready", model.WaitTurn)
}

func testClosedTimes(x *suite) {
	l := x.Join(1).Lanes[0]
	for i := range 4 {
		s := x.labeledRun(fmt.Sprint("k", i))
		o := s.Close(model.Completed)
		o.Outcome.At = Noon + model.Time(10*i)
		l.Write(func(w *store.Batch) { w.Starts, w.Closes = []store.StartRow{s.StartRow()}, []store.CloseRow{o} })
	}
	x.begin(l, "t", "w", "open", Noon)
	x.Want("from", []string{"k3", "k2"}, x.list(store.Query{Tenant: "t", ClosedFrom: Noon + 20}))
	x.Want("to", []string{"k1", "k0"}, x.list(store.Query{Tenant: "t", ClosedTo: Noon + 20}))
	x.Want("both", []string{"k2", "k1"}, x.list(store.Query{Tenant: "t", ClosedFrom: Noon + 1, ClosedTo: Noon + 21}))
}

// one is a run with the properties that queries select by.
type one struct {
	row    store.Execution
	labels []model.Label
}

// naive reports whether a query selects the run. It checks the conditions one by one.
func (o *one) naive(q *store.Query) bool {
	s, end := &o.row.Start, &o.row.Outcome
	holds := func(given bool, is bool) bool { return !given || is }
	all := s.Address.Tenant == q.Tenant && (q.AllRuns || o.row.Current) &&
		holds(len(q.Workflows) > 0, slices.Contains(q.Workflows, s.Address.Type)) &&
		holds(q.Key != "", s.Address.Key == q.Key) &&
		holds(q.KeyPrefix != "", strings.HasPrefix(s.Address.Key, q.KeyPrefix)) &&
		holds(len(q.Statuses) > 0, slices.Contains(q.Statuses, end.Status)) &&
		holds(len(q.Reasons) > 0, slices.Contains(q.Reasons, o.reason())) &&
		holds(q.StartedFrom != 0, s.At >= q.StartedFrom) && holds(q.StartedTo != 0, s.At < q.StartedTo) &&
		holds(q.ClosedFrom != 0, end.Status != model.Running && end.At >= q.ClosedFrom) &&
		holds(q.ClosedTo != 0, end.Status != model.Running && end.At < q.ClosedTo)
	for _, c := range q.Labels {
		has := false
		for _, l := range o.labels {
			has = has || l.Name == c.Name && slices.Contains(c.Values, l.Value)
		}
		all = all && has != c.Not
	}

	return all
}

func (o *one) reason() model.ReasonCode {
	switch {
	case o.row.Outcome.Status != model.Running:
		return ""
	case o.row.Blocked != nil:
		return o.row.Blocked.Code
	case o.row.Parked && len(o.row.Waits) > 0:
		return o.row.Waits[0].Code
	}
	return model.WaitTurn
}

var (
	queryWorkflows = []string{"order", "order-item", "ship"}
	queryKeys      = []string{"a", "a-1", "a-2", "b%", "b_", "é", "'"}
	queryValues    = []string{"eu", "us", "%", "'"}
	queryWaits     = []model.ReasonCode{model.WaitTimer, model.WaitSignal, model.WaitTurn}
	queryBlocks    = []model.ReasonCode{model.WaitMismatch, model.WaitPoison, model.WaitLimit}
)

// fill fills the store with runs in all states and remembers them, newest first.
func (x *suite) fill(l *Lane) (all []*one) {
	rng := rand.New(rand.NewPCG(7, 7))
	pick := func(from ...string) string { return from[rng.IntN(len(from))] }
	label := func(values ...string) model.Label {
		return model.Label{Name: pick("region", "tier"), Value: pick(values...)}
	}

	current := map[model.Address]*one{}
	for range 150 {
		a := model.Address{Tenant: pick("t", "t", "u"), Type: pick(queryWorkflows...), Key: pick(queryKeys...)}
		s := x.SubjectOf(a)
		s.Start.At = Noon + model.Time(rng.IntN(30))

		for range rng.IntN(3) {
			n := label(queryValues...)
			s.Start.Labels = model.SetLabel(s.Start.Labels, n.Name, n.Value)
		}

		o := &one{row: s.Execution(), labels: s.Start.Labels}
		row := s.StartRow()
		if old := current[a]; old != nil {
			if old.row.Outcome.Status == model.Running {
				continue
			}
			old.row.Current, row.Replaces = false, old.row.Start.Run
		}

		b := l.Batch()
		b.Starts = []store.StartRow{row}
		if rng.IntN(2) == 0 {
			m := store.MarkRow{RunKey: s.RunKey, Parked: rng.IntN(3) > 0}
			if rng.IntN(3) > 0 {
				m.Waits = []model.Reason{{Code: queryWaits[rng.IntN(len(queryWaits))]}, {Code: model.WaitChild}}
			}
			if rng.IntN(4) == 0 {
				m.Blocked = &model.Reason{Code: queryBlocks[rng.IntN(len(queryBlocks))]}
			}
			b.Marks, o.row.Parked, o.row.Waits, o.row.Blocked = []store.MarkRow{m}, m.Parked, m.Waits, m.Blocked
		}

		if rng.IntN(3) == 0 {
			change := store.LabelRow{RunKey: s.RunKey, Label: label(append(queryValues, "")...)}
			b.Labels, o.labels = []store.LabelRow{change}, model.SetLabel(o.labels, change.Label.Name, change.Label.Value)
		}

		l.Commit(b)
		if rng.IntN(3) > 0 {
			c := s.Close(model.Completed + model.Status(rng.IntN(3)))
			c.Outcome.At = Noon + 30 + model.Time(rng.IntN(30))
			l.Write(func(b *store.Batch) { b.Closes = []store.CloseRow{c} })
			o.row.Outcome, o.row.Parked, o.row.Waits, o.row.Blocked = c.Outcome, false, nil, nil
		}

		current[a] = o
		all = append(all, o)
	}

	slices.SortFunc(all, func(a, b *one) int {
		return cmp.Or(cmp.Compare(b.row.Start.At, a.row.Start.At), b.row.Start.Run.Compare(a.row.Start.Run))
	})
	return all
}

// anyQuery generates a query with a few conditions.
var anyQuery = rapid.Custom(func(t *rapid.T) store.Query {
	q := store.Query{Tenant: rapid.SampledFrom([]string{"t", "t", "u", "nobody"}).Draw(t, "tenant"), AllRuns: rapid.Bool().Draw(t, "all")}
	some := func(what string) bool { return rapid.IntRange(0, 3).Draw(t, what+"?") == 0 }
	at := func(from int) model.Time { return Noon + model.Time(from+rapid.IntRange(0, 30).Draw(t, "bound")) }
	if some("workflow") {
		q.Workflows = rapid.SliceOfN(rapid.SampledFrom(append(queryWorkflows, "x")), 1, 3).Draw(t, "workflows")
	}
	if some("key") {
		q.Key = rapid.SampledFrom(append(queryKeys, "x")).Draw(t, "key")
	}
	if some("prefix") {
		q.KeyPrefix = rapid.SampledFrom([]string{"a", "a-", "b", "b%", "é", "x"}).Draw(t, "prefix")
	}
	if some("status") {
		q.Statuses = rapid.SliceOfN(rapid.SampledFrom([]model.Status{model.Running, model.Completed, model.Failed, model.Canceled}), 1, 3).Draw(t, "statuses")
	}
	if some("reason") {
		q.Reasons = rapid.SliceOfN(rapid.SampledFrom(slices.Concat(queryWaits, queryBlocks, queryBlocks)), 1, 2).Draw(t, "reasons")
	}
	if some("from") {
		q.StartedFrom = at(0)
	}
	if some("to") {
		q.StartedTo = at(0)
	}
	if some("closed from") {
		q.ClosedFrom = at(30)
	}
	if some("closed to") {
		q.ClosedTo = at(30)
	}

	for range rapid.SampledFrom([]int{0, 0, 1, 1, 2}).Draw(t, "labels") {
		q.Labels = append(q.Labels, model.LabelCondition{
			Name:   rapid.SampledFrom([]string{"region", "tier", "x"}).Draw(t, "name"),
			Values: rapid.SliceOfN(rapid.SampledFrom(queryValues), 1, 2).Draw(t, "values"), Not: rapid.Bool().Draw(t, "not"),
		})
	}

	return q
})

func testRandomQueries(x *suite) {
	l := x.Join(1).Lanes[0]
	all := x.fill(l)
	rapid.Check(x.t, func(t *rapid.T) {
		for range 4 {
			q := anyQuery.Draw(t, "query")
			want := []model.RunID{}
			for _, o := range all {
				if o.naive(&q) {
					want = append(want, o.row.Start.Run)
				}
			}

			q.Limit = rapid.IntRange(1, 12).Draw(t, "limit")
			got := []model.RunID{}
			for p := (store.Page{More: true}); p.More; {
				p = try(x.Store.List(x.Context(), q)).or(x)
				for i := range p.Executions {
					got = append(got, p.Executions[i].Start.Run)
				}
				if len(got) > 0 {
					last := p.Executions[len(p.Executions)-1].Start
					q.After = store.PageMark{Started: last.At, Run: last.Run}
				}
			}

			if diff := Diff(want, got); diff != "" {
				t.Fatalf("%+v (-naive +store):\n%s", q, diff)
			}
			if n := try(x.Store.Count(x.Context(), q)).or(x); n != int64(len(want)) {
				t.Fatalf("%+v: count %d, want %d", q, n, len(want))
			}
			x.wantTally(t, q, all)
		}
	})
}

// wantTally compares a tally of the newest executions that a query selects with a naive count.
func (x *suite) wantTally(t *rapid.T, q store.Query, all []*one) {
	by := store.TallyBy{Workflow: rapid.Bool().Draw(t, "by workflow"), Status: rapid.Bool().Draw(t, "by status"), Reason: rapid.Bool().Draw(t, "by reason")}
	want := map[store.TallyGroup]int64{}
	for _, o := range all {
		sum := int64(0)
		for _, n := range want {
			sum += n
		}
		if sum == int64(q.Limit) {
			break
		}
		if !o.naive(&q) {
			continue
		}
		g := store.TallyGroup{}
		if by.Workflow {
			g.Workflow = o.row.Start.Address.Type
		}
		if by.Status {
			g.Status = o.row.Outcome.Status
		}
		if by.Reason {
			g.Reason = o.reason()
		}
		want[g]++
	}

	got := map[store.TallyGroup]int64{}
	for _, g := range try(x.Store.Tally(x.Context(), q, by)).or(x) {
		n := g.Count
		g.Count = 0
		if got[g] != 0 || n == 0 {
			t.Fatalf("%+v by %+v: group %+v has %d, after %d", q, by, g, n, got[g])
		}
		got[g] = n
	}
	if diff := Diff(want, got); diff != "" {
		t.Fatalf("%+v by %+v (-naive +store):\n%s", q, by, diff)
	}
}

// ReasonsOf returns runs with marks of all kinds, and how many runs a query for each reason must
// find. It is for adapters whose first versions could not find runs by reason. The test of such an
// adapter writes these runs, undoes that version of the schema, and opens the store again.
func ReasonsOf(f *Fixture) (marks []store.MarkRow, starts []store.StartRow, want map[model.ReasonCode]int64) {
	many := make([]model.Reason, 30)
	for i := range many {
		many[i] = model.Reason{Code: model.WaitChild, Name: "a longer text, so that lists have heads of every size"}
	}

	want = map[model.ReasonCode]int64{}
	for _, m := range []store.MarkRow{
		{},
		{Parked: true},
		{Parked: true, Waits: []model.Reason{{Code: model.WaitTurn}}},
		{Parked: true, Waits: []model.Reason{{Code: model.WaitSignal, Name: "go"}, {Code: model.WaitTimer}}},
		{Waits: []model.Reason{{Code: model.WaitSignal, Name: "go"}}},
		{Parked: true, Waits: many},
		{Parked: true, Waits: many, Blocked: &model.Reason{Code: model.WaitLimit}},
		{Blocked: &model.Reason{Code: model.WaitMismatch, Detail: "why"}},
	} {
		s := f.Subject()
		m.RunKey = s.RunKey
		marks, starts = append(marks, m), append(starts, s.StartRow())
		want[store.MainReason(m.Parked, m.Waits, m.Blocked)]++
	}

	return marks, starts, want
}

// WantReasons checks, for each reason, how many runs a query for that reason finds.
func (f *Fixture) WantReasons(want map[model.ReasonCode]int64) {
	f.Helper()
	for code, n := range want {
		got := try(f.Store.Count(f.Context(), store.Query{Tenant: model.DefaultTenant, Reasons: []model.ReasonCode{code}})).or(f)
		if got != n {
			f.Errorf("%d runs with reason %s, want %d", got, code, n)
		}
	}
}
