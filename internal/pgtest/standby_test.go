package pgtest_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure/internal/pgtest"
)

// A standby has everything that its primary has confirmed, and takes writes after its promotion.
func TestStandby(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	primary := pgtest.Start(t, pgtest.Options{})
	conn, err := pgx.Connect(ctx, primary.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "create table t (n int)"); err != nil {
		t.Fatal(err)
	}

	standby, err := primary.OpenStandby(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := standby.Close(); err != nil {
			t.Error(err)
		}
	})
	const rows = 200
	for i := range rows {
		if _, err := conn.Exec(ctx, "insert into t values ($1)", i); err != nil {
			t.Fatal(err)
		}
	}
	if err := primary.Stop(pgtest.Immediate); err != nil {
		t.Fatal(err)
	}
	if err := standby.Promote(ctx); err != nil {
		t.Fatal(err)
	}

	next, err := pgx.Connect(ctx, standby.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close(ctx)
	var n int
	if _, err := next.Exec(ctx, "insert into t values (-1)"); err != nil {
		t.Fatal(err)
	}
	if err := next.QueryRow(ctx, "select count(*) from t").Scan(&n); err != nil || n != rows+1 {
		t.Errorf("the standby has %d rows, want %d: %v", n, rows+1, err)
	}
}
