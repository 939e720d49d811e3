package sqlite

import (
	"path/filepath"
	"testing"

	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/storetest"
)

// dropTasks undoes migration 5.
const dropTasks = `drop table perdure_dead; drop table perdure_task_data; drop table perdure_task_logs; drop table perdure_settings;
	delete from perdure_meta where name in ('settings', 'settings_swept');`

// A store of the version before has what it had, and takes everything that is new.
func TestUpgradeBeforeTasks(t *testing.T) {
	t.Parallel()
	sequential(t)
	path := filepath.Join(t.TempDir(), "app.db")
	s := openTest(t, Config{Path: path})
	f := storetest.New(t, s)
	lane := f.Join(1).Lanes[0]
	a := f.Subject()
	lane.Write(func(b *store.Batch) {
		b.Starts, b.Events = []store.StartRow{a.StartRow()}, []store.EventRow{a.Event(1)}
	})
	before := f.Contents()
	tamper(t, s, dropTasks+` drop table perdure_leaving; drop index perdure_inbox_letters; update perdure_meta set value = 4 where name = 'schema'`)
	closeTest(t, s)
	f.Store = openTest(t, Config{Path: path})
	f.Want("contents", before, f.Contents())
	f.WantTasks(lane)
}

// A store of version 1 has runs that are parked or blocked: after the upgrade they are found by their reason.
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
