package storetest

import (
	"slices"
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

var auditTests = []test{
	{name: "entries are listed newest first, by tenant", run: testAudit},
	{name: "an entry changes until it is final", run: testAuditFinal},
	{name: "pages are bounded in number and size", run: testAuditPages},
	{name: "old entries are swept", run: testAuditSweep},
	{name: "entries are durable", run: testAuditDurable, needs: durable},
}

func (x *suite) auditRow(tenant, body string) store.AuditRow {
	return store.AuditRow{ID: x.RunID(), Tenant: tenant, Final: true, Body: []byte(body)}
}

func (x *suite) putAudit(rows ...store.AuditRow) {
	x.Helper()
	if err := x.Store.PutAudit(x.Context(), rows); err != nil {
		x.Fatalf("put audit: %v", err)
	}
}

func (x *suite) listAudit(q store.AuditQuery) []store.AuditRow {
	x.Helper()
	if q.Limit == 0 {
		q.Limit = 100
	}
	if q.MaxBytes == 0 {
		q.MaxBytes = 1 << 20
	}
	rows := try(x.Store.ListAudit(x.Context(), q)).or(x)
	for i := range rows {
		rows[i].Body = append([]byte{}, rows[i].Body...) // an empty body may be nil
	}
	return rows
}

func testAudit(x *suite) {
	first, second, other, server := x.auditRow("a", "1"), x.auditRow("a", "\x00\xff"), x.auditRow("b", ""), x.auditRow("", "s")
	x.putAudit()
	x.putAudit(other, first)
	x.putAudit(server, second)
	x.Want("all", []store.AuditRow{server, other, second, first}, x.listAudit(store.AuditQuery{All: true}))
	x.Want("of a", []store.AuditRow{second, first}, x.listAudit(store.AuditQuery{Tenant: "a"}))
	x.Want("of the server", []store.AuditRow{server}, x.listAudit(store.AuditQuery{}))
	x.Want("of a stranger", 0, len(x.listAudit(store.AuditQuery{Tenant: "A"})))
	x.Want("before", []store.AuditRow{first}, x.listAudit(store.AuditQuery{Tenant: "a", Before: second.ID}))
	x.Want("from", []store.AuditRow{server, other, second}, x.listAudit(store.AuditQuery{All: true, From: second.ID}))
}

func testAuditFinal(x *suite) {
	row := x.auditRow("a", "begun")
	row.Final = false
	x.putAudit(row)
	row.Body, row.Final = []byte("done"), true
	x.putAudit(row)
	x.Want("the outcome", []store.AuditRow{row}, x.listAudit(store.AuditQuery{Tenant: "a"}))
	forged := row
	forged.Body, forged.Tenant = []byte("forged"), "b"
	x.putAudit(forged)
	x.Want("a final entry", []store.AuditRow{row}, x.listAudit(store.AuditQuery{All: true}))
}

func testAuditPages(x *suite) {
	var all []store.AuditRow
	for range 6 {
		all = append(all, x.auditRow("a", "0123456789"))
	}
	x.putAudit(all...)
	slices.Reverse(all)
	x.Want("by number", all[:2], x.listAudit(store.AuditQuery{Tenant: "a", Limit: 2}))
	x.Want("by size", all[:2], x.listAudit(store.AuditQuery{All: true, MaxBytes: 25}))
	x.Want("one in any case", all[:1], x.listAudit(store.AuditQuery{All: true, MaxBytes: 1}))
	x.Want("the next", all[2:4], x.listAudit(store.AuditQuery{Tenant: "a", Limit: 2, Before: all[1].ID}))
}

func testAuditSweep(x *suite) {
	now := model.TimeOf(time.Now())
	var old []store.AuditRow
	for i := range 3 {
		r := x.auditRow("a", "old")
		id := store.OldestID(now.Add(-time.Hour))
		copy(r.ID[:6], id[:6])
		r.ID[15] = byte(i)
		old = append(old, r)
	}
	young := x.auditRow("a", "young")
	id := store.OldestID(now.Add(time.Hour))
	copy(young.ID[:6], id[:6])
	x.putAudit(append(old, young)...)

	sweep := func(before model.Time, limit int) int {
		return try(x.Store.Sweep(x.Context(), store.SweepRequest{AuditBefore: before, Limit: limit})).or(x)
	}
	x.Want("without a time", 0, sweep(0, 10))
	x.Want("two", 2, sweep(now, 2))
	x.Want("the rest", 1, sweep(now, 10))
	x.Want("what stays", []store.AuditRow{young}, x.listAudit(store.AuditQuery{All: true}))
}

func testAuditDurable(x *suite) {
	row := x.auditRow("a", "kept")
	x.putAudit(row)
	x.Store = x.o.Reopen(x.t, x.Store)
	x.Want("after a restart", []store.AuditRow{row}, x.listAudit(store.AuditQuery{All: true}))
}
