package sqlite

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/storetest"
)

// plan returns SQLite's query plan.
func plan(t *testing.T, c *conn, sql string) string {
	t.Helper()
	var steps []string
	err := c.query("explain query plan "+sql, func(q *stmt) error {
		steps = append(steps, q.text(3))
		return nil
	})
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return strings.Join(steps, "; ")
}

// fillTables puts a few hundred rows into every table.
func fillTables(t *testing.T, s *Store) {
	t.Helper()
	f := storetest.New(t, s)
	lane := f.Join(1).Lanes[0]
	for i := range 20 {
		lane.Write(func(b *store.Batch) {
			for j := range 20 {
				a := f.Subject()
				a.Start.Labels = []model.Label{{Name: "region", Value: fmt.Sprint(j % 3)}}
				b.Starts = append(b.Starts, a.StartRow())
				b.Events = append(b.Events, a.Event(1), a.Event(2))
				b.Timers = append(b.Timers, a.Timer("t", storetest.Noon))
				b.Messages = append(b.Messages, storetest.Message(model.ShardID(j%16), model.ShardID(j%5), int64(20*i+j+1)))
				b.Deferred = append(b.Deferred, a.Request(f.RunID(), "x"))
				b.Requests = append(b.Requests, a.Reply("y", storetest.Noon))
				b.Dead = append(b.Dead, a.Dead("t", "charge", "boom", storetest.Noon))
				b.TaskData = append(b.TaskData, a.Datum("t", "", "1"))
				b.Logs = append(b.Logs, a.Line("t", storetest.Noon, int32(j), "hello"))
				c := f.Counter()
				b.Entities, b.Mailbox = append(b.Entities, c.Set(1, "1")), append(b.Mailbox, c.Mail(1), c.Mail(2))
				if j%2 == 0 {
					b.Closes = append(b.Closes, a.Close(model.Completed))
				}
			}
		})
	}
}

func TestHotStatementsSearch(t *testing.T) {
	t.Parallel()
	sequential(t)
	s := openTest(t, Config{Path: filepath.Join(t.TempDir(), "app.db")})
	fillTables(t, s)
	// These are lines of query plans. Each says which table or index a statement searches.
	const (
		executions = "perdure_executions USING PRIMARY KEY (run=? AND shard=?)"
		timers     = "perdure_timers USING PRIMARY KEY (run=? AND shard=?"
		requests   = "perdure_requests USING PRIMARY KEY (shard=? AND tenant=? AND workflow=? AND key=? AND id=?)"
		dead       = "USING PRIMARY KEY (run=? AND shard=? AND task=?)"
		data       = "perdure_task_data USING PRIMARY KEY (run=? AND shard=?"
		logs       = "perdure_task_logs USING PRIMARY KEY (run=? AND shard=?"
		settings   = "perdure_settings USING PRIMARY KEY (tenant=?"
		entities   = "USING PRIMARY KEY (tenant=? AND type=? AND key=? AND shard=?)"
		mailbox    = "perdure_mailbox USING PRIMARY KEY (shard=? AND "
	)
	for sql, want := range map[string]string{
		sqlFence: "perdure_fences USING PRIMARY KEY (node=? AND lane=?)",
		sqlLabel: "perdure_executions USING PRIMARY KEY (run=? AND shard=?)", sqlUnlabel: "perdure_labels USING PRIMARY KEY (run=? AND shard=? AND name=?)",
		sqlLoadLabels: "perdure_labels USING PRIMARY KEY (run=? AND shard=?)",
		sqlStart:      "", sqlStartIfAbsent: "", sqlLargeStart: "", sqlEvent: "", sqlTimer: "", sqlFirstCursor: "", sqlDefer: "", sqlRequest: "", sqlPutInbox: "",
		sqlReplace: executions, sqlClose: executions, sqlMark: executions, sqlLeaving: "",
		sqlLoadLeaving:    "l USING COVERING INDEX perdure_leaving_at (shard=? AND at<?)",
		sqlDeleteLeaving:  "perdure_leaving USING PRIMARY KEY (run=? AND shard=?)",
		sqlWalkOld:        "e USING PRIMARY KEY ((run,shard)>(?,?) AND run<?)",
		sqlOldDeadLetters: "perdure_inbox_letters (shard=? AND id<?)",
		sqlRun:            "e USING PRIMARY KEY (run=? AND shard=?)",
		sqlStopTimer:      timers + " AND id=?)", sqlStopAll: timers + ")", sqlRunTimers: timers + ")",
		sqlMessage: "perdure_cursors USING PRIMARY KEY (to_shard=? AND from_shard=?)",
		sqlCursor:  "perdure_cursors USING PRIMARY KEY (to_shard=? AND from_shard=?)",
		sqlConsume: "perdure_inbox USING PRIMARY KEY (shard=? AND id=?)",
		sqlToken:   "perdure_shards USING PRIMARY KEY (shard=?)",
		sqlFree:    "perdure_shards USING PRIMARY KEY (shard=?)",

		sqlCurrentRun: "perdure_executions_current (tenant=? AND workflow=? AND key=?)",
		sqlRunnable:   "perdure_executions_runnable (shard=? AND run>?)",
		sqlLoadEvents: "perdure_history USING PRIMARY KEY (run=? AND shard=? AND seq>?)",
		sqlLastEvent:  "perdure_history USING PRIMARY KEY (run=? AND shard=?)",
		sqlScheduled:  "perdure_history USING PRIMARY KEY (run=? AND shard=?)",
		sqlLoadTimers: "perdure_timers_due (shard=? AND (due,run,id)>(?,?,?) AND due<?)",

		sqlNextPair:      "perdure_messages USING PRIMARY KEY ((to_shard,from_shard)>(?,?))",
		sqlNextSender:    "perdure_messages USING PRIMARY KEY (to_shard=? AND from_shard>?)",
		sqlLastMessage:   "perdure_messages USING PRIMARY KEY (to_shard=? AND from_shard=?)",
		sqlFirstMessage:  "perdure_messages USING PRIMARY KEY (to_shard=? AND from_shard=?)",
		sqlLoadMessages:  "perdure_messages USING PRIMARY KEY (to_shard=? AND from_shard=? AND seq>?)",
		sqlSweepMessages: "perdure_messages USING PRIMARY KEY (to_shard=? AND from_shard=? AND seq<?)",
		sqlCursorOf:      "perdure_cursors USING PRIMARY KEY (to_shard=? AND from_shard=?)",
		sqlInboxDue:      "perdure_inbox USING PRIMARY KEY (shard=?)",
		sqlLoadInbox:     "perdure_inbox USING PRIMARY KEY (shard=?)",
		sqlRemembered:    requests, sqlLoadReply: requests, sqlSweepRequest: requests,
		sqlOldRequests: "perdure_requests_age (shard=? AND at<?)",

		sqlEntity: "", sqlMailbox: "", sqlEntityChange: entities, sqlEntityRemove: entities, sqlLoadEntity: entities,
		sqlTake: mailbox + "tenant=? AND type=? AND key=? AND seq=?)", sqlLoadMailbox: mailbox + "tenant=? AND type=? AND key=? AND seq>?)",
		sqlNextMailbox: mailbox + "(tenant,type,key)>(?,?,?))", sqlNextEntityType: "perdure_entities USING PRIMARY KEY (tenant=? AND type>?)",

		sqlDead: "", sqlTaskDatum: "", sqlLog: "", sqlPutSetting: "",
		sqlDeadMark: dead, sqlDeadDelete: dead, sqlLoadDead: dead,
		sqlDeadBefore: "perdure_dead_age (shard=? AND (at,run,task)>(?,?,?) AND at<?)",
		sqlDropDatum:  data + " AND task=? AND name=?)", dataRange(store.DataRange{}): data + ")",
		dataRange(store.WrittenRange("t")): data + " AND task=? AND name>?)", dataRange(store.StreamRange("t", 1, 1)): data + " AND task=? AND name>? AND name<?)",
		sqlLoadLogs:  logs + " AND (at,epoch,batch,n)>(?,?,?,?))",
		sqlSweepData: data + " AND task=? AND name=?)", sqlSweepLogs: logs + " AND at=? AND epoch=? AND batch=? AND n=?)",
		sqlOldLogs: "perdure_task_logs_age (shard=? AND at<?)", sqlSweepLog: logs + " AND at=? AND epoch=? AND batch=? AND n=?)",
		sqlSettingVersion: settings + " AND kind=? AND name=?)", sqlSweepSetting: settings + " AND kind=? AND name=?)",
		sqlSettings: settings + " AND kind=?)", sqlAllSettings: settings + ")",
		sqlLoadSettings: "perdure_settings_version (version>?)", sqlGoneSettings: "perdure_settings_gone (at<?)",
		sqlPutAudit: "", sqlListAudit: "perdure_audit USING PRIMARY KEY (id>? AND id<?)", sqlListAuditOf: "perdure_audit_tenant (tenant=? AND id>? AND id<?)",
		sqlSweepAudit: "perdure_audit USING PRIMARY KEY (id<?)",
		sqlAddReport:  "", sqlReportOfRequest: "perdure_replay_reports_request (tenant=? AND request=?)",
		sqlLoadReport: "perdure_replay_reports_tenant (tenant=? AND id=?)", sqlListReports: "perdure_replay_reports_tenant (tenant=? AND id<?)",
		sqlReportSizes: "perdure_replay_reports_tenant (tenant=?)", sqlDeleteReport: "perdure_replay_reports USING INDEX sqlite_autoindex_perdure_replay_reports_1 (id=?)",
		sqlSweepReports: "(id<?)",
		sqlNameWorker:   "", sqlForgetWorker: "perdure_remote_workers USING PRIMARY KEY (name=?)",
		sqlDrawSetting: "perdure_meta USING PRIMARY KEY (name=?)", sqlMeta: "perdure_meta USING PRIMARY KEY (name=?)", sqlNoteSwept: "perdure_meta USING PRIMARY KEY (name=?)",
	} {
		onWriter(t, s, func(w *writer) {
			got := plan(t, w.conn, sql)
			rest := strings.ReplaceAll(got, "SCAN CONSTANT ROW", "")
			if !strings.Contains(got, want) || strings.Contains(rest, "SCAN") || strings.Contains(rest, "TEMP B-TREE") {
				t.Errorf("%s\nplan: %s\nwant: %s", sql, got, want)
			}
		})
	}
}

func dataRange(r store.DataRange) string {
	sql, _ := sqlLoadData(store.RunKey{}, &r)
	return sql
}

// If an index has the order of a listing, the listing reads only its page. Otherwise it sorts only
// the rows that it found by a key.
func TestListingsSearch(t *testing.T) {
	t.Parallel()
	sequential(t)
	s := openTest(t, Config{Path: filepath.Join(t.TempDir(), "app.db")})
	fillTables(t, s)
	region := func(values ...string) []model.LabelCondition {
		return []model.LabelCondition{{Name: "region", Values: values}, {Name: "tier", Values: []string{"gold"}, Not: true}}
	}

	after := store.PageMark{Started: storetest.Noon, Run: model.RunID{1}}
	for _, c := range []struct {
		name   string
		q      store.Query
		want   string
		sorted bool
	}{
		{
			name: "everything else", want: "e USING INDEX perdure_executions_listing (tenant=? AND (started,run)<(?,?))",
			q: store.Query{Workflows: []string{"w", "x"}, Statuses: []model.Status{model.Running, model.Failed}, Reasons: []model.ReasonCode{model.WaitTimer}, ClosedFrom: 1},
		},
		{name: "a label", q: store.Query{Labels: region("eu"), Key: "k"}, want: "l USING COVERING INDEX perdure_labels_value (tenant=? AND name=? AND value=? AND (started,run)<(?,?))"},
		{name: "several values", q: store.Query{Labels: region("eu", "us")}, want: "l USING COVERING INDEX perdure_labels_value (tenant=? AND name=? AND value=?", sorted: true},
		{name: "what is blocked", q: store.Query{Reasons: []model.ReasonCode{model.WaitMismatch, model.WaitLimit}}, want: "e USING INDEX perdure_executions_blocked (tenant=? AND (started,run)<(?,?))"},
		{name: "a key", q: store.Query{Key: "k"}, want: "e USING INDEX perdure_executions_current (tenant=? AND workflow=? AND key=?)", sorted: true},
		{name: "a beginning of keys", q: store.Query{KeyPrefix: "k", Workflows: []string{"w"}}, want: "e USING INDEX perdure_executions_current (tenant=? AND workflow=? AND key>? AND key<?)", sorted: true},
	} {
		c.q.Tenant, c.q.Limit, c.q.After = model.DefaultTenant, 1, after
		onWriter(t, s, func(w *writer) {
			got := plan(t, w.conn, newListing(&c.q).page(&c.q))
			rest := strings.NewReplacer("SCAN json_each", "", "SCAN w", "", "SCAN (subquery", "").Replace(got)
			if !strings.Contains(got, c.want) || strings.Contains(rest, "SCAN") || strings.Contains(got, "ORDER BY") != c.sorted {
				t.Errorf("%s: %s\nwant %s, sorted %v", c.name, got, c.want, c.sorted)
			}
		})
	}
}

// A page of dead tasks is read in the order of an index. Groups are read from an index, without the
// rows.
func TestDeadListingsSearch(t *testing.T) {
	t.Parallel()
	sequential(t)
	s := openTest(t, Config{Path: filepath.Join(t.TempDir(), "app.db")})
	fillTables(t, s)

	after := store.DeadPlace{At: storetest.Noon, Run: model.RunID{1}, Task: "t"}
	for _, c := range []struct {
		name string
		q    store.DeadQuery
		want string
	}{
		{"everything", store.DeadQuery{}, "d USING INDEX perdure_dead_listing (tenant=? AND (at,run,task)<(?,?,?))"},
		{"filters", store.DeadQuery{Kinds: []string{"a", "b"}, Queues: []string{"q"}, From: 1, To: model.MaxTime}, "d USING INDEX perdure_dead_listing (tenant=? AND "},
		{"what is alike", store.DeadQuery{Fingerprint: "f", Kinds: []string{"a"}}, "d USING INDEX perdure_dead_alike (tenant=? AND fingerprint=? AND (at,run,task)<(?,?,?))"},
	} {
		c.q.Tenant, c.q.Limit, c.q.After = model.DefaultTenant, 1, after
		onWriter(t, s, func(w *writer) {
			got := plan(t, w.conn, deadListing(&c.q).deadPage(&c.q))
			rest := strings.ReplaceAll(got, "SCAN json_each", "")
			if !strings.Contains(got, c.want) || strings.Contains(rest, "SCAN") || strings.Contains(got, "ORDER BY") {
				t.Errorf("%s: %s\nwant %s", c.name, got, c.want)
			}
		})
	}

	onWriter(t, s, func(w *writer) {
		if got := plan(t, w.conn, deadListing(&store.DeadQuery{Tenant: "t"}).deadGroups()); !strings.Contains(got, "d USING COVERING INDEX perdure_dead_alike (tenant=?)") {
			t.Errorf("groups: %s", got)
		}
	})
}

// A page of entities is read along the key of the table, or along the index of locked entities,
// from the end of the page before.
func TestEntityListingsSearch(t *testing.T) {
	t.Parallel()
	sequential(t)
	s := openTest(t, Config{Path: filepath.Join(t.TempDir(), "app.db")})
	fillTables(t, s)

	for _, c := range []struct {
		name  string
		q     store.EntityQuery
		after model.Address
		want  string
	}{
		{"everything", store.EntityQuery{}, model.Address{}, "n USING PRIMARY KEY (tenant=?)"},
		{"everything, later", store.EntityQuery{}, model.Address{Type: "a", Key: "k"}, "n USING PRIMARY KEY (tenant=? AND (type,key)>(?,?))"},
		{"a type, later", store.EntityQuery{Type: "a"}, model.Address{Type: "a", Key: "k"}, "n USING PRIMARY KEY (tenant=? AND type=? AND key>?)"},
		{"a key", store.EntityQuery{Type: "a", Key: "k"}, model.Address{}, "n USING PRIMARY KEY (tenant=? AND type=? AND key=?)"},
		{"a beginning of keys", store.EntityQuery{Type: "a", KeyPrefix: "k"}, model.Address{Type: "a", Key: "k"}, "n USING PRIMARY KEY (tenant=? AND type=? AND key>? AND key<?)"},
		{"locked", store.EntityQuery{Locked: true}, model.Address{Type: "a", Key: "k"}, "n USING INDEX perdure_entities_locked (tenant=? AND (type,key)>(?,?))"},
		{"locked of a type", store.EntityQuery{Locked: true, Type: "a"}, model.Address{Type: "a", Key: "k"}, "n USING INDEX perdure_entities_locked (tenant=? AND type=? AND key>?)"},
	} {
		c.q.Tenant, c.q.Limit, c.q.After = model.DefaultTenant, 1, c.after
		onWriter(t, s, func(w *writer) {
			got := plan(t, w.conn, entityListing(&c.q).entityPage(&c.q))
			if !strings.Contains(got, c.want) || strings.Contains(got, "SCAN") || strings.Contains(got, "ORDER BY") {
				t.Errorf("%s: %s\nwant %s", c.name, got, c.want)
			}
		})
	}
}

func TestInlineStepWritesOneRow(t *testing.T) {
	t.Parallel()
	sequential(t)
	b := newBench(t, Config{})
	b.lane.Commit(b.event(10))

	changes := func() (n int64) {
		onWriter(t, b.s, func(w *writer) { n = w.db.TotalChanges() })
		return n
	}

	before := changes()
	b.lane.Commit(b.event(10))
	if got := changes() - before; got != 2 {
		t.Errorf("a batch with one event changed %d rows, want 2: its fence and the event", got)
	}

	// A table WITHOUT ROWID is stored as a single tree.
	onWriter(t, b.s, func(w *writer) {
		trees, _, err := w.number("select count(*) from sqlite_schema where tbl_name = 'perdure_history' and rootpage > 0")
		if trees != 1 || err != nil {
			t.Errorf("the history has %d trees, want 1: %v", trees, err)
		}
	})
}

func TestTimersOfManyShardsComeInOrder(t *testing.T) {
	t.Parallel()
	sequential(t)
	s := openTest(t, Config{Path: filepath.Join(t.TempDir(), "app.db")})
	f := storetest.New(t, s)
	lane := f.Join(1).Lanes[0]
	const timers, page = 500, 37

	lane.Write(func(b *store.Batch) {
		for i := range timers {
			b.Timers = append(b.Timers, f.Subject().Timer(fmt.Sprint(i), storetest.Noon+model.Time(i*7919%timers/3)))
		}
	})

	var all []store.Timer
	var after store.TimerMark
	for {
		got, err := s.LoadTimers(t.Context(), f.Shards(), after, model.MaxTime, page)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) == 0 {
			break
		}
		all = append(all, got...)
		last := got[len(got)-1]
		after = store.TimerMark{Due: last.Due, Run: last.Run, ID: last.ID}
	}

	if len(all) != timers {
		t.Fatalf("%d timers, want %d", len(all), timers)
	}

	for i := 1; i < len(all); i++ {
		if compareTimers(all[i-1], all[i]) >= 0 {
			t.Fatalf("timer %d comes after timer %d", i-1, i)
		}
	}
}
