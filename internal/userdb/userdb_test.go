package userdb_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	_ "github.com/jackc/pgx/v5/stdlib"       // the driver pgx
	_ "github.com/ncruces/go-sqlite3/driver" // the driver sqlite3

	"go.uber.org/goleak"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/internal/userdb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

// tx is a transaction of database/sql.
type tx struct{ *sql.Tx }

func (t tx) Exec(ctx context.Context, q string, args ...any) (int64, error) {
	r, err := t.ExecContext(ctx, q, args...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

func (t tx) QueryRow(ctx context.Context, q string, args ...any) userdb.Row {
	return t.QueryRowContext(ctx, q, args...)
}
func (t tx) Commit(context.Context) error   { return t.Tx.Commit() }
func (t tx) Rollback(context.Context) error { return t.Tx.Rollback() }
func (t tx) Raw() any                       { return t.Tx }

// onDatabases runs a test on a database of each dialect.
func onDatabases(t *testing.T, f func(t *testing.T, db *sql.DB, d *userdb.Database)) {
	t.Parallel()
	for _, kind := range []string{"pgx", "sqlite3"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			url := "file:" + filepath.Join(t.TempDir(), "user.db")
			if kind == "pgx" {
				url = pgtest.URL(t)
			}
			db, err := sql.Open(kind, url)
			if err != nil {
				t.Fatal(err)
			}

			t.Cleanup(func() { _ = db.Close() })
			d := userdb.New(userdb.Source{Pool: db, Begin: func(ctx context.Context) (userdb.Tx, error) {
				in, err := db.BeginTx(ctx, nil)
				return tx{in}, err
			}})
			for range 2 {
				if err := errors.Join(d.Open(t.Context(), userdb.Outcomes), d.Open(t.Context(), userdb.Outbox)); err != nil {
					t.Fatal(err)
				}
			}

			f(t, db, d)
		})
	}
}

func runAt(t time.Time) (id model.RunID) {
	id = model.RunID(uuid.Must(uuid.NewV7()))
	for i, ms := 5, t.UnixMilli(); i >= 0; i, ms = i-1, ms>>8 {
		id[i] = byte(ms)
	}
	return id
}

func attempt(run model.RunID, step string) *userdb.Attempt {
	return &userdb.Attempt{
		Step: userdb.Step{Run: run, ID: step, Execution: "w/k", Cluster: "c"}, AsOf: model.TimeOf(time.Now()),
		Body: func(context.Context, userdb.Tx) (model.Payload, error) {
			return model.Payload{Data: []byte(`"acted"`)}, nil
		},
	}
}

// An attempt that begins more than a day after the owner last confirmed it does nothing.
func TestForgottenAttempt(t *testing.T) {
	onDatabases(t, func(t *testing.T, db *sql.DB, d *userdb.Database) {
		a := attempt(runAt(time.Now()), "s")
		a.AsOf = model.TimeOf(time.Now().Add(-25 * time.Hour))
		a.Body = func(context.Context, userdb.Tx) (model.Payload, error) {
			t.Error("it acts")
			return model.Payload{}, nil
		}
		if _, _, err := d.Run(t.Context(), a); err == nil || !strings.Contains(err.Error(), "was suspended") {
			t.Errorf("error %v", err)
		}
	})
}

// The first outcome of a step, success or failure, stays, no matter what later attempts do.
func TestFirstOutcomeStands(t *testing.T) {
	onDatabases(t, func(t *testing.T, db *sql.DB, d *userdb.Database) {
		run := runAt(time.Now())
		failure := &model.Failure{Kind: "canceled", Message: "enough"}
		acted, failed := attempt(run, "acted"), attempt(run, "failed")
		if out, f, err := d.Run(t.Context(), acted); err != nil || f != nil || string(out.Data) != `"acted"` {
			t.Fatal(out, f, err)
		}
		if _, f, err := d.Settle(t.Context(), &failed.Step, failure); err != nil || *f != *failure {
			t.Fatal(f, err)
		}

		for range 2 {
			if out, f, err := d.Settle(t.Context(), &acted.Step, failure); err != nil || f != nil || string(out.Data) != `"acted"` {
				t.Error(out, f, err)
			}
			for _, a := range []*userdb.Attempt{acted, failed} {
				a.Body = func(context.Context, userdb.Tx) (model.Payload, error) {
					t.Error("it acts again")
					return model.Payload{}, nil
				}
			}
			if out, f, err := d.Run(t.Context(), acted); err != nil || f != nil || string(out.Data) != `"acted"` {
				t.Error(out, f, err)
			}
			if _, f, err := d.Run(t.Context(), failed); err != nil || f == nil || *f != *failure {
				t.Error(f, err)
			}
		}
	})
}

// The server ends a transaction that hangs.
func TestServerLimits(t *testing.T) {
	onDatabases(t, func(t *testing.T, db *sql.DB, d *userdb.Database) {
		a := attempt(runAt(time.Now()), "s")
		a.Limit = 2 * time.Minute
		a.Body = func(ctx context.Context, x userdb.Tx) (model.Payload, error) {
			for name, want := range map[string]string{"idle_in_transaction_session_timeout": "2min", "statement_timeout": "5min"} {
				var got string
				if err := x.QueryRow(ctx, "select current_setting('"+name+"')").Scan(&got); err != nil {
					if strings.Contains(err.Error(), "no such function") {
						return model.Payload{}, nil // SQLite has no server
					}
					return model.Payload{}, err
				}
				if got != want {
					t.Errorf("%s is %s, want %s", name, got, want)
				}
			}
			return model.Payload{}, nil
		}

		if _, _, err := d.Run(t.Context(), a); err != nil {
			t.Error(err)
		}
	})
}

// ahead is a transaction of a database whose clock is 1000 hours ahead.
type ahead struct{ tx }

func (a ahead) QueryRow(ctx context.Context, q string, args ...any) userdb.Row {
	if len(args) == 0 && !strings.Contains(q, "version") && !strings.Contains(q, "setting") {
		q = strings.Replace(q, "select ", "select 3600000000 + ", 1)
	}
	return a.tx.QueryRow(ctx, q, args...)
}

// The clock of the database decides how old an attempt is, not the clock of the process.
func TestNowIsThatOfTheDatabase(t *testing.T) {
	onDatabases(t, func(t *testing.T, db *sql.DB, _ *userdb.Database) {
		d := userdb.New(userdb.Source{Pool: db, Begin: func(ctx context.Context) (userdb.Tx, error) {
			in, err := db.BeginTx(ctx, nil)
			return ahead{tx{in}}, err
		}})
		if err := d.Open(t.Context(), userdb.Outcomes); err != nil {
			t.Fatal(err)
		}
		want := time.Now().Add(1000 * time.Hour)
		if now, err := d.Now(t.Context()); err != nil || now.Sub(want).Abs() > time.Minute {
			t.Errorf("the database says %v, %v", now, err)
		}
	})
}

func TestSweep(t *testing.T) {
	onDatabases(t, func(t *testing.T, db *sql.DB, d *userdb.Database) {
		now := time.Now()
		old, kept, young := runAt(now.Add(-8*24*time.Hour)), runAt(now.Add(-9*24*time.Hour)), runAt(now)
		for _, run := range []model.RunID{old, kept, young} {
			for i := range 3 {
				if _, _, err := d.Run(t.Context(), attempt(run, fmt.Sprint(i))); err != nil {
					t.Fatal(err)
				}
			}
		}

		other := attempt(runAt(now.Add(-10*24*time.Hour)), "s")
		other.Cluster = "another engine"
		if _, _, err := d.Run(t.Context(), other); err != nil {
			t.Fatal(err)
		}
		var asked []string

		n, err := d.Sweep(t.Context(), "c", now, func(_ context.Context, o userdb.Owner) (bool, error) {
			asked = append(asked, o.Run)
			if o.Execution != "w/k" || now.Sub(userdb.Time(o.At)).Abs() > time.Minute {
				t.Errorf("%+v", o)
			}
			return o.Run == old.String(), nil
		})
		if err != nil || n != 3 || len(asked) != 2 || asked[0] != kept.String() || asked[1] != old.String() {
			t.Errorf("%d removed, asked about %v, %v", n, asked, err)
		}
		var left int
		if err := db.QueryRowContext(t.Context(), "select count(*) from perdure_outcomes").Scan(&left); err != nil || left != 7 {
			t.Errorf("%d left, %v", left, err)
		}
	})
}

// Search finds every row that contains the text, over any number of pages, and no other row.
func TestSearch(t *testing.T) {
	onDatabases(t, func(t *testing.T, db *sql.DB, d *userdb.Database) {
		const rows = 250
		ctx := t.Context()
		in, err := db.BeginTx(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}

		put := func(query string, args ...any) {
			t.Helper()
			if _, err := in.ExecContext(ctx, query, args...); err != nil {
				t.Fatal(err)
			}
		}
		for i := range rows {
			body := []byte(fmt.Sprintf("\x00\xff mark %d", i))
			put(`insert into perdure_outcomes (run, step, generation, execution, cluster, outcome) values ($1, $2, $3, 'w/k', 'c', $4)`,
				fmt.Sprint("run_", i/100), fmt.Sprint(i/10), i%10, body)
			put(`insert into perdure_outbox (id, cluster, kind, execution, body) values ($1, 'c', 'signal', 'w/k', $2)`, fmt.Sprintf("%03d", i), body)
		}

		put(`insert into perdure_outcomes (run, step, generation, execution, cluster, outcome) values ('run_0', 'other', 0, 'w/k', 'c', $1)`, []byte("something else"))
		put(`insert into perdure_outcomes (run, step, generation, execution, cluster) values ('run_0', 'claimed', 0, 'w/k', 'c')`)
		if err := in.Commit(); err != nil {
			t.Fatal(err)
		}

		for _, table := range []userdb.Table{userdb.Outcomes, userdb.Outbox} {
			found := map[string]int{}
			err := d.Search(ctx, table, "mark", func(value []byte) error {
				found[string(value)]++
				return nil
			})
			if err != nil || len(found) != rows {
				t.Errorf("%s: %d of %d rows are found, %v", table, len(found), rows, err)
			}
			for value, n := range found {
				if n != 1 {
					t.Errorf("%s: %q is found %d times", table, value, n)
				}
			}
		}
	})
}
