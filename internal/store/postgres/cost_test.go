package postgres_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/pgproxy"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/postgres"
	"github.com/perdure/perdure/internal/store/storetest"
)

// tableStats are the counters of a table.
type tableStats struct {
	Inserted, Updated, Hot, Deleted, Scans, ScannedRows, IndexRows int64
}

// statistics reads the counters of all tables. They are complete only when the sessions that caused
// them have ended.
func statistics(t testing.TB, url string) map[string]tableStats {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())

	eventually(t, "all other sessions to end", func() bool {
		var n int
		err := c.QueryRow(t.Context(), `select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'`).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		return n == 0
	})

	rows, err := c.Query(t.Context(), `select relname, n_tup_ins, n_tup_upd, n_tup_hot_upd, n_tup_del, seq_scan, seq_tup_read, coalesce(idx_tup_fetch, 0)
from pg_stat_user_tables where schemaname = 'perdure'`)
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]tableStats)
	var name string
	var s tableStats

	_, err = pgx.ForEachRow(rows, []any{&name, &s.Inserted, &s.Updated, &s.Hot, &s.Deleted, &s.Scans, &s.ScannedRows, &s.IndexRows}, func() error {
		out[name] = s
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}

	return out
}

func (a tableStats) minus(b tableStats) tableStats {
	return tableStats{
		a.Inserted - b.Inserted, a.Updated - b.Updated, a.Hot - b.Hot, a.Deleted - b.Deleted, a.Scans - b.Scans, a.ScannedRows - b.ScannedRows, a.IndexRows - b.IndexRows,
	}
}

// An inline step writes one row. A start and a close write one row each, and change one row in the
// table of runnable runs. The only other change is the fence. Updates of runs do not change
// indexes.
func TestRowsPerWorkflow(t *testing.T) {
	t.Parallel()
	postgres.Sequential(t)
	// Use a private server: on a shared one, sessions of other tests keep old versions alive for a
	// moment.
	base := pgtest.Start(t, pgtest.Options{}).NewDatabase(t)
	s := openURL(t, base)
	l := newLoad(t, s, 100)
	_ = s.Close()
	before := statistics(t, base)
	s = openURL(t, base)
	l.f.Store = s
	const batches, workflows = 40, 100 // 10 runs per batch
	for range batches {
		l.lane.Write(func(b *store.Batch) { l.writeMixed(b, 13) })
	}
	_ = s.Close()
	after := statistics(t, base)

	want := map[string]tableStats{
		"history": {Inserted: 3 * workflows}, "executions": {Inserted: workflows, Updated: workflows},
		"runnable": {Inserted: workflows, Deleted: workflows}, "fences": {Updated: batches},
	}
	for name := range after {
		got := after[name].minus(before[name])
		hot := got.Hot
		got.Hot, got.Scans, got.ScannedRows, got.IndexRows = 0, 0, 0, 0
		if got != want[name] {
			t.Errorf("%s: %+v, want %+v", name, got, want[name])
		}
		if name == "executions" && hot < got.Updated*7/10 {
			t.Errorf("%d of %d updates of executions were heap-only", hot, got.Updated)
		}
	}
}

// An entity is one row. A change of its state touches neither the indexes of the address nor the
// index of locked entities.
func TestRowsPerEntity(t *testing.T) {
	t.Parallel()
	postgres.Sequential(t)
	base := pgtest.Start(t, pgtest.Options{}).NewDatabase(t) // a private server, as above
	s := openURL(t, base)
	f := storetest.New(t, s)
	l := f.Join(1).Lanes[0]
	const changes = 100

	counters := []storetest.Counter{f.Counter(), f.Counter(), f.Counter()}
	for version := range int64(changes) {
		l.Write(func(b *store.Batch) {
			b.Entities = []store.EntityRow{counters[0].Set(version+1, "x"), counters[1].Set(version+1, "y"), counters[2].Lock(version+1, "s")}
		})
	}

	_ = s.Close()
	got := statistics(t, base)["entities"]
	if want := int64(3 * (changes - 1)); got.Inserted != 3 || got.Updated != want || got.Deleted != 0 || got.Hot < want*9/10 {
		t.Errorf("%+v, want 3 inserts and %d updates that are nearly all heap-only", got, want)
	}
}

// No method that an owner needs scans a whole table, whatever the table contains. The test calls
// the methods with and without prepared plans. The tables have 20,000 other rows that the calls do
// not need. The prepared plans were made when the tables were empty.
func TestNothingScans(t *testing.T) {
	t.Parallel()
	postgres.Sequential(t)
	for _, prepared := range []bool{true, false} {
		t.Run(fmt.Sprint("prepared ", prepared), func(t *testing.T) {
			t.Parallel()
			base := pgtest.URL(t)
			s := openURL(t, base, func(c *postgres.Config) { c.NoPrepare = !prepared })
			f := storetest.New(t, s)
			n := f.Join(1)
			admin := connect(t, base)
			// After this, the statistics say that everything is empty. A long-lived session makes
			// its plans at such a time.
			exec(t, admin, `analyze`)
			for range 8 {
				everything(t, f, n)
			}
			postgres.Fill(t, s)
			var before map[string]tableStats

			if prepared {
				_ = admin.Close(t.Context()) // the sessions of the store continue
			} else {
				// Here the server plans each call, and a scan is the right plan while a table is
				// empty.
				exec(t, admin, `analyze`)
				_ = admin.Close(t.Context())
				_ = s.Close()
				before = statistics(t, base)
				s = openURL(t, base, func(c *postgres.Config) { c.NoPrepare = true })
				f.Store = s
			}

			const times = 8
			for range times {
				everything(t, f, n)
			}
			_ = s.Close()
			after := statistics(t, base)

			// a few hundred rows at most
			small := []string{"meta", "settings_counter", "nodes", "shards", "migrations", "cursors"}
			for _, name := range slices.Sorted(maps.Keys(after)) {
				got := after[name].minus(before[name])
				// The server counts the creation of an index as a scan of no rows.
				if !slices.Contains(small, name) && got.ScannedRows > 0 {
					t.Errorf("%s was scanned %d times, %d rows", name, got.Scans, got.ScannedRows)
				}
				// A call may read rows that it does not need only where it filters rows while it
				// reads: in the inbox, which has few deferred requests, and in lists.
				if most := int64(times * 300); name != "inbox" && name != "cursors" && got.IndexRows > most {
					t.Errorf("%s: %d rows were read through indexes, want at most %d", name, got.IndexRows, most)
				}
			}
		})
	}
}

// everything calls nearly all methods that an owner calls, with its own rows.
func everything(t *testing.T, f *storetest.Fixture, n *storetest.Node) {
	t.Helper()
	ctx, s, l := t.Context(), f.Store, n.Lanes[0]
	a, other := f.Subject(), f.Subject()
	next := f.SubjectOf(a.Start.Address)
	request, later := a.Request(f.RunID(), "q"), a.Request(f.RunID(), "d")
	later.NotBefore = storetest.Noon
	dead := a.Dead("t", "charge", "boom", 1)

	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}

	acquired, err := s.Acquire(ctx, n.ID, n.Epoch, f.Shards())
	check(err)
	sent, received := int64(0), int64(0)
	for _, shard := range acquired {
		if shard.Shard == 1 {
			sent, received = shard.Sent[1], shard.Received[1]
		}
	}

	sent, received = max(sent, received), max(sent, received)
	check(s.PutInbox(ctx, []store.InboxRow{request}))
	a.Start.Labels = []model.Label{{Name: "region", Value: "eu"}, {Name: "tier", Value: "gold"}}

	l.Write(func(b *store.Batch) {
		b.Starts = []store.StartRow{a.StartRow(), other.StartIfAbsent()}
		b.Labels = []store.LabelRow{a.Label("region", "us"), a.Label("tier", "")}
		b.Events = []store.EventRow{a.Event(1)}
		b.Timers = []store.Timer{a.Timer("t", storetest.Noon), a.Timer("u", storetest.Noon)}
		b.Messages = []store.MessageRow{storetest.Message(1, 1, sent+1)}
		b.Marks = []store.MarkRow{a.Park()}
		b.Inbox = []store.InboxKey{storetest.Consume(request)}
		b.Deferred = []store.InboxRow{later}
		b.Requests = []store.Reply{a.Reply("q", 1)}
		b.Dead = []store.DeadRow{dead, a.Dead("v", "charge", "boom", 1)}
		b.TaskData = []store.TaskDatum{a.Datum("t", "", "1"), a.Datum("t", "x", "1")}
		b.Logs = []store.LogRow{a.Line("t", 1, 0, "old"), a.Line("t", storetest.Noon, 1, "new")}
	})

	mark, _ := storetest.Requeue(dead, storetest.Noon)
	drop := a.Datum("t", "x", "")
	drop.Deleted = true

	l.Write(func(b *store.Batch) {
		b.DeadMarks, b.DeadDeletes = []store.DeadMark{mark}, []store.DeadKey{a.Dead("v", "", "", 0).DeadKey}
		b.TaskData = []store.TaskDatum{a.Datum("t", "", "2"), drop}
	})

	tasks(t, s, a, dead)
	entities(t, f, l)
	_, err = s.LoadRunnable(ctx, []model.ShardID{other.Shard}, store.RunKey{Shard: other.Shard}, 10)
	check(err)
	_, err = s.LoadExecution(ctx, a.Shard, a.Start.Address, model.RunID{})
	check(err)
	_, err = s.LoadExecution(ctx, a.Shard, a.Start.Address, a.Run)
	check(err)
	_, err = s.LoadEvents(ctx, a.RunKey, 0, 10, 1000)
	check(err)

	for _, run := range []model.RunID{a.Run, {}} {
		_, err = s.LoadRun(ctx, a.Shard, a.Start.Address, run, 10, 1000)
		check(err)
		_, err = s.LoadDetails(ctx, a.Shard, a.Start.Address, run)
		check(err)
	}

	_, err = s.LoadRuns(ctx, []store.AddressKey{{Shard: a.Shard, Address: a.Start.Address}}, 10, 1000)
	check(err)
	_, err = s.LoadTimers(ctx, f.Shards(), store.TimerMark{}, storetest.Noon+1, 10)
	check(err)
	_, err = s.LoadRunTimers(ctx, a.RunKey)
	check(err)
	_, _, err = s.LoadMessages(ctx, f.Shards(), 10, 1<<30)
	check(err)
	_, _, err = s.LoadInbox(ctx, f.Shards(), storetest.Noon, 10, 1<<30)
	check(err)
	_, err = s.LoadReplies(ctx, []store.RequestKey{a.RequestKey("q")})
	check(err)
	n.Renew(time.Hour, f.Shards()...)

	l.Write(func(b *store.Batch) {
		b.Starts = []store.StartRow{next.Replace(a.Run)}
		b.Closes = []store.CloseRow{a.Close(model.Continued), other.Close(model.Completed)}
		b.Closes[1].Outcome.Leaves = storetest.Noon
		b.StopTimers = []store.TimerKey{a.Stop("t")}
		b.StopAll = []store.RunKey{a.StopAll()}
		b.Cursors = []store.CursorRow{{To: 1, From: 1, Prev: received, Next: sent + 1}}
		b.Inbox = []store.InboxKey{storetest.Consume(later)}
		b.Free = []model.ShardID{5}
	})

	again := f.SubjectOf(other.Start.Address)
	l.Write(func(b *store.Batch) { b.Starts = []store.StartRow{again.StartIfAbsent()} })
	l.Write(func(b *store.Batch) { b.Closes = []store.CloseRow{next.Close(model.Completed)} })
	_, err = s.LoadLabels(ctx, []store.RunKey{a.RunKey, next.RunKey})
	check(err)
	_, err = s.LoadAnswers(ctx, store.Awaited{
		Requests: []store.RequestKey{{Shard: a.Shard, Address: a.Start.Address, ID: "r"}}, Runs: []store.RunKey{a.RunKey, next.RunKey},
		Addresses: []store.AddressKey{{Shard: a.Shard, Address: a.Start.Address}},
	})
	check(err)

	for _, q := range []store.Query{
		{Tenant: model.DefaultTenant, Limit: 10},
		{Tenant: model.DefaultTenant, Limit: 10, After: store.PageMark{Started: storetest.Noon + 5, Run: a.Run}, AllRuns: true},
		{Tenant: model.DefaultTenant, Workflows: []string{"order"}, KeyPrefix: "order", Statuses: []model.Status{model.Completed}, StartedFrom: 1, StartedTo: model.MaxTime, Limit: 10},
		{Tenant: model.DefaultTenant, Key: a.Start.Address.Key, Limit: 10},
		{Tenant: model.DefaultTenant, Labels: []model.LabelCondition{{Name: "region", Values: []string{"us"}}, {Name: "tier", Values: []string{"gold"}, Not: true}}, Limit: 10},
		{Tenant: model.DefaultTenant, Reasons: []model.ReasonCode{model.WaitMismatch}, Limit: 10},
	} {
		_, err = s.List(ctx, q)
		check(err)
	}

	_, err = s.Count(ctx, store.Query{Tenant: "nobody"})
	check(err)
	for range 2 {
		_, err = s.LoadExpired(ctx, store.ExpiredRequest{Shards: f.Shards(), ClosedBefore: 3e15, Now: 3e15, Limit: 10})
		check(err)
	}

	l.Write(func(b *store.Batch) { b.Deletes = []store.RunKey{a.RunKey, next.RunKey} })
	_, err = s.Members(ctx)
	check(err)
	epoch, _, err := s.Refence(ctx, l.Ref)
	check(err)
	l.Ref.Epoch = epoch
	_, err = s.Sweep(ctx, store.SweepRequest{Shards: []model.ShardID{1}, RequestsBefore: storetest.Noon, LogsBefore: storetest.Noon, DeadLettersBefore: storetest.Noon, SettingsBefore: storetest.Noon, AuditBefore: storetest.Noon, ReportsBefore: storetest.Noon, Limit: 10})
	check(err)
	check(s.PutAudit(ctx, []store.AuditRow{{ID: a.Run, Tenant: model.DefaultTenant, Body: []byte("x")}}))
	for _, q := range []store.AuditQuery{{All: true}, {Tenant: model.DefaultTenant}, {Tenant: "nobody", From: a.Run}, {Tenant: "nobody", Before: a.Run}} {
		q.Limit, q.MaxBytes = 10, 1000
		_, err = s.ListAudit(ctx, q)
		check(err)
	}
	report := store.ReportRow{ID: model.ReportID(a.Run), Tenant: model.DefaultTenant, Request: "r", Head: []byte("h"), Body: []byte("b")}
	for range 2 {
		_, err = s.AddReport(ctx, report, store.ReportBounds{Rows: 10, Bytes: 1000})
		check(err)
	}
	_, err = s.LoadReport(ctx, model.DefaultTenant, report.ID)
	check(err)
	_, err = s.ListReports(ctx, store.ReportQuery{Tenant: model.DefaultTenant, Limit: 10, MaxBytes: 1000})
	check(err)
}

// tasks calls the methods that read dead tasks, data and logs of tasks, and settings.
func tasks(t *testing.T, s store.Store, a storetest.Subject, dead store.DeadRow) {
	t.Helper()
	ctx := t.Context()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}

	_, err := s.LoadDead(ctx, dead.DeadKey)
	check(err)
	yes := true
	for _, q := range []store.DeadQuery{
		{Limit: 10},
		{Limit: 10, After: dead.Place(), Kinds: []string{"charge"}, Queues: []string{"default", "x"}, From: 1, To: model.MaxTime, Requeued: &yes},
		{Limit: 10, Fingerprint: dead.Body.Fingerprint},
	} {
		q.Tenant = model.DefaultTenant
		_, err = s.ListDead(ctx, q)
		check(err)
		_, err = s.CountDead(ctx, q)
		check(err)
		_, err = s.GroupDead(ctx, q, 10)
		check(err)
	}

	_, err = s.LoadDeadBefore(ctx, []model.ShardID{a.Shard}, 5, store.DeadPlace{}, 10)
	check(err)
	for _, task := range []string{"", "t"} {
		_, err = s.LoadTaskData(ctx, a.RunKey, store.DataRange{Task: task})
		check(err)
		_, err = s.LoadLogs(ctx, a.RunKey, task, store.LogPlace{At: 1}, 10)
		check(err)
	}

	setting := store.Setting{SettingKey: store.SettingKey{Tenant: model.DefaultTenant, Kind: "limit", Name: a.Run.String()}, Body: []byte("1")}
	version, err := s.PutSetting(ctx, setting, 0)
	check(err)
	_, err = s.ListSettings(ctx, model.DefaultTenant, "limit")
	check(err)
	_, err = s.ListSettings(ctx, model.DefaultTenant, "")
	check(err)
	_, err = s.LoadSettings(ctx, version-1)
	check(err)
	_, err = s.DeleteSetting(ctx, setting.SettingKey, version)
	check(err)
}

// entities calls the methods that write and read entities and their mailboxes.
func entities(t *testing.T, f *storetest.Fixture, l *storetest.Lane) {
	t.Helper()
	ctx, s := t.Context(), f.Store
	a, b := f.Counter(), f.Counter()

	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}

	l.Write(func(w *store.Batch) {
		w.Entities, w.Mailbox = []store.EntityRow{a.Set(1, "1"), b.Lock(1, "s")}, []store.MailboxRow{a.Mail(1), a.Mail(2), b.Mail(1)}
	})
	_, err := s.LoadEntity(ctx, a.EntityKey, 10, 1000)
	check(err)
	_, err = s.LoadMailbox(ctx, a.EntityKey, 1, 10, 1000)
	check(err)

	for _, after := range []store.EntityKey{{}, a.EntityKey} {
		_, err = s.LoadMailboxes(ctx, []model.ShardID{a.Shard, b.Shard}, after, 5)
		check(err)
	}

	for _, q := range []store.EntityQuery{
		{},
		{After: a.Address},
		{Type: a.Address.Type},
		{Type: a.Address.Type, Key: a.Address.Key},
		{Key: a.Address.Key},
		{KeyPrefix: "counter", After: a.Address},
		{Locked: true},
		{Locked: true, Key: b.Address.Key},
		{Locked: true, Type: b.Address.Type, KeyPrefix: "counter"},
	} {
		q.Tenant, q.Limit = model.DefaultTenant, 5
		_, err = s.ListEntities(ctx, q)
		check(err)
	}

	l.Write(func(w *store.Batch) {
		w.Taken, w.Entities = []store.MailboxKey{a.Take(1), a.Take(2), b.Take(1)}, []store.EntityRow{a.Set(2, "2"), b.Remove(1)}
	})
}

// An idle node sends the database one query per renewal, and nothing else.
func TestIdleBudget(t *testing.T) {
	t.Parallel()
	postgres.Sequential(t)
	server := pgtest.Start(t, pgtest.Options{})
	base := server.NewDatabase(t)
	proxy := pgproxy.New(t, server.Addr())
	s := openURL(t, proxy.URL(base))
	f := storetest.New(t, s)
	n := f.Join(1)
	n.Acquire(f.Shards()...)
	n.Lanes[0].Write(func(*store.Batch) {})
	n.Renew(time.Hour, f.Shards()...)
	requests := 0
	proxy.Inject(pgproxy.Rule{Fault: pgproxy.Reset, Match: func(pgproxy.Request) bool { requests++; return false }})

	const times = 5
	for range times {
		time.Sleep(1100 * time.Millisecond) // longer than a pool waits before it pings
		n.Renew(time.Hour, f.Shards()...)
	}

	if requests != times {
		t.Errorf("%d round trips for %d renewals", requests, times)
	}
}

// A reader that keeps a snapshot open for hours, as a backup does, must not make commits slower
// over time. The server cannot remove dead versions of the fence while the snapshot exists.
func TestOldSnapshot(t *testing.T) {
	t.Parallel()
	postgres.Sequential(t)
	base := pgtest.URL(t)
	s := openURL(t, base)
	l := newLoad(t, s, 4)
	reader := connect(t, base)
	exec(t, reader, `begin isolation level repeatable read`)
	exec(t, reader, `select count(*) from perdure.fences`)
	const batches, window = 12_000, 1000
	l.lane.Write(func(*store.Batch) {})
	pid := backend(t, base)

	// Measure the CPU time of the server. Unlike the clock, it does not count the work of other
	// processes.
	var first, last time.Duration
	for i := range batches {
		if i == batches-window {
			last = cpuOf(t, pid)
		}
		l.lane.Commit(l.lane.Batch())
		if i == window-1 {
			first = cpuOf(t, pid)
		}
	}

	last = cpuOf(t, pid) - last
	if last > 3*first {
		t.Errorf("%d commits took %s of the server, and %s after %d commits under an old snapshot", window, first, last, batches)
	}
}
