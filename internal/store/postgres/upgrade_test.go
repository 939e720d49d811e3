package postgres_test

import (
	"testing"

	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/storetest"
)

// A store of version 1 has runs that are parked or blocked: after the upgrade they are found by their reason.
func TestUpgradeFillsReasons(t *testing.T) {
	t.Parallel()
	base := pgtest.URL(t)
	s := openURL(t, base)
	f := storetest.New(t, s)
	marks, starts, want := storetest.ReasonsOf(f)
	f.Join(1).Lanes[0].Write(func(b *store.Batch) { b.Starts, b.Marks = starts, marks })
	f.WantReasons(want)
	_ = s.Close()
	c := connect(t, base)
	for _, sql := range []string{
		`drop index perdure.executions_blocked`, `alter table perdure.executions drop column reason`, `drop table perdure.labels`,
		`drop table perdure.garbage`, `alter table perdure.nodes drop column serves`, `drop index perdure.inbox_waiting`, `drop index perdure.inbox_dead`,
		`drop table perdure.leaving`,
		`delete from perdure.migrations where version > 1`,
	} {
		exec(t, c, sql)
	}
	f.Store = openURL(t, base)
	f.WantReasons(want)
}
