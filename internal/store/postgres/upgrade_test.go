package postgres_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/postgres"
	"github.com/perdure/perdure/internal/store/storetest"
)

// Each of these lists undoes all migrations from a number on: dropTTL from 19, dropReports from 17,
// dropWorkers from 16, dropTokens from 10, and dropEntities from 9.
var (
	dropTTL     = []string{`alter table perdure.nodes drop column ttl`}
	dropReports = append(slices.Clone(dropTTL), `alter table perdure.meta drop column databases, drop column member, drop column home`, `drop table perdure.replay_reports`)
	dropWorkers = append(slices.Clone(dropReports), `drop table perdure.remote_workers`, `alter table perdure.nodes drop column home`)
	dropTokens  = append(slices.Clone(dropWorkers), []string{
		`alter table perdure.meta drop column groups`, `alter table perdure.nodes drop column groups`,
		`alter table perdure.migrations drop column compatible`, `drop table perdure.audit`, `alter table perdure.nodes drop column weight, drop column drained`,
		`alter table perdure.nodes drop column link_address, drop column link_key`, `alter table perdure.shards drop column tokens`,
	}...)
	dropEntities = append([]string{`drop table perdure.entities`, `drop table perdure.mailbox`}, dropTokens...)
)

// dropTasks undoes migration 6.
var dropTasks = []string{
	`drop table perdure.dead`, `drop table perdure.task_data`, `drop table perdure.task_logs`, `drop table perdure.settings`, `drop table perdure.settings_counter`,
}

// openUpgraded takes a store with a run back to an older version and opens it again. The run must
// still be there.
func openUpgraded(t *testing.T, version int, undo ...string) (*storetest.Fixture, *storetest.Lane) {
	t.Helper()
	base := pgtest.URL(t)
	s := openURL(t, base)
	f := storetest.New(t, s)
	lane := f.Join(1).Lanes[0]
	a := f.Subject()
	lane.Write(func(b *store.Batch) {
		b.Starts, b.Events = []store.StartRow{a.StartRow()}, []store.EventRow{a.Event(1)}
	})
	before := f.Contents()
	_ = s.Close()
	c := connect(t, base)
	for _, sql := range append(undo, fmt.Sprint(`delete from perdure.migrations where version > `, version)) {
		exec(t, c, sql)
	}
	f.Store = openURL(t, base)
	f.Want("contents", before, f.Contents())

	return f, lane
}

func TestUpgradeBeforeTasks(t *testing.T) {
	t.Parallel()
	postgres.Sequential(t)
	f, lane := openUpgraded(t, 5, slices.Concat(dropEntities, dropTasks, []string{`drop table perdure.leaving`, `drop table perdure.peer_mail`})...)
	f.WantTasks(lane)
}

// Older versions took fencing tokens from the clock. After the upgrade, tokens start above the time
// of the clock.
func TestUpgradeBeforeTokens(t *testing.T) {
	t.Parallel()
	postgres.Sequential(t)
	began := time.Now()
	f, _ := openUpgraded(t, 9, dropTokens...)
	if got := f.Join(1).Acquire(1); len(got) != 1 || got[0].Tokens < began.UnixMicro() {
		t.Errorf("acquired %+v, want a mark that is not below the clock", got)
	}
}

func TestUpgradeBeforeEntities(t *testing.T) {
	t.Parallel()
	postgres.Sequential(t)
	f, lane := openUpgraded(t, 8, dropEntities...)
	f.WantEntities(lane)
}

// Older versions did not store the names of the remote workers of servers. The upgrade adds one
// name that stands for all of these workers, with a home that is no existing process. A new store
// has no names.
func TestUpgradeBeforeRemoteWorkers(t *testing.T) {
	t.Parallel()
	f, _ := openUpgraded(t, 15, dropWorkers...)
	homes, err := f.Store.WorkerHomes(t.Context())
	if err != nil || !slices.Equal(homes, []model.NodeID{{}}) {
		t.Errorf("homes %v, %v; want one that no process has", homes, err)
	}
	if homes, err = openURL(t, pgtest.URL(t)).WorkerHomes(t.Context()); err != nil || len(homes) > 0 {
		t.Errorf("homes %v, %v in a new store", homes, err)
	}
}

// Older versions did not store the lengths of leases. After the upgrade, the length is unknown
// until a node of this release writes a lease.
func TestUpgradeBeforeTTL(t *testing.T) {
	t.Parallel()
	f, lane := openUpgraded(t, 18, dropTTL...)
	members := func() []store.Member {
		v, err := f.Store.Members(t.Context())
		if err != nil || len(v.Members) != 1 {
			t.Fatalf("members %+v, %v; want one", v.Members, err)
		}
		return v.Members
	}

	if ttl := members()[0].TTL; ttl != 0 {
		t.Errorf("after the upgrade a lease has the length %s, want 0", ttl)
	}
	request := store.RenewRequest{Node: lane.Ref.Node, Epoch: lane.Ref.Epoch, TTL: time.Minute}
	if _, err := f.Store.Renew(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	if ttl := members()[0].TTL; ttl != time.Minute {
		t.Errorf("after a renewal a lease has the length %s, want a minute", ttl)
	}
}

// A store of version 1 has runs that are parked or blocked. After the upgrade they are found by
// their reason.
func TestUpgradeFillsReasons(t *testing.T) {
	t.Parallel()
	postgres.Sequential(t)
	base := pgtest.URL(t)
	s := openURL(t, base)
	f := storetest.New(t, s)
	marks, starts, want := storetest.ReasonsOf(f)
	f.Join(1).Lanes[0].Write(func(b *store.Batch) { b.Starts, b.Marks = starts, marks })
	f.WantReasons(want)
	_ = s.Close()

	c := connect(t, base)
	for _, sql := range append(slices.Concat(dropEntities, dropTasks),
		`drop index perdure.executions_blocked`, `alter table perdure.executions drop column reason`, `drop table perdure.labels`,
		`drop table perdure.garbage`, `alter table perdure.nodes drop column serves`, `drop index perdure.inbox_waiting`, `drop index perdure.inbox_dead`,
		`drop table perdure.leaving`, `drop table perdure.peer_mail`,
		`delete from perdure.migrations where version > 1`,
	) {
		exec(t, c, sql)
	}

	f.Store = openURL(t, base)
	f.WantReasons(want)
}

// The SQL that Script prints creates and upgrades a schema. After it has run, nothing is left to
// do, and a second run of it fails.
func TestScript(t *testing.T) {
	t.Parallel()
	base := pgtest.URL(t)
	c := postgres.Config{URL: base, Shards: testShards, AllowUnsafe: true}
	run := func(undo ...string) {
		t.Helper()
		admin := connect(t, base)
		for _, sql := range undo {
			exec(t, admin, sql)
		}
		text, err := postgres.Script(t.Context(), c)
		if err != nil || text == "" {
			t.Fatalf("%q, %v", text, err)
		}
		if st, err := postgres.Check(t.Context(), c); err != nil || len(st.Pending) == 0 {
			t.Fatalf("Script has changed the status: %+v, %v", st, err)
		}

		if _, err := admin.PgConn().Exec(t.Context(), text).ReadAll(); err != nil {
			t.Fatal(err)
		}
		st, err := postgres.Check(t.Context(), c)
		if err != nil || st.Version != st.Known || st.Shards != testShards {
			t.Errorf("after the script: %+v, %v", st, err)
		}
		if rest, err := postgres.Script(t.Context(), c); err != nil || rest != "" {
			t.Errorf("after the script: %q, %v", rest, err)
		}
		if _, err := connect(t, base).PgConn().Exec(t.Context(), text).ReadAll(); err == nil {
			t.Error("the script ran twice")
		}
	}

	run()
	run(append(slices.Clone(dropWorkers), `delete from perdure.migrations where version > 15`)...)
	f := storetest.New(t, openURL(t, base))
	f.Join(1)
}
