package storetest

import (
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

var textTests = []test{
	{name: "odd and long names everywhere", run: testNames},
	{name: "everything at its maximal length", run: testLongest},
	{name: "node infos come back as they were", run: testNodeInfo},
}

// checkNamed writes rows to every table that has a column for an address, an id or a request id,
// and reads the rows back.
//
//arch:parameters one line per check reads best in the tests
func (x *suite) checkNamed(l *Lane, s Subject, id, request string, fail func(format string, args ...any)) {
	x.Helper()
	waits := s.Request(x.RunID(), request)
	counter := Counter{store.EntityKey{Shard: s.Shard, Address: s.Start.Address}}

	l.Write(func(b *store.Batch) {
		b.Starts = []store.StartRow{s.StartRow()}
		b.Timers = []store.Timer{s.Timer(id, Noon)}
		b.Deferred = []store.InboxRow{waits}
		b.Entities, b.Mailbox = []store.EntityRow{counter.Set(1, "1")}, []store.MailboxRow{counter.Mail(1)}
	})

	e := s.Execution()
	check := func(what string, want, got any) {
		if d := Diff(want, got); d != "" {
			fail("%s (-want +got):\n%s", what, d)
		}
	}

	check("execution", &e, x.current(s))
	check("timer", []store.Timer{s.Timer(id, Noon)}, try(x.Store.LoadRunTimers(x.Context(), s.RunKey)).or(x))
	a := s.Start.Address
	stored := counter.Set(1, "1").Entity
	check("entity", store.LoadedEntity{Entity: &stored, Mailbox: []model.MailboxItem{counter.Mail(1).Item}}, x.entity(counter, 10, 1<<20))
	check("mailboxes", []store.EntityKey{counter.EntityKey}, try(x.Store.LoadMailboxes(x.Context(), []model.ShardID{s.Shard}, store.EntityKey{}, 10)).or(x))

	first := []rune(a.Key)[:1]
	for _, prefix := range []string{a.Key, string(first)} {
		for _, name := range []string{"", a.Type} {
			if !slices.Contains(x.addresses(store.EntityQuery{Tenant: a.Tenant, Type: name, KeyPrefix: prefix}), a) {
				fail("entity %q is not found by prefix %q", a.Key, prefix)
			}
		}

		q := store.Query{Tenant: a.Tenant, Workflows: []string{a.Type}, KeyPrefix: prefix, Limit: 1000}
		found := false
		for _, row := range try(x.Store.List(x.Context(), q)).or(x).Executions {
			found = found || row.Start.Run == s.Run
			if !strings.HasPrefix(row.Start.Address.Key, prefix) {
				fail("key %q was found by prefix %q", row.Start.Address.Key, prefix)
			}
		}

		if !found {
			fail("key %q is not found by prefix %q", a.Key, prefix)
		}
	}

	l.Write(func(b *store.Batch) { b.Requests = []store.Reply{s.Reply(request, Noon)} })
	waits.Seen = true
	check("seen", []store.InboxRow{waits}, x.inbox(model.MaxTime, s.Shard))
	check("reply", []store.Reply{s.Reply(request, Noon)},
		try(x.Store.LoadReplies(x.Context(), []store.RequestKey{s.RequestKey(request)})).or(x))
	again := x.SubjectOf(a)

	c := l.Write(func(b *store.Batch) {
		b.Starts = []store.StartRow{again.StartIfAbsent()}
		b.StopTimers = []store.TimerKey{s.Stop(id)}
		b.Inbox = []store.InboxKey{Consume(waits)}
	})
	if len(c.Existing) != 1 {
		fail("the address was not found taken")
	}

	// Remove the rows, because the next subject may have the same address.
	l.Write(func(b *store.Batch) {
		b.Closes = []store.CloseRow{s.Close(model.Completed)}
		b.Taken, b.Entities = []store.MailboxKey{counter.Take(1)}, []store.EntityRow{counter.Remove(1)}
	})
}

func testNames(x *suite) {
	l := x.Join(1).Lanes[0]
	taken := make(map[model.Address]bool)
	rapid.Check(x.t, func(t *rapid.T) {
		a := model.Address{
			Tenant: Names(MaxName).Draw(t, "tenant"), Type: Names(MaxName).Draw(t, "type"), Key: Names(MaxKey).Draw(t, "key"),
		}
		if taken[a] {
			t.Skip("address was used before")
		}
		taken[a] = true
		x.checkNamed(l, x.SubjectOf(a), Names(MaxKey).Draw(t, "timer"), Names(MaxName).Draw(t, "request"), t.Fatalf)
	})
}

func testLongest(x *suite) {
	l := x.Join(1).Lanes[0]
	// The text cannot be compressed, so an index entry must have room for all of it.
	text := func(n int, seed uint32) string {
		var b strings.Builder
		for b.Len() < n {
			seed = seed*1664525 + 1013904223
			b.WriteByte("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_"[seed>>26])
		}
		return b.String()
	}
	a := model.Address{Tenant: text(MaxName, 1), Type: text(MaxName, 2), Key: text(MaxKey, 3)}
	x.checkNamed(l, x.SubjectOf(a), text(MaxKey, 4), text(MaxName, 5), x.Fatalf)
}

func testNodeInfo(x *suite) {
	rapid.Check(x.t, func(t *rapid.T) {
		want := store.NodeInfo{
			ID: x.NodeID(), Host: Names(MaxName).Draw(t, "host"), BootID: Names(64).Draw(t, "boot"),
			Namespace: Names(64).Draw(t, "namespace"), PID: int(rapid.Int32Min(1).Draw(t, "pid")),
			PIDStart: rapid.Int64Min(0).Draw(t, "start"), Version: Names(64).Draw(t, "version"),
		}

		r := try(x.Store.Register(x.Context(), want, 1, 3600e9)).or(x)
		v := try(x.Store.Members(x.Context())).or(x)
		if len(v.Members) != 1 {
			t.Fatalf("%d members, want 1", len(v.Members))
		}
		if d := Diff(want, v.Members[0].NodeInfo); d != "" {
			t.Fatalf("info (-want +got):\n%s", d)
		}

		if err := x.Store.Unregister(x.Context(), want.ID, r.Epoch); err != nil {
			t.Fatalf("unregister: %v", err)
		}
	})
}
