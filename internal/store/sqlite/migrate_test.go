package sqlite

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/storetest"
)

// Each of these scripts undoes all migrations from a number on: dropTTL from 13, dropReports from
// 12, dropWorkers from 11, dropBodies from 10, dropTokens from 8, and dropEntities from 7.
const (
	dropTTL     = `alter table perdure_nodes drop column ttl;`
	dropReports = dropTTL + `drop table perdure_replay_reports;`
	dropWorkers = dropReports + `drop table perdure_remote_workers;`
	dropBodies  = dropWorkers + `update perdure_history set body = b.body from perdure_bodies b
		where b.run = perdure_history.run and b.shard = perdure_history.shard and b.seq = perdure_history.seq;
		drop table perdure_bodies;`
	dropTokens   = dropBodies + `drop table perdure_audit; alter table perdure_shards drop column tokens;`
	dropEntities = dropTokens + `drop table perdure_entities; drop table perdure_mailbox;`
)

// dropTasks undoes migration 5 and all migrations from 7 on. It does not undo migration 6.
const dropTasks = dropEntities + `drop table perdure_dead; drop table perdure_task_data; drop table perdure_task_logs; drop table perdure_settings;
	delete from perdure_meta where name in ('settings', 'settings_swept');`

// openUpgraded creates a store with a run, takes the store back to an older version, and opens it
// again, which upgrades it. It checks that nothing was lost.
func openUpgraded(t *testing.T, undo string, version int) (*storetest.Fixture, *storetest.Lane) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "app.db")
	s := openTest(t, Config{Path: path})
	f := storetest.New(t, s)
	lane := f.Join(1).Lanes[0]
	a := f.Subject()
	lane.Write(func(b *store.Batch) {
		b.Starts, b.Events = []store.StartRow{a.StartRow()}, []store.EventRow{a.Event(1)}
	})
	before := f.Contents()
	tamper(t, s, fmt.Sprintf(`%s update perdure_meta set value = %d where name = 'schema'`, undo, version))
	closeTest(t, s)
	f.Store = openTest(t, Config{Path: path})
	f.Want("contents", before, f.Contents())
	return f, lane
}

func TestUpgradeBeforeTasks(t *testing.T) {
	t.Parallel()
	sequential(t)
	f, lane := openUpgraded(t, dropTasks+` drop table perdure_leaving; drop index perdure_inbox_letters;`, 4)
	f.WantTasks(lane)
}

// Earlier builds took fencing tokens from the clock. After the upgrade, tokens start above the time
// of the clock.
func TestUpgradeBeforeTokens(t *testing.T) {
	t.Parallel()
	sequential(t)
	began := time.Now()
	f, _ := openUpgraded(t, dropTokens, 7)
	if got := f.Join(1).Acquire(1); len(got) != 1 || got[0].Tokens < began.UnixMicro() {
		t.Errorf("acquired %+v, want one shard with a token mark of at least %d", got, began.UnixMicro())
	}
}

func TestUpgradeBeforeEntities(t *testing.T) {
	t.Parallel()
	sequential(t)
	f, lane := openUpgraded(t, dropEntities, 6)
	f.WantEntities(lane)
}

// Older versions did not store the names of the remote workers of servers. The upgrade adds one
// name that stands for all of these workers. The home of a worker is the process of its server. The
// upgrade does not know that process, so the added name has the zero id as its home. A new store
// has no names.
func TestUpgradeBeforeRemoteWorkers(t *testing.T) {
	t.Parallel()
	sequential(t)
	f, _ := openUpgraded(t, dropWorkers, 10)
	homes, err := f.Store.WorkerHomes(t.Context())
	if err != nil || !slices.Equal(homes, []model.NodeID{{}}) {
		t.Errorf("homes %v, %v; want only the zero id", homes, err)
	}
	fresh := openTest(t, Config{Path: filepath.Join(t.TempDir(), "new.db")})
	if homes, err = fresh.WorkerHomes(t.Context()); err != nil || len(homes) > 0 {
		t.Errorf("homes %v, %v in a new store", homes, err)
	}
}

// Older versions did not store the lengths of leases.
func TestUpgradeBeforeTTL(t *testing.T) {
	t.Parallel()
	sequential(t)
	f, _ := openUpgraded(t, dropTTL, 12)
	v, err := f.Store.Members(t.Context())
	if err != nil || len(v.Members) != 1 || v.Members[0].TTL != 0 {
		t.Errorf("members %+v, %v; want one with a lease of unknown length", v.Members, err)
	}
}

// A store of version 1 has parked and blocked runs. After the upgrade, queries find them by their
// reasons.
func TestUpgradeFillsReasons(t *testing.T) {
	t.Parallel()
	sequential(t)
	path := filepath.Join(t.TempDir(), "app.db")
	s := openTest(t, Config{Path: path})
	f := storetest.New(t, s)
	marks, starts, want := storetest.ReasonsOf(f)
	f.Join(1).Lanes[0].Write(func(b *store.Batch) { b.Starts, b.Marks = starts, marks })
	f.WantReasons(want)
	tamper(t, s, `drop table perdure_leaving; drop index perdure_inbox_letters; drop index perdure_executions_blocked; alter table perdure_executions drop column reason; drop table perdure_labels;
		`+dropTasks+` drop table perdure_garbage; alter table perdure_nodes drop column serves; update perdure_meta set value = 1 where name = 'schema'`)
	closeTest(t, s)
	f.Store = openTest(t, Config{Path: path})
	f.WantReasons(want)
}

// Files of earlier builds have pages of 8 KiB, and files of users may have pages of any size.
func TestFilesKeepTheirPageSize(t *testing.T) {
	t.Parallel()
	sequential(t)
	for _, size := range []int64{512, 8192, 65536, 0} {
		path := filepath.Join(t.TempDir(), "app.db")
		want := size
		if size == 0 {
			want = pageSize // a new file
		} else {
			db, err := sqlite3.Open("file:" + path)
			if err != nil {
				t.Fatal(err)
			}
			if err := db.Exec(fmt.Sprintf("pragma page_size = %d; create table mine (n integer)", size)); err != nil {
				t.Fatal(err)
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
		}

		s := openTest(t, Config{Path: path})
		f := storetest.New(t, s)
		lane, a := f.Join(1).Lanes[0], f.Subject()
		lane.Write(func(b *store.Batch) {
			b.Starts, b.Events = []store.StartRow{a.StartRow()}, []store.EventRow{a.Event(1)}
		})
		before := f.Contents()
		closeTest(t, s)

		s = openTest(t, Config{Path: path})
		f.Store = s
		f.Want("contents", before, f.Contents())
		err := s.write(t.Context(), "look", func(w *writer) error {
			if int64(w.pageSize) != want {
				t.Errorf("pages have %d bytes, want %d", w.pageSize, want)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		closeTest(t, s)
	}
}

// The SQL that Script returns creates the same tables as Open. After that SQL has run, Script
// returns no further SQL.
func TestScript(t *testing.T) {
	t.Parallel()
	sequential(t)
	opened, made := filepath.Join(t.TempDir(), "opened.db"), filepath.Join(t.TempDir(), "made.db")
	closeTest(t, openTest(t, Config{Path: opened, Shards: 7}))
	text, err := Script(t.Context(), Config{Path: made, Shards: 7})
	if err != nil {
		t.Fatal(err)
	}

	tables := func(path, first string) (all []string) {
		db, err := sqlite3.Open("file:" + path)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if err := db.Exec(first); err != nil {
			t.Fatal(err)
		}
		const look = `select type || name || coalesce(sql, '') from sqlite_schema union all select name || value from perdure_meta where name <> 'cluster' union all select 'shard ' || shard from perdure_shards order by 1`
		q, _, err := db.Prepare(look)
		if err != nil {
			t.Fatal(err)
		}
		defer q.Close()
		for q.Step() {
			all = append(all, q.ColumnText(0))
		}
		if err := q.Err(); err != nil {
			t.Fatal(err)
		}
		return all
	}
	want, got := tables(opened, ""), tables(made, text)
	if !slices.Equal(want, got) || len(want) < 20 {
		t.Errorf("the script created %d tables, indexes and rows, Open %d:\n%q\n%q", len(got), len(want), got, want)
	}

	if rest, err := Script(t.Context(), Config{Path: made}); err != nil || rest != "" {
		t.Errorf("after the script has run, Script still returns %q, %v", rest, err)
	}
	closeTest(t, openTest(t, Config{Path: made}))
}
