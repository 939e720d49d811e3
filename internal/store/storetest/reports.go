package storetest

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

var reportTests = []test{
	{name: "reports are listed newest first, by tenant", run: testReports},
	{name: "a request adds one report", run: testReportRequest},
	{name: "pages are bounded in number and size", run: testReportPages},
	{name: "the oldest reports go when there are too many", run: testReportRows},
	{name: "the oldest reports go when they are too large", run: testReportBytes},
	{name: "reports that are added together", run: testReportsTogether},
	{name: "old reports are swept", run: testReportSweep},
	{name: "reports are durable", run: testReportDurable, needs: durable},
}

// plenty are bounds that no test reaches.
var plenty = store.ReportBounds{Rows: 1000, Bytes: 1 << 20}

func (x *suite) reportRow(tenant, head, body string) store.ReportRow {
	id := x.RunID()
	return store.ReportRow{ID: model.ReportID(id), Tenant: tenant, Request: id.String(), Head: []byte(head), Body: []byte(body)}
}

func (x *suite) addReport(row store.ReportRow, keep store.ReportBounds) store.ReportRow {
	x.Helper()
	return readable(try(x.Store.AddReport(x.Context(), row, keep)).or(x))
}

func (x *suite) listReports(q store.ReportQuery) []store.ReportRow {
	x.Helper()
	if q.Limit == 0 {
		q.Limit = 100
	}
	if q.MaxBytes == 0 {
		q.MaxBytes = 1 << 20
	}
	rows := try(x.Store.ListReports(x.Context(), q)).or(x)
	for i := range rows {
		rows[i] = readable(rows[i])
	}
	return rows
}

func (x *suite) loadReport(tenant string, id model.ReportID) *store.ReportRow {
	x.Helper()
	got := try(x.Store.LoadReport(x.Context(), tenant, id)).or(x)
	if got != nil {
		*got = readable(*got)
	}
	return got
}

// readable replaces a nil head or body of a report by an empty slice, because a store may return
// either.
func readable(r store.ReportRow) store.ReportRow {
	r.Head, r.Body = append([]byte{}, r.Head...), append([]byte{}, r.Body...)
	return r
}

// heads returns the reports as lists show them, without their bodies.
func heads(rows ...store.ReportRow) []store.ReportRow {
	out := make([]store.ReportRow, len(rows))
	for i, r := range rows {
		r.Body = nil
		out[i] = readable(r)
	}
	return out
}

func testReports(x *suite) {
	first, second, other := x.reportRow("a", "1", "one"), x.reportRow("a", "", "\x00\xff"), x.reportRow("b", "x", "")
	for _, r := range []store.ReportRow{second, other, first} {
		x.Want("added", heads(r)[0], x.addReport(r, plenty))
	}
	x.Want("of a", heads(second, first), x.listReports(store.ReportQuery{Tenant: "a"}))
	x.Want("of b", heads(other), x.listReports(store.ReportQuery{Tenant: "b"}))
	x.Want("of a tenant without reports", 0, len(x.listReports(store.ReportQuery{Tenant: "A"})))
	x.Want("before", heads(first), x.listReports(store.ReportQuery{Tenant: "a", Before: second.ID}))

	x.Want("one", &second, x.loadReport("a", second.ID))
	x.Want("one without a body", &other, x.loadReport("b", other.ID))
	x.Want("one of another tenant", (*store.ReportRow)(nil), x.loadReport("b", second.ID))
	x.Want("one that does not exist", (*store.ReportRow)(nil), x.loadReport("a", model.ReportID(x.RunID())))
}

// A repeated request changes nothing and returns the report that the first request has added, even
// if the repeated request has bounds that would remove reports. A request with the same id in
// another tenant is another request.
func testReportRequest(x *suite) {
	first, again, other := x.reportRow("a", "first", "body"), x.reportRow("a", "again", "other"), x.reportRow("b", "b", "b")
	again.Request, other.Request = first.Request, first.Request
	x.addReport(first, plenty)
	x.Want("the same request", heads(first)[0], x.addReport(again, store.ReportBounds{Rows: 1, Bytes: 1}))
	x.Want("another tenant", heads(other)[0], x.addReport(other, plenty))
	x.Want("of a", heads(first), x.listReports(store.ReportQuery{Tenant: "a"}))
	x.Want("its body", &first, x.loadReport("a", first.ID))
}

func testReportPages(x *suite) {
	var all []store.ReportRow
	for range 6 {
		r := x.reportRow("a", "0123456789", "a much longer text than the head")
		x.addReport(r, plenty)
		all = append(all, r)
	}
	slices.Reverse(all)
	x.Want("by number", heads(all[:2]...), x.listReports(store.ReportQuery{Tenant: "a", Limit: 2}))
	x.Want("by size", heads(all[:2]...), x.listReports(store.ReportQuery{Tenant: "a", MaxBytes: 25}))
	x.Want("at least one", heads(all[:1]...), x.listReports(store.ReportQuery{Tenant: "a", MaxBytes: 1}))
	x.Want("the next page", heads(all[2:4]...), x.listReports(store.ReportQuery{Tenant: "a", Limit: 2, Before: all[1].ID}))
}

func testReportRows(x *suite) {
	other := x.reportRow("b", "b", "b")
	x.addReport(other, plenty)
	var all []store.ReportRow
	for range 5 {
		all = append(all, x.reportRow("a", "h", "b"))
	}
	for _, r := range all[1:] {
		x.addReport(r, store.ReportBounds{Rows: 3, Bytes: 1 << 20})
	}
	x.Want("the newest stay", heads(all[4], all[3], all[2]), x.listReports(store.ReportQuery{Tenant: "a"}))

	// A node whose clock is behind adds a report with an old id. This report stays, and the store
	// removes another one.
	x.addReport(all[0], store.ReportBounds{Rows: 3, Bytes: 1 << 20})
	x.Want("the added report stays", heads(all[4], all[3], all[0]), x.listReports(store.ReportQuery{Tenant: "a"}))
	x.Want("other tenants", heads(other), x.listReports(store.ReportQuery{Tenant: "b"}))
}

func testReportBytes(x *suite) {
	keep := store.ReportBounds{Rows: 100, Bytes: 30}
	first, second, third, large := x.reportRow("a", "12345", "12345"), x.reportRow("a", "1234567890", ""), x.reportRow("a", "", "1234567890"), x.reportRow("a", "12345678901", "")
	for _, r := range []store.ReportRow{first, second, third} {
		x.addReport(r, keep)
	}
	x.Want("all that fit", heads(third, second, first), x.listReports(store.ReportQuery{Tenant: "a"}))
	x.addReport(large, keep)
	x.Want("after one byte more than fits", heads(large, third), x.listReports(store.ReportQuery{Tenant: "a"}))
	x.Want("a removed report", (*store.ReportRow)(nil), x.loadReport("a", first.ID))
}

// Many callers add reports at the same time. If two callers send the same request, the tenant gets
// one report. A later call with smaller bounds removes the oldest reports.
func testReportsTogether(x *suite) {
	keep := store.ReportBounds{Rows: 4, Bytes: 1 << 20}
	rows := make([]store.ReportRow, 16)
	for i := range rows {
		rows[i] = x.reportRow("a", fmt.Sprint("h", i), fmt.Sprint("b", i))
	}
	for i := range 4 {
		rows[i+8].Request = rows[i].Request
	}
	errs := make([]error, len(rows))
	var callers sync.WaitGroup
	for i := range rows {
		callers.Go(func() { _, errs[i] = x.Store.AddReport(x.Context(), rows[i], plenty) })
	}
	callers.Wait()
	for i, err := range errs {
		if err != nil {
			x.Fatalf("add report %d: %v", i, err)
		}
	}
	x.Want("one of each request", 12, len(x.listReports(store.ReportQuery{Tenant: "a"})))

	last := x.reportRow("a", "last", "last")
	x.addReport(last, keep)
	got := x.listReports(store.ReportQuery{Tenant: "a"})
	x.Want("what stays", 4, len(got))
	x.Want("the newest", heads(last)[0], got[0])
}

func testReportSweep(x *suite) {
	now := model.TimeOf(time.Now())
	aged := func(at model.Time, n byte) store.ReportRow {
		r := x.reportRow("a", "h", "b")
		id := store.OldestID(at)
		copy(r.ID[:6], id[:6])
		r.ID[15] = n
		x.addReport(r, plenty)
		return r
	}
	for i := range 3 {
		aged(now.Add(-time.Hour), byte(i))
	}
	young := aged(now.Add(time.Hour), 0)

	sweep := func(before model.Time, limit int) int {
		return try(x.Store.Sweep(x.Context(), store.SweepRequest{ReportsBefore: before, Limit: limit})).or(x)
	}
	x.Want("without a time", 0, sweep(0, 10))
	x.Want("two", 2, sweep(now, 2))
	x.Want("the rest", 1, sweep(now, 10))
	x.Want("what stays", heads(young), x.listReports(store.ReportQuery{Tenant: "a"}))
}

func testReportDurable(x *suite) {
	row := x.reportRow("a", "kept", "whole")
	x.addReport(row, plenty)
	x.Store = x.o.Reopen(x.t, x.Store)
	x.Want("after a restart", &row, x.loadReport("a", row.ID))
	x.Want("the same request", heads(row)[0], x.addReport(row, plenty))
}
