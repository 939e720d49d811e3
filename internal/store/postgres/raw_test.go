package postgres_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/postgres"
)

// If the connection breaks in the middle of ReadRaw, the caller gets no row twice. A repeated row
// would be twice in an export, and would change the fingerprint of an entity.
func TestRawRowsAreNotRepeated(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	s, err := postgres.Open(t.Context(), postgres.Config{URL: url, Schema: "raw", AllowUnsafe: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	other, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close(context.WithoutCancel(t.Context())) }()

	// The rows are larger than all buffers between the server and the caller.
	const rows = 3000
	a := model.Address{Tenant: "t", Type: model.EntityPrefix + "account", Key: "k"}
	if !a.IsEntity() {
		t.Fatalf("%v is no entity", a)
	}
	if _, err := other.Exec(t.Context(), `insert into raw.mailbox (shard, seq, at, tenant, type, key, body)
select 1, g, 0, $1, $2, $3, convert_to(repeat(md5(g::text), 200), 'UTF8') from generate_series(1, $4) g`, a.Tenant, a.Type, a.Key, rows); err != nil {
		t.Fatal(err)
	}

	seen := map[int64]bool{}
	err = s.ReadRaw(t.Context(), 1, a, model.RunID{}, func(r store.RawRow) error {
		var row struct{ Seq int64 }
		if err := json.Unmarshal(r.Row, &row); err != nil {
			return err
		}
		if seen[row.Seq] {
			t.Errorf("row %d is read twice", row.Seq)
		}
		seen[row.Seq] = true
		if len(seen) == 1 {
			_, err := other.Exec(t.Context(), `select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() and query like '%mailbox%'`)
			return err
		}
		return nil
	})
	if store.ClassOf(err) != store.Away || len(seen) == 0 || len(seen) == rows {
		t.Errorf("after %d of %d rows: %v, want the error of the broken connection", len(seen), rows, err)
	}
}
