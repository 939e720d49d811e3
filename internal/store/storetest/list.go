package storetest

import (
	"fmt"
	"slices"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

var listTests = []test{
	{name: "newest start first", run: testListOrder},
	{name: "filters", run: testListFilters},
	{name: "a key prefix is no pattern", run: testListPrefix},
	{name: "earlier runs of a chain", run: testListChains},
	{name: "pages stay stable while runs start", run: testListPages},
	{name: "rows are complete", run: testListRows},
	{name: "tenants that have executions", run: testTenants},
}

// list returns everything that matches, as the keys of the addresses. It also checks Count.
func (x *suite) list(q store.Query) []string {
	x.Helper()
	q.Limit = 1000
	p := try(x.Store.List(x.Context(), q)).or(x)
	if p.More {
		x.Errorf("more than everything: %+v", q)
	}
	keys := make([]string, 0, len(p.Executions))
	for i := range p.Executions {
		keys = append(keys, p.Executions[i].Start.Address.Key)
	}
	q.Limit, q.After = 1, store.PageMark{Started: 1}
	if n := try(x.Store.Count(x.Context(), q)).or(x); n != int64(len(keys)) {
		x.Errorf("count says %d, the list has %d: %+v", n, len(keys), q)
	}
	return keys
}

// begin starts a run of a tenant, a type and a key at a time.
//
//arch:parameters one line per run reads best in the tests
func (x *suite) begin(l *Lane, tenant, workflow, key string, at model.Time) Subject {
	x.Helper()
	s := x.SubjectOf(model.Address{Tenant: tenant, Type: workflow, Key: key})
	s.Start.At = at
	l.Write(func(b *store.Batch) { b.Starts = []store.StartRow{s.StartRow()} })
	return s
}

func testListOrder(x *suite) {
	l := x.Join(1).Lanes[0]
	for _, c := range []struct {
		key string
		at  model.Time
	}{{"b", Noon + 2}, {"e", Noon}, {"c", Noon + 1}, {"a", Noon + 5}, {"d1", Noon + 1}, {"d2", Noon + 1}} {
		x.begin(l, "t", "w", c.key, c.at)
	}
	// If start times are equal, the run with the later id comes first.
	x.Want("order", []string{"a", "b", "d2", "d1", "c", "e"}, x.list(store.Query{Tenant: "t"}))
}

func testListFilters(x *suite) {
	l := x.Join(1).Lanes[0]
	a := x.begin(l, "t", "order", "a-1", Noon)
	b := x.begin(l, "t", "order", "a-2", Noon+10)
	c := x.begin(l, "t", "Order", "b-1", Noon+20)
	d := x.begin(l, "t", "order-item", "a-3", Noon+30)
	x.begin(l, "other", "order", "a-4", Noon+40)
	e := x.begin(l, "t", "stopped", "e-1", Noon+50)
	l.Write(func(w *store.Batch) {
		w.Closes = []store.CloseRow{a.Close(model.Completed), c.Close(model.Failed), d.Close(model.Canceled), e.Close(model.Terminated)}
	})
	_ = b

	for _, c := range []struct {
		name string
		q    store.Query
		want []string
	}{
		{"all", store.Query{}, []string{"e-1", "a-3", "b-1", "a-2", "a-1"}},
		{"workflow", store.Query{Workflows: []string{"order"}}, []string{"a-2", "a-1"}},
		{"unknown workflow", store.Query{Workflows: []string{"ORDER"}}, nil},
		{"prefix", store.Query{KeyPrefix: "a-"}, []string{"a-3", "a-2", "a-1"}},
		{"prefix in other case", store.Query{KeyPrefix: "A-"}, nil},
		{"prefix and workflow", store.Query{KeyPrefix: "a-", Workflows: []string{"order-item"}}, []string{"a-3"}},
		{"running", store.Query{Statuses: []model.Status{model.Running}}, []string{"a-2"}},
		{"failed or canceled", store.Query{Statuses: []model.Status{model.Failed, model.Canceled}}, []string{"a-3", "b-1"}},
		{"continued", store.Query{Statuses: []model.Status{model.Continued}}, nil},
		{"terminated", store.Query{Statuses: []model.Status{model.Terminated}}, []string{"e-1"}},
		{"from", store.Query{StartedFrom: Noon + 10}, []string{"e-1", "a-3", "b-1", "a-2"}},
		{"to", store.Query{StartedTo: Noon + 20}, []string{"a-2", "a-1"}},
		{"from and to", store.Query{StartedFrom: Noon + 1, StartedTo: Noon + 21}, []string{"b-1", "a-2"}},
		{"empty interval", store.Query{StartedFrom: Noon + 10, StartedTo: Noon + 10}, nil},
		{"everything at once", store.Query{
			Workflows: []string{"order"}, KeyPrefix: "a", Statuses: []model.Status{model.Completed, model.Running}, StartedFrom: Noon, StartedTo: Noon + 10,
		}, []string{"a-1"}},
	} {
		c.q.Tenant = "t"
		x.Want(c.name, c.want, x.list(c.q))
	}

	x.Want("other tenant", []string{"a-4"}, x.list(store.Query{Tenant: "other"}))
	x.Want("tenant in other case", []string(nil), x.list(store.Query{Tenant: "T"}))
	x.Want("no tenant", []string(nil), x.list(store.Query{}))
}

func testListPrefix(x *suite) {
	l := x.Join(1).Lanes[0]
	keys := []string{"a%b", "a_b", `a\b`, "axb", "a%%", "A%b", "a*b", "a[b", "a?b", "aé", "a\U0010ffffz", "a", "b"}
	for i, key := range keys {
		x.begin(l, "t", "w", key, Noon+model.Time(i))
	}

	for _, c := range []struct {
		prefix string
		want   []string
	}{
		{"a%", []string{"a%%", "a%b"}},
		{"a_", []string{"a_b"}},
		{`a\`, []string{`a\b`}},
		{"a*", []string{"a*b"}},
		{"a[", []string{"a[b"}},
		{"a?", []string{"a?b"}},
		{"aé", []string{"aé"}},
		{"a\U0010ffff", []string{"a\U0010ffffz"}},
		{"%", nil},
		{"_", nil},
		{"b", []string{"b"}},
	} {
		x.Want("prefix "+c.prefix, c.want, x.list(store.Query{Tenant: "t", KeyPrefix: c.prefix}))
	}
}

func testListChains(x *suite) {
	l := x.Join(1).Lanes[0]
	first := x.begin(l, "t", "w", "chain", Noon)
	x.begin(l, "t", "w", "single", Noon+5)
	second, third := x.SubjectOf(first.Start.Address), x.SubjectOf(first.Start.Address)
	second.Start.At, third.Start.At = Noon+10, Noon+20
	l.Write(func(b *store.Batch) {
		b.Starts, b.Closes = []store.StartRow{second.Replace(first.Run)}, []store.CloseRow{first.Close(model.Continued)}
	})
	l.Write(func(b *store.Batch) {
		b.Starts, b.Closes = []store.StartRow{third.Replace(second.Run)}, []store.CloseRow{second.Close(model.Failed)}
	})
	x.Want("current runs", []string{"chain", "single"}, x.list(store.Query{Tenant: "t"}))
	x.Want("all runs", []string{"chain", "chain", "single", "chain"}, x.list(store.Query{Tenant: "t", AllRuns: true}))
	x.Want("continued, current", []string(nil), x.list(store.Query{Tenant: "t", Statuses: []model.Status{model.Continued}}))
	x.Want("failed, current", []string(nil), x.list(store.Query{Tenant: "t", Statuses: []model.Status{model.Failed}}))
	x.Want("continued, all", []string{"chain"}, x.list(store.Query{Tenant: "t", AllRuns: true, Statuses: []model.Status{model.Continued}}))
}

func testListPages(x *suite) {
	l := x.Join(1).Lanes[0]
	var want []string
	for i := range 23 {
		key := fmt.Sprint("k", i)
		x.begin(l, "t", "w", key, Noon+100+model.Time(i/3)) // three have the same time
		want = append(want, key)
	}

	slices.Reverse(want)
	for _, limit := range []int{1, 4, 22, 23, 24} {
		q := store.Query{Tenant: "t", Limit: limit, KeyPrefix: "k"}
		var got []string
		for {
			p := try(x.Store.List(x.Context(), q)).or(x)
			if len(p.Executions) > limit {
				x.Fatalf("%d rows, more than the limit %d", len(p.Executions), limit)
			}
			for i := range p.Executions {
				got = append(got, p.Executions[i].Start.Address.Key)
			}
			if p.More != (len(got) < len(want)) || len(got) > len(want) {
				x.Fatalf("more is %v after %d of %d rows in pages of %d", p.More, len(got), len(want), limit)
			}

			if !p.More {
				break
			}
			last := p.Executions[len(p.Executions)-1].Start
			q.After = store.PageMark{Started: last.At, Run: last.Run}

			// While the test reads pages, new runs start. Half of them are newer than all other
			// runs. The other half are older, but do not match the query.
			x.begin(l, "t", "w", fmt.Sprint("k-new-", limit, "-", len(got)), Noon+10_000)
			x.begin(l, "t", "w", fmt.Sprint("old-", limit, "-", len(got)), Noon)
		}

		x.Want(fmt.Sprint("pages of ", limit), want, got)
		want = x.list(store.Query{Tenant: "t", KeyPrefix: "k"})
	}
}

func testTenants(x *suite) {
	l := x.Join(1).Lanes[0]
	x.Want("at first", 0, len(try(x.Store.Tenants(x.Context())).or(x)))
	for i, tenant := range []string{"t", "other", "t", "a", "other", "ä"} {
		x.begin(l, tenant, "w", fmt.Sprint("k", i), Noon+model.Time(i))
	}
	x.Want("tenants", []string{"a", "other", "t", "ä"}, try(x.Store.Tenants(x.Context())).or(x))
}

func testListRows(x *suite) {
	l := x.Join(1).Lanes[0]
	a, b, c := x.Subject(), x.Subject(), x.Subject()
	next := x.SubjectOf(c.Start.Address)
	a.Start.RequestID, a.Start.Parent = "request", model.Link{Address: b.Start.Address, Run: b.Run, ID: "child"}
	a.Start.Carried = []model.Event{a.Event(1).Event}

	l.Write(func(w *store.Batch) {
		w.Starts = []store.StartRow{a.StartRow(), b.StartRow(), c.StartRow()}
		w.Marks = []store.MarkRow{a.Park()}
	})

	l.Write(func(w *store.Batch) {
		w.Starts = []store.StartRow{next.Replace(c.Run)}
		w.Closes = []store.CloseRow{c.Close(model.Continued)}
		w.Marks = []store.MarkRow{{RunKey: b.RunKey, Blocked: &model.Reason{Code: model.WaitPoison, Detail: "row"}}}
	})

	rows := []store.Execution{next.Execution(), c.ClosedRow(model.Continued, false), b.Execution(), a.Execution()}
	rows[2].Blocked = &model.Reason{Code: model.WaitPoison, Detail: "row"}
	rows[3].Parked, rows[3].Waits = true, a.Park().Waits
	got := try(x.Store.List(x.Context(), store.Query{Tenant: model.DefaultTenant, AllRuns: true, Limit: 10})).or(x)
	x.Want("rows", store.Page{Executions: rows}, got)
}
