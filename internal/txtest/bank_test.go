package txtest_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	sqlite "github.com/ncruces/go-sqlite3/driver"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/pgtest"
)

// bankKinds are the kinds of the user's database: PostgreSQL through pgx, PostgreSQL through
// database/sql, and SQLite.
var bankKinds = []string{"pgx", "pgsql", "sqlite"}

const (
	accounts = 12
	opening  = 1_000_000
)

// transfer is the input of the activity, which must move the money exactly once.
type transfer struct {
	ID       string
	From, To int
	Cents    int
}

// bank is a user's database with accounts. The test itself uses a connection without faults.
type bank struct {
	t    testing.TB
	kind string
	url  string
	db   *sql.DB
}

func newBank(t testing.TB, kind string) *bank {
	t.Helper()
	b := &bank{t: t, kind: kind}
	if kind == "sqlite" {
		b.url = "file:" + filepath.Join(t.TempDir(), "bank.db") + "?_pragma=busy_timeout(5000)&_pragma=journal_mode(wal)&_pragma=synchronous(off)"
	} else {
		b.url = pgtest.URL(t)
	}

	b.db = openDB(b.connector(), newFaults())
	t.Cleanup(func() { _ = b.db.Close() })
	b.exec(`create table accounts (id integer primary key, cents bigint not null)`)

	// not unique, so that the test sees a step that ran twice
	b.exec(`create table ledger (id text not null)`)
	for i := range accounts {
		b.exec(`insert into accounts values ($1, $2)`, i, opening)
	}

	return b
}

func (b *bank) connector() driver.Connector {
	if b.kind == "sqlite" {
		c, err := (&sqlite.SQLite{}).OpenConnector(b.url)
		if err != nil {
			b.t.Fatal(err)
		}
		return c
	}
	cfg, err := pgx.ParseConfig(b.url)
	if err != nil {
		b.t.Fatal(err)
	}
	return stdlib.GetConnector(*cfg)
}

func (b *bank) sql(q string) string {
	if b.kind == "sqlite" {
		return strings.ReplaceAll(q, "$", "?")
	}
	return q
}

func (b *bank) exec(q string, args ...any) {
	b.t.Helper()
	if _, err := b.db.ExecContext(b.t.Context(), b.sql(q), args...); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bank) int(q string, args ...any) (n int) {
	b.t.Helper()
	if err := b.db.QueryRowContext(context.WithoutCancel(b.t.Context()), b.sql(q), args...).Scan(&n); err != nil {
		b.t.Fatal(err)
	}
	return n
}

// check compares balances and ledger with the given transfers.
func (b *bank) check(done []transfer) {
	b.t.Helper()
	want := make([]int, accounts)
	for _, t := range done {
		want[t.From] -= t.Cents
		want[t.To] += t.Cents
	}
	for i := range want {
		if got := b.int(`select cents from accounts where id = $1`, i); got != opening+want[i] {
			b.t.Errorf("account %d has %d, want %d", i, got, opening+want[i])
		}
	}
	if rows, distinct := b.int(`select count(*) from ledger`), b.int(`select count(distinct id) from ledger`); rows != len(done) || distinct != len(done) {
		b.t.Errorf("the ledger has %d rows of %d transfers, want %d", rows, distinct, len(done))
	}
}

// session is the transaction of the activity, independent of the Go type of the transaction.
type session struct {
	exec     func(ctx context.Context, q string, args ...any) error
	commit   func(ctx context.Context) error
	rollback func(ctx context.Context) error
}

// move is the body of a transfer. It locks accounts in a fixed order, so that transfers do not
// deadlock.
func move(ctx context.Context, s session, t transfer) (string, error) {
	const change = `update accounts set cents = cents + $2 where id = $1`
	first, second := []any{t.From, -t.Cents}, []any{t.To, t.Cents}
	if t.To < t.From {
		first, second = second, first
	}
	if err := s.exec(ctx, change, first...); err != nil {
		return "", fmt.Errorf("transfer: %w", err)
	}
	if err := s.exec(ctx, change, second...); err != nil {
		return "", fmt.Errorf("transfer: %w", err)
	}
	if err := s.exec(ctx, `insert into ledger values ($1)`, t.ID); err != nil {
		return "", fmt.Errorf("transfer: %w", err)
	}
	return "done " + t.ID, nil
}

type body = func(context.Context, session, transfer) (string, error)

// bind binds the activity to this database. The faults f happen on the connections of the activity.
func (b *bank) bind(a *perdure.Activity[transfer, string], f *faults, fn body) perdure.Binding {
	b.t.Helper()
	if b.kind == "pgx" {
		pool, err := pgxpool.New(b.t.Context(), b.url)
		if err != nil {
			b.t.Fatal(err)
		}
		b.t.Cleanup(pool.Close)
		return perdure.BindTx(a, perdure.Pgx(&faultPool{pool, f}), func(ctx context.Context, tx *faultTx, in transfer) (string, error) {
			return fn(ctx, session{
				exec: func(ctx context.Context, q string, args ...any) error {
					_, err := tx.Exec(ctx, q, args...)
					return err
				},
				commit: tx.Commit, rollback: tx.Rollback, //perdure:allow pool on purpose, by a test
			}, in)
		})
	}

	db := openDB(b.connector(), f)
	b.t.Cleanup(func() { _ = db.Close() })
	return perdure.BindTx(a, perdure.SQL(db), func(ctx context.Context, tx *sql.Tx, in transfer) (string, error) {
		return fn(ctx, session{
			exec: func(ctx context.Context, q string, args ...any) error {
				_, err := tx.ExecContext(ctx, b.sql(q), args...)
				return err
			},
			//perdure:allow pool the test ends the transaction inside the function on purpose
			commit: func(context.Context) error { return tx.Commit() },
			//perdure:allow pool the test ends the transaction inside the function on purpose
			rollback: func(context.Context) error { return tx.Rollback() },
		}, in)
	})
}
