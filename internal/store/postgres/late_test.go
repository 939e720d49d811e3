package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/storetest"
)

// A sender puts a request again while the owner commits its refusal. PutInbox does not see the
// refusal, because its snapshot is older. PutInbox waits for the commit, which deletes the first
// copy of the request, and must not store a second copy.
func TestPutDuringARefusal(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	f := storetest.New(t, openURL(t, url))
	s := f.Subject()
	row, other := s.Request(f.RunID(), "a"), s.Request(f.RunID(), "b")
	put := func() error { return f.Store.PutInbox(t.Context(), []store.InboxRow{row, other}) }
	if err := put(); err != nil {
		t.Fatal(err)
	}

	// Make the refusal, but do not commit it yet.
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	tx, err := c.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	a, refusal := s.Start.Address, model.RefusedIDs+row.ID.String()
	if _, err := tx.Exec(t.Context(), `delete from perdure.inbox where id = $1`, [16]byte(row.ID)); err != nil {
		t.Fatal(err)
	}
	_, err = tx.Exec(t.Context(), `insert into perdure.requests (at, shard, tenant, workflow, key, id, body) values ($1, $2, $3, $4, $5, $6, 'no')`,
		int64(storetest.Noon), int16(s.Shard), a.Tenant, a.Type, a.Key, refusal)
	if err != nil {
		t.Fatal(err)
	}

	done := make(chan error, 1)
	go func() { done <- put() }()
	watch, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close(t.Context())
	eventually(t, "the put to wait for the refusal", func() bool {
		var n int
		const look = `select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like '%inbox%'`
		if err := watch.QueryRow(t.Context(), look).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n == 1
	})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}

	rows, _, err := f.Store.LoadInbox(t.Context(), []model.ShardID{s.Shard}, storetest.Noon, 10, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 1 || rows[0].ID != other.ID {
		t.Errorf("%d requests wait, want only the one that was not refused", len(rows))
	}
}
