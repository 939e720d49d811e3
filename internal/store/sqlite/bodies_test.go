package sqlite

import (
	"bytes"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/storetest"
)

// largeRun writes a run with a small and a large event.
func largeRun(t *testing.T, s *Store) (*storetest.Fixture, *storetest.Lane, storetest.Subject) {
	t.Helper()
	f := storetest.New(t, s)
	lane := f.Join(1).Lanes[0]
	a := f.Subject()
	small, large := a.Event(1), a.Event(2)
	large.Event.Output = storetest.Text(strings.Repeat("x", 64<<10))
	lane.Write(func(b *store.Batch) {
		b.Starts, b.Events = []store.StartRow{a.StartRow()}, []store.EventRow{small, large}
	})
	return f, lane, a
}

// count returns the number that a statement returns.
func count(t *testing.T, s *Store, sql string) (n int64) {
	t.Helper()
	onWriter(t, s, func(w *writer) {
		var err error
		if n, _, err = w.number(sql); err != nil {
			t.Fatal(err)
		}
	})
	return n
}

const (
	allBodies   = "select count(*) from perdure_bodies"
	longestRow  = "select max(length(body)) from perdure_history"
	largestBody = "select max(length(body)) from perdure_bodies"
)

// When SQLite compares a key with a row, it reads all overflow pages of the row. So no row of the
// history may have such pages. Large bodies are in another table, and small bodies stay in their
// rows.
func TestLargeBodiesHaveTheirOwnTable(t *testing.T) {
	t.Parallel()
	sequential(t)
	s := openTest(t, Config{Path: filepath.Join(t.TempDir(), "app.db")})
	_, _, a := largeRun(t, s)
	if n := count(t, s, allBodies); n != 1 {
		t.Errorf("%d bodies are in the table for large ones, want 1", n)
	}
	if n := count(t, s, longestRow); n > int64(inlineBody(pageSize)) {
		t.Errorf("a row of the history has a body of %d bytes, want at most %d", n, inlineBody(pageSize))
	}
	if n := count(t, s, largestBody); n < 64<<10 {
		t.Errorf("the large body has %d bytes", n)
	}

	// Both ways to read events find the body.
	page, err := s.LoadEvents(t.Context(), a.RunKey, 0, 10, math.MaxInt)
	if err != nil || len(page) != 2 || len(page[1].Output.Data) < 64<<10 {
		t.Fatalf("loaded %d events, %v; want the small and the large one", len(page), err)
	}
	of, err := s.LoadEventsOf(t.Context(), a.RunKey, page[1].Kind, 3, 1)
	if err != nil || len(of) != 1 || !bytes.Equal(of[0].Output.Data, page[1].Output.Data) {
		t.Errorf("events of a kind: %d, %v; want the large one", len(of), err)
	}

	// An operator who exports the rows of a run gets the body too.
	tables := map[string]int{}
	err = s.ReadRaw(t.Context(), a.Shard, a.Start.Address, a.Run, func(r store.RawRow) error { tables[r.Table]++; return nil })
	if err != nil || tables["bodies"] != 1 {
		t.Errorf("exported %v, %v; want one row of bodies", tables, err)
	}
}

func TestLargeBodiesLeaveWithTheirRun(t *testing.T) {
	t.Parallel()
	sequential(t)
	s := openTest(t, Config{Path: filepath.Join(t.TempDir(), "app.db")})
	_, lane, a := largeRun(t, s)
	lane.Write(func(b *store.Batch) { b.Closes = []store.CloseRow{a.Close(model.Completed)} })
	lane.Write(func(b *store.Batch) { b.Deletes = []store.RunKey{a.RunKey} })
	for range 3 { // each sweep deletes one row
		if _, err := s.Sweep(t.Context(), store.SweepRequest{Shards: []model.ShardID{a.Shard}, Limit: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if n := count(t, s, allBodies); n != 0 {
		t.Errorf("%d bodies are left after their run", n)
	}
	if n := count(t, s, "select count(*) from perdure_history"); n != 0 {
		t.Errorf("%d events are left after their run", n)
	}
}

func TestDamagedLargeBodyIsCorrupt(t *testing.T) {
	t.Parallel()
	sequential(t)
	for name, sql := range map[string]string{
		"missing":  "delete from perdure_bodies",
		"changed":  "update perdure_bodies set body = cast(x'a0' || substr(body, 2) as blob)",
		"of other": "update perdure_bodies set seq = 7",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openTest(t, Config{Path: filepath.Join(t.TempDir(), "app.db")})
			_, _, a := largeRun(t, s)
			tamper(t, s, sql)
			_, err := s.LoadEvents(t.Context(), a.RunKey, 0, 10, math.MaxInt)
			wantKind(t, err, fault.Corrupt, "position 2")
		})
	}
}

// Builds before version 10 stored bodies of any size in the rows of the history.
func TestUpgradeKeepsLargeRows(t *testing.T) {
	t.Parallel()
	sequential(t)
	path := filepath.Join(t.TempDir(), "app.db")
	s := openTest(t, Config{Path: path})
	f, _, _ := largeRun(t, s)
	before := f.Contents()
	tamper(t, s, dropBodies+"update perdure_meta set value = 9 where name = 'schema'")
	closeTest(t, s)

	s = openTest(t, Config{Path: path})
	f.Store = s
	f.Want("contents", before, f.Contents())
	if n := count(t, s, longestRow); n < 64<<10 {
		t.Errorf("the longest row has %d bytes: the test does not test old rows", n)
	}
}
