package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/storetest"
)

// A run continues as another run while its details are read. All details belong to one of the two
// runs.
func TestDetailsOfARunThatContinues(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	f := storetest.New(t, openURL(t, url))
	lane, first := f.Join(1).Lanes[0], f.Subject()
	next := f.SubjectOf(first.Start.Address)
	lane.Write(func(b *store.Batch) {
		b.Starts, b.Events = []store.StartRow{first.StartRow()}, []store.EventRow{first.Event(1), first.Event(2)}
	})

	load := func() (store.RunDetails, error) {
		return f.Store.LoadDetails(t.Context(), first.Shard, first.Start.Address, model.RunID{})
	}
	if _, err := load(); err != nil { // prepares the statements before the table is locked
		t.Fatal(err)
	}

	// The statement that reads timers waits for this lock. The statement that reads the row runs
	// before it.
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	tx, err := c.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `lock table perdure.timers in access exclusive mode`); err != nil {
		t.Fatal(err)
	}

	// This connection has no open transaction: in a transaction, every query of pg_stat_activity
	// would return the result of the first query.
	watch, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close(t.Context())
	var d store.RunDetails
	done := make(chan error, 1)
	go func() {
		var err error
		d, err = load()
		done <- err
	}()
	eventually(t, "the read to wait for the timers", func() bool {
		if len(done) > 0 {
			t.Fatalf("the read did not wait for the timers: %v", <-done)
		}
		var n int
		const look = `select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like '%timers%'`
		if err := watch.QueryRow(t.Context(), look).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n > 0
	})

	lane.Write(func(b *store.Batch) {
		b.Starts, b.Closes = []store.StartRow{next.Replace(first.Run)}, []store.CloseRow{first.Close(model.Continued)}
	})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	// If the read got a connection without the prepared statements, all its statements run after
	// the commit.
	want := map[model.RunID]int64{first.Run: 2, next.Run: 0}
	if last, known := want[d.Execution.Start.Run]; !known || d.Last != last {
		t.Errorf("run %s has the last event %d, want one of %v", d.Execution.Start.Run, d.Last, want)
	}
}
