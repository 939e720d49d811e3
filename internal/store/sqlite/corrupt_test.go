package sqlite

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/storetest"
)

func TestTamperedRowsAreCorrupt(t *testing.T) {
	t.Parallel()
	sequential(t)
	f := storetest.New(t, openTest(t, Config{Path: filepath.Join(t.TempDir(), "app.db")}))
	s := f.Store.(*Store)
	lane := f.Join(1).Lanes[0]
	a, large, parked := f.SubjectIn(3), f.SubjectIn(3), f.SubjectIn(3)
	large.Start.Input = storetest.Text(strings.Repeat("x", 5000))
	request, dead := a.Request(f.RunID(), "r"), a.Dead("t", "charge", "boom", storetest.Noon)
	counter := f.CounterIn(3)
	if err := s.PutInbox(t.Context(), []store.InboxRow{request}); err != nil {
		t.Fatal(err)
	}

	lane.Write(func(b *store.Batch) {
		b.Starts = []store.StartRow{a.StartRow(), large.StartRow(), parked.StartRow()}
		b.Closes = []store.CloseRow{large.Close(model.Completed)}
		b.Marks = []store.MarkRow{parked.Park()}
		b.Events = []store.EventRow{a.Event(1), a.Event(2), a.Event(3)}
		b.Messages = []store.MessageRow{storetest.Message(3, 1, 1)}
		b.Requests = []store.Reply{a.Reply("old", storetest.Noon)}
		b.Dead = []store.DeadRow{dead}
		b.TaskData = []store.TaskDatum{a.Datum("t", "n", "value")}
		b.Logs = []store.LogRow{a.Line("t", storetest.Noon, 0, "hello")}
		b.Entities, b.Mailbox = []store.EntityRow{counter.Set(1, "1")}, []store.MailboxRow{counter.Mail(1), counter.Mail(2)}
	})

	if _, err := s.PutSetting(t.Context(), store.Setting{SettingKey: store.SettingKey{Tenant: "x", Kind: "limit", Name: "l"}, Body: []byte("1")}, 0); err != nil {
		t.Fatal(err)
	}
	shards := []model.ShardID{3}
	events := func() error { return second(s.LoadEvents(t.Context(), a.RunKey, 0, 10, 1000)) }
	row := func(x storetest.Subject) func() error {
		return func() error { return second(s.LoadExecution(t.Context(), x.Shard, x.Start.Address, x.Run)) }
	}

	list := func() error { // a list shows an unreadable row with the reason
		page, err := s.List(t.Context(), store.Query{Tenant: model.DefaultTenant, Limit: 10})
		for i := range page.Executions {
			if why := page.Executions[i].Blocked; why != nil && why.Code == model.WaitCorrupt {
				return &store.Error{Class: store.Refused, Op: "list", Err: fault.New(fault.Corrupt, "%s", why.Detail)}
			}
		}
		return err
	}

	// Reads that return pages return a reason in place of an unreadable row, so that one such row
	// does not hide the others.
	damage := func(d *model.Damaged, err error) error {
		if err != nil || d == nil {
			return err
		}
		return &store.Error{Class: store.Refused, Op: "load", Err: fault.New(fault.Corrupt, "%s", d.Why)}
	}

	reply := func() error {
		got, err := s.LoadReplies(t.Context(), []store.RequestKey{a.RequestKey("old")})
		return damage(got[0].Damaged, err)
	}

	messages := func() error {
		got, _, err := s.LoadMessages(t.Context(), shards, 10, 1<<30)
		return damage(got[0].Damaged, err)
	}

	inbox := func() error {
		got, _, err := s.LoadInbox(t.Context(), shards, 0, 10, 1<<30)
		return damage(got[0].Damaged, err)
	}

	deadTask := func() error {
		got, err := s.LoadDead(t.Context(), dead.DeadKey)
		if got == nil || got.DeadKey != dead.DeadKey {
			t.Errorf("a dead task is loaded as %+v", got)
		}
		return err
	}
	deadTasks := func() error { // a list shows an unreadable row with the error
		page, err := s.ListDead(t.Context(), store.DeadQuery{Tenant: model.DefaultTenant, Limit: 10})
		for i := range page.Rows {
			if f := page.Rows[i].Body.Failure; f.Kind == fault.Corrupt.String() {
				return &store.Error{Class: store.Refused, Op: "list", Err: fault.New(fault.Corrupt, "%s", f.Message)}
			}
		}
		return err
	}

	data := func() error { return second(s.LoadTaskData(t.Context(), a.RunKey, store.DataRange{})) }
	logs := func() error {
		got, err := s.LoadLogs(t.Context(), a.RunKey, "", store.LogPlace{}, 10)
		if err == nil && got[0].Text != "hello" {
			err = damage(&model.Damaged{Why: got[0].Text}, nil)
		}
		return err
	}

	settings := func() error {
		got, err := s.LoadSettings(t.Context(), 0)
		return damage(got.Changed[0].Damaged, err)
	}

	entry := store.AuditRow{ID: f.RunID(), Tenant: "x", Final: true, Body: []byte("{}")}
	if err := s.PutAudit(t.Context(), []store.AuditRow{entry}); err != nil {
		t.Fatal(err)
	}
	audit := func() error {
		got, err := s.ListAudit(t.Context(), store.AuditQuery{All: true, Limit: 1})
		return damage(got[0].Damaged, err)
	}

	report := store.ReportRow{ID: model.ReportID(f.RunID()), Tenant: "x", Request: "r", Head: []byte("head"), Body: []byte("body")}
	if _, err := s.AddReport(t.Context(), report, store.ReportBounds{Rows: 1, Bytes: 100}); err != nil {
		t.Fatal(err)
	}
	heads := func() error {
		got, err := s.ListReports(t.Context(), store.ReportQuery{Tenant: "x", Limit: 1})
		return damage(got[0].Damaged, err)
	}
	bodies := func() error {
		got, err := s.LoadReport(t.Context(), "x", report.ID)
		return damage(got.Damaged, err)
	}

	entity := func() error {
		got, err := s.LoadEntity(t.Context(), counter.EntityKey, 1, 1)
		if err != nil {
			return err
		}
		return damage(got.Mailbox[0].Damaged, err)
	}

	mailbox := func() error {
		got, err := s.LoadMailbox(t.Context(), counter.EntityKey, 1, 1, 1)
		return damage(got[0].Damaged, err)
	}

	entities := func() error { // a list shows only the columns of an unreadable row
		page, err := s.ListEntities(t.Context(), store.EntityQuery{Tenant: model.DefaultTenant, Limit: 10})
		if err == nil && (len(page.Entities) != 1 || page.Entities[0].Address != counter.Address) {
			return fmt.Errorf("listed: %+v", page.Entities)
		}
		if err == nil && !page.Entities[0].Exists {
			return &store.Error{Class: store.Refused, Op: "list", Err: fault.New(fault.Corrupt, "version %d", page.Entities[0].Version)}
		}
		return err
	}

	flip := func(column string) string { // flips a bit of the last byte
		return fmt.Sprintf("%[1]s = cast(substr(%[1]s, 1, length(%[1]s) - 1) || case substr(%[1]s, -1) when x'00' then x'01' else x'00' end as blob)", column)
	}
	for _, c := range []struct {
		change, table, where string
		read                 func() error
		says                 []string
	}{
		{flip("body"), "perdure_history", "seq = 2", events, []string{"perdure_history", a.Run.String(), "position 2"}},
		{"body = cast(x'a0' || substr(body, 2) as blob)", "perdure_history", "seq = 3", events, []string{"position 3"}},
		{"body = x''", "perdure_history", "seq = 1", events, []string{"position 1"}},
		{"at = at + 1", "perdure_history", "seq = 1", events, []string{"position 1"}},
		{"kind = 9", "perdure_history", "seq = 1", events, []string{"position 1"}},
		{"kind = 77", "perdure_history", "seq = 1", events, []string{"position 1"}},
		{"kind = 256 + kind", "perdure_history", "seq = 1", events, []string{"position 1"}},
		{"seq = 4", "perdure_history", "seq = 2", events, []string{"position 4"}},
		{flip("start"), "perdure_executions", "start is not null", row(a), []string{"perdure_executions", a.Run.String(), "start"}},
		{"start = null", "perdure_executions", "start is not null", row(a), []string{"start"}},
		{"key = key || 'x'", "perdure_executions", "start is not null", row(a), []string{"start"}},
		{"started = 5", "perdure_executions", "start is not null", list, []string{"start"}},
		{flip("body"), "perdure_starts", "true", row(large), []string{"perdure_executions", large.Run.String(), "start"}},
		{flip("outcome"), "perdure_executions", "outcome is not null", row(large), []string{large.Run.String(), "outcome"}},
		{"state = 3", "perdure_executions", "state = 2", row(large), []string{"outcome"}},
		{"outcome = null", "perdure_executions", "state = 2", row(large), []string{"outcome"}},
		{flip("waits"), "perdure_executions", "waits is not null", row(parked), []string{parked.Run.String(), "waits"}},
		{flip("body"), "perdure_messages", "true", messages, []string{"perdure_messages", "shard 1 to shard 3", "position 1"}},
		{flip("body"), "perdure_inbox", "true", inbox, []string{"perdure_inbox", request.ID.String()}},
		{flip("body"), "perdure_requests", "true", reply, []string{"perdure_requests", `"old"`}},
		{"at = at + 1", "perdure_requests", "true", reply, []string{"perdure_requests"}},
		{flip("body"), "perdure_dead", "true", deadTask, []string{"perdure_dead", a.Run.String(), `"t"`}},
		{flip("body"), "perdure_dead", "true", deadTasks, []string{"perdure_dead", a.Run.String()}},
		{"requeued = 1", "perdure_dead", "true", deadTask, []string{"perdure_dead"}},
		{"queue = 'other'", "perdure_dead", "true", deadTasks, []string{"perdure_dead"}},
		{"fingerprint = 'other'", "perdure_dead", "true", deadTask, []string{"perdure_dead"}},
		{flip("body"), "perdure_task_data", "true", data, []string{"perdure_task_data", a.Run.String(), `"n"`}},
		{"name = 'other'", "perdure_task_data", "true", data, []string{"perdure_task_data"}},
		{flip("body"), "perdure_task_logs", "true", logs, []string{"perdure_task_logs", a.Run.String()}},
		{"level = 100000", "perdure_task_logs", "true", logs, []string{"perdure_task_logs"}},
		{"n = 4294967296", "perdure_task_logs", "true", logs, []string{"perdure_task_logs"}},
		{flip("body"), "perdure_entities", "true", entity, []string{"perdure_entities", counter.Address.Key}},
		{flip("body"), "perdure_entities", "true", entities, []string{"version 1"}},
		{"version = 7", "perdure_entities", "true", entity, []string{"perdure_entities"}},
		{"version = 7", "perdure_entities", "true", entities, []string{"version 7"}},
		{"changed = changed + 1", "perdure_entities", "true", entity, []string{"perdure_entities"}},
		{"locked = 1", "perdure_entities", "true", entity, []string{"perdure_entities"}},
		{flip("body"), "perdure_mailbox", "seq = 1", entity, []string{"perdure_mailbox", counter.Address.Key, "item 1"}},
		{flip("body"), "perdure_mailbox", "seq = 2", mailbox, []string{"perdure_mailbox", counter.Address.Key, "item 2"}},
		{"at = at + 1", "perdure_mailbox", "seq = 2", mailbox, []string{"item 2"}},
		{"seq = 5", "perdure_mailbox", "seq = 2", mailbox, []string{"item 5"}},
		{flip("body"), "perdure_settings", "true", settings, []string{"perdure_settings", "x/limit/l"}},
		{"version = 7", "perdure_settings", "true", settings, []string{"perdure_settings"}},
		{flip("body"), "perdure_audit", "true", audit, []string{"perdure_audit", entry.ID.String()}},
		{flip("head"), "perdure_replay_reports", "true", heads, []string{"perdure_replay_reports", report.ID.String()}},
		{flip("body"), "perdure_replay_reports", "true", bodies, []string{"perdure_replay_reports", report.ID.String()}},
		{"request = 'other'", "perdure_replay_reports", "true", heads, []string{"perdure_replay_reports"}},
		{"tenant = 'other'", "perdure_audit", "true", audit, []string{"perdure_audit"}},
		{"final = 0", "perdure_audit", "true", audit, []string{"perdure_audit"}},
	} {
		if err := c.read(); err != nil {
			t.Fatalf("%s of %s, before: %v", c.change, c.table, err)
		}
		tamper(t, s, "create temp table saved as select * from "+c.table)
		tamper(t, s, "update "+c.table+" set "+c.change+" where "+c.where)
		err := c.read()
		if !fault.Is(err, fault.Corrupt) || store.ClassOf(err) != store.Refused {
			t.Errorf("%s of %s: %v", c.change, c.table, err)
		} else {
			wantKind(t, err, fault.Corrupt, c.says...)
		}
		tamper(t, s, "delete from "+c.table+"; insert into "+c.table+" select * from temp.saved; drop table temp.saved")
	}
}

// Reads skip rows without a valid id, and the error names the first of these rows. The page has all
// other rows, however many bad rows there are.
func TestRowsWithoutIDsSpoilNoPage(t *testing.T) {
	t.Parallel()
	sequential(t)
	f := storetest.New(t, openTest(t, Config{Path: filepath.Join(t.TempDir(), "app.db")}))
	s := f.Store.(*Store)
	lane := f.Join(1).Lanes[0]
	good, closed := f.SubjectIn(3), f.SubjectIn(3)

	lane.Write(func(b *store.Batch) {
		b.Starts = []store.StartRow{good.StartRow(), closed.StartRow()}
		b.Closes = []store.CloseRow{closed.Close(model.Completed)}
		b.Timers = []store.Timer{good.Timer("t", storetest.Noon)}
	})

	request := good.Request(f.RunID(), "r")
	if err := s.PutInbox(t.Context(), []store.InboxRow{request}); err != nil {
		t.Fatal(err)
	}

	for i := range 40 { // more than any page below
		tamper(t, s, fmt.Sprintf(`insert into perdure_timers (run, shard, id, due, tenant, workflow, key) values (x'%02x', 3, 'bad', 5, 'default', 'order', 'k')`, i))
		tamper(t, s, fmt.Sprintf(`insert into perdure_inbox (shard, id, not_before, body) values (3, x'%02x', 0, x'00')`, i))
		for j, state := range []int{0, 2} {
			tamper(t, s, fmt.Sprintf(`insert into perdure_executions (run, shard, state, current, started, closed, tenant, workflow, key)
				values (x'00%02x%02x', 3, %d, 0, 1, 1, 'default', 'order', 'k')`, i, j, state))
		}
	}

	shards := []model.ShardID{3}
	whole := func(what string, err error) {
		t.Helper()
		if err == nil || !store.Whole(err) || !fault.Is(err, fault.Corrupt) {
			t.Errorf("%s: %v, want an error that says which rows were passed over, and that the page is whole", what, err)
		}
	}

	timers, err := s.LoadTimers(t.Context(), shards, store.TimerMark{}, storetest.Noon, 10)
	whole("timers", err)
	f.Want("timers", []store.Timer{good.Timer("t", storetest.Noon)}, timers)
	runs, err := s.LoadRunnable(t.Context(), shards, store.RunKey{}, 10)
	whole("runnable", err)
	if len(runs) != 1 || runs[0].Run != good.Run {
		t.Errorf("runnable: %+v", runs)
	}
	inbox, _, err := s.LoadInbox(t.Context(), shards, storetest.Noon, 10, 1<<30)
	whole("inbox", err)
	f.Want("inbox", []store.InboxRow{request}, inbox)
	old, err := s.LoadExpired(t.Context(), store.ExpiredRequest{Shards: shards, ClosedBefore: model.MaxTime, Now: model.MaxTime, Limit: 10})
	whole("expired", err)
	if len(old.Runs) != 1 || old.Runs[0].Run != closed.Run || old.Next != (store.RunKey{}) {
		t.Errorf("expired: %+v", old)
	}
	if page, err := s.List(t.Context(), store.Query{Tenant: model.DefaultTenant, AllRuns: true, Limit: 10}); err != nil || len(page.Executions) != 2 {
		t.Errorf("listed: %+v, %v", page, err)
	}
}

// filledImage creates a store with rows, closes it, and returns the bytes of the file and the
// contents that can be read from it.
func filledImage(t *testing.T) (image []byte, scope storetest.Scope, want storetest.Contents) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "app.db")
	s := openTest(t, Config{Path: path})
	f := storetest.New(t, s)
	lane := f.Join(1).Lanes[0]
	scope.Tenants = []string{model.DefaultTenant}

	for i := range 30 {
		a := f.Subject()
		a.Start.Input = storetest.Text(strings.Repeat("input ", 10*i))
		lane.Write(func(b *store.Batch) {
			b.Starts = []store.StartRow{a.StartRow()}
			for seq := range int64(20) {
				b.Events = append(b.Events, a.Event(seq+1))
			}
			if i%2 == 0 {
				b.Closes = []store.CloseRow{a.Close(model.Completed)}
			}
			c := f.Counter()
			b.Entities, b.Mailbox = []store.EntityRow{c.Set(1, strings.Repeat("state ", 10*i))}, []store.MailboxRow{c.Mail(1), c.Mail(2)}
			scope.Note(b)
		})
	}

	want, err := storetest.Read(t.Context(), s, scope)
	if err != nil {
		t.Fatal(err)
	}
	closeTest(t, s)
	if image, err = os.ReadFile(path); err != nil {
		t.Fatal(err)
	}

	return image, scope, want
}

func TestFlippedBitsAreNeverBelieved(t *testing.T) {
	t.Parallel()
	image, scope, want := filledImage(t)
	events := map[store.RunKey]map[int64]string{}
	for _, h := range want.Events {
		events[h.Run] = map[int64]string{}
		for _, e := range h.Events {
			events[h.Run][e.Seq] = fmt.Sprintf("%+v", e)
		}
	}

	runs := map[model.RunID]string{}
	for i := range want.Executions {
		e := &want.Executions[i]
		runs[e.Start.Run] = fmt.Sprintf("%+v %+v", e.Start, e.Outcome)
	}

	entities := map[string]bool{}
	for i := range want.Entities {
		entities[fmt.Sprintf("%+v", want.Entities[i])] = true
	}
	for i := range want.Mailbox {
		entities[fmt.Sprintf("%+v", want.Mailbox[i])] = true
	}
	rounds := 100
	if testing.Short() {
		rounds = 20
	}
	random := rand.New(rand.NewPCG(1, 2))
	path := filepath.Join(t.TempDir(), "app.db")

	noticed, unharmed, missing := 0, 0, 0
	for range rounds {
		broken := bytes.Clone(image)
		at := random.IntN(len(broken))
		broken[at] ^= 1 << random.IntN(8)
		if err := os.WriteFile(path, broken, 0o600); err != nil {
			t.Fatal(err)
		}
		_ = os.Remove(path + "-wal")
		_ = os.Remove(path + "-shm")
		s, err := Open(t.Context(), Config{Path: path, ReadOnly: true})
		if err != nil {
			noticed++
			continue
		}

		got, err := storetest.Read(t.Context(), s, scope)
		_ = s.Close()
		if err != nil {
			if k := fault.KindOf(err); k != fault.Corrupt && k != fault.Unavailable {
				t.Errorf("bit in byte %d: %v", at, err)
			}
			noticed++
			continue
		}

		count := 0
		for _, h := range got.Events {
			for _, e := range h.Events {
				count++
				if events[h.Run][e.Seq] != fmt.Sprintf("%+v", e) {
					t.Errorf("bit in byte %d: event %d of %s is not what was written", at, e.Seq, h.Run.Run)
				}
			}
		}

		for i := range got.Executions {
			e := &got.Executions[i]
			if e.Blocked != nil && e.Blocked.Code == model.WaitCorrupt {
				continue // the error says so
			}
			count++
			if was := runs[e.Start.Run]; was != fmt.Sprintf("%+v %+v", e.Start, e.Outcome) {
				t.Errorf("bit in byte %d: run %s is not what was written", at, e.Start.Run)
			}
		}

		for i := range got.Entities {
			count++
			if !entities[fmt.Sprintf("%+v", got.Entities[i])] {
				t.Errorf("bit in byte %d: entity %s is not what was written", at, got.Entities[i].Address)
			}
		}

		for i := range got.Mailbox {
			if got.Mailbox[i].Item.Damaged != nil {
				continue // the error says so
			}
			count++
			if !entities[fmt.Sprintf("%+v", got.Mailbox[i])] {
				t.Errorf("bit in byte %d: what waits for %s is not what was written", at, got.Mailbox[i].Address)
			}
		}

		if count == 30*(21+3) {
			unharmed++
		} else {
			missing++
		}
	}

	t.Logf("of %d flipped bits %d were noticed, %d did no harm, %d hid rows", rounds, noticed, unharmed, missing)
}

func TestTruncatedFileIsNoticed(t *testing.T) {
	t.Parallel()
	sequential(t)
	image, scope, _ := filledImage(t)

	// SQLite reads missing bytes of the last page as zeros, so zeros at its end may be missing.
	last := len(bytes.TrimRight(image, "\x00"))
	path := filepath.Join(t.TempDir(), "app.db")
	for _, size := range []int{1, 50, 100, pageSize, 2 * pageSize, 12 * pageSize, len(image) / 2, len(image) - pageSize, last - 1} {
		if err := os.WriteFile(path, image[:size], 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Open(t.Context(), Config{Path: path})
		if err == nil {
			_, err = storetest.Read(t.Context(), s, scope)
			_ = s.Close()
		}
		if k := fault.KindOf(err); err == nil || k != fault.Corrupt && k != fault.Invalid {
			t.Errorf("cut to %d of %d bytes: %v", size, len(image), err)
		}
	}
}

func TestDamagedFileTakesNoWrites(t *testing.T) {
	t.Parallel()
	sequential(t)
	b := newBench(t, Config{})
	b.lane.Commit(b.event(10))

	// A page of the history becomes garbage.
	onWriter(t, b.s, func(w *writer) {
		root, _, err := w.number("select rootpage from sqlite_schema where name = 'perdure_history'")
		if err != nil {
			t.Fatal(err)
		}
		for _, sql := range []string{"pragma writable_schema = on", fmt.Sprintf("update sqlite_schema set rootpage = 1 where rootpage = %d", root)} {
			if err := w.db.Exec(sql); err != nil {
				t.Fatal(err)
			}
		}
	})

	closeTest(t, b.s)
	s, err := Open(t.Context(), Config{Path: b.path})
	if err == nil {
		_, err = s.Commit(t.Context(), b.event(10))
		wantClass(t, err, store.Away)
		_ = s.Close()
	}

	wantKind(t, err, fault.Corrupt, b.path)
}

func TestMovedFileTakesNoWrites(t *testing.T) {
	t.Parallel()
	sequential(t)
	for _, suffix := range []string{"", "-wal"} {
		b := newBench(t, Config{})
		b.lane.Commit(b.event(10))
		if err := os.Rename(b.path+suffix, b.path+".moved"); err != nil {
			t.Fatal(err)
		}
		// pretend that a second has passed
		onWriter(t, b.s, func(w *writer) { w.names.next = w.names.next.Add(-1e9) })
		_, err := b.lane.Try(t.Context(), b.event(10))
		wantClass(t, err, store.Away)
		wantKind(t, err, fault.Unavailable, b.path, "moved")
	}
}
