package pgproxy_test

import (
	"database/sql"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // the database/sql driver whose behaviour is recorded here

	"github.com/perdure/perdure/internal/pgproxy"
)

// The tests of this file record what the driver reports when the reply to a commit is lost. They
// are the reason for two rules: writes go only through native pgx, and the code never calls
// SafeToRetry after it has handed over a statement. If one of these tests fails after an update of
// pgx, the driver has changed. In that case, find out what the driver does now, and change the
// test. Change a rule only if all of these tests allow it.

// TestDriverCallsALostCommitSafeToRetry shows that pgx 5.9.0 to 5.11.0 report that nothing was
// sent, although the row is committed.
func TestDriverCallsALostCommitSafeToRetry(t *testing.T) {
	t.Parallel()
	s := setup(t)
	conn := connect(t, s.url)
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	if _, err := tx.Exec(t.Context(), "insert into t values (1)"); err != nil {
		t.Fatal(err)
	}
	trigger := s.proxy.Inject(pgproxy.Rule{Fault: pgproxy.DropReply})
	err = tx.Commit(t.Context())
	lost(t, err)
	if !trigger.Reply().Committed() || !s.has(t, 1) {
		t.Fatalf("not committed: %v", trigger.Reply())
	}

	if !pgconn.SafeToRetry(err) {
		t.Errorf("SafeToRetry(%v) = false: the driver no longer claims that a commit that happened was never sent", err)
	}
}

// TestDriverErrorOfALostBatchLeavesTheOutcomeOpen tests the way in which our store commits. The
// error must not look like an answer of the server.
func TestDriverErrorOfALostBatchLeavesTheOutcomeOpen(t *testing.T) {
	t.Parallel()
	s := setup(t)
	pool, err := pgxpool.New(t.Context(), s.url)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	defer conn.Release()
	trigger := s.proxy.Inject(pgproxy.Rule{Fault: pgproxy.DropReply})
	lost(t, writers["implicit commit of a batch"](t.Context(), conn.Conn(), 1))
	if !trigger.Reply().Committed() || !s.has(t, 1) {
		t.Errorf("not committed: %v", trigger.Reply())
	}
}

// TestDriverRepeatsAWriteThroughDatabaseSQL shows that, through database/sql, the same versions
// execute a statement without arguments twice, and report success.
func TestDriverRepeatsAWriteThroughDatabaseSQL(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.exec(t, s.direct, "create table counter (n int)")
	s.exec(t, s.direct, "insert into counter values (0)")
	db, err := sql.Open("pgx", s.url)
	if err != nil {
		t.Fatal(err)
	}

	defer db.Close()
	if err := db.PingContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	trigger := s.proxy.Inject(pgproxy.Rule{Fault: pgproxy.DropReply})
	_, err = db.ExecContext(t.Context(), "update counter set n = n + 1")
	if !trigger.Reply().Committed() {
		t.Fatalf("not committed: %v", trigger.Reply())
	}

	var n int
	if err := errors.Join(err, s.direct.QueryRow(t.Context(), "select n from counter").Scan(&n)); err != nil {
		t.Fatalf("error = %v: the driver no longer hides the lost reply", err)
	}
	if n != 2 {
		t.Errorf("n = %d: the driver no longer executes the statement twice", n)
	}
}
