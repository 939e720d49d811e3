package bench

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/ncruces/go-sqlite3"

	"github.com/perdure/perdure/internal/pgtest"
)

// committerPlaces returns one function per kind of store. The function makes an empty store, and
// returns it with a function that executes SQL in it.
func committerPlaces() map[Kind]func(t *testing.T) (Place, func(t *testing.T, sql string) int64) {
	return map[Kind]func(t *testing.T) (Place, func(t *testing.T, sql string) int64){
		SQLite: func(t *testing.T) (Place, func(*testing.T, string) int64) {
			place := Place{Kind: SQLite, Path: filepath.Join(t.TempDir(), "bench.db")}
			return place, func(t *testing.T, sql string) int64 { return querySQLite(t, place.Path, sql) }
		},
		Postgres: func(t *testing.T) (Place, func(*testing.T, string) int64) {
			place := Place{Kind: Postgres, URL: pgtest.Start(t, pgtest.Options{}).NewDatabase(t)}
			return place, func(t *testing.T, sql string) int64 { return queryPostgres(t, place.URL, sql) }
		},
	}
}

func querySQLite(t *testing.T, path, sql string) (n int64) {
	t.Helper()
	conn, err := sqlite3.Open("file:" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stmt, _, err := conn.Prepare(sql)
	if err != nil {
		t.Fatal(err)
	}
	defer stmt.Close()
	if stmt.Step() {
		n = stmt.ColumnInt64(0)
	}
	if err := stmt.Err(); err != nil {
		t.Fatal(err)
	}
	return n
}

func queryPostgres(t *testing.T, url, sql string) (n int64) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	// the names of the tables are the same in both stores
	if _, err := conn.Exec(t.Context(), "set search_path = bare"); err != nil {
		t.Fatal(err)
	}
	if err := conn.QueryRow(t.Context(), sql).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// The committer stores all rows of every workflow, and many points share a transaction. Only such a
// committer is a useful limit to compare with.
func TestCommitterStoresWorkflows(t *testing.T) {
	t.Parallel()
	for kind, open := range committerPlaces() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			const clients, each = 16, 20
			place, query := open(t)
			c, err := openCommitter(t.Context(), place, nothing)
			if err != nil {
				t.Fatal(err)
			}

			var wg sync.WaitGroup
			for client := range clients {
				wg.Go(func() {
					for i := range each {
						if err := c.Three(t.Context(), keyOf("w", client, i)); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}

			const all = clients * each
			for sql, want := range map[string]int64{
				"select count(distinct key) from executions where state = 2 and closed > 0 and outcome is not null": all,
				"select count(*) from executions": all,
				"select count(*) from history":    all * steps,
			} {
				if got := query(t, sql); got != want {
					t.Errorf("%s: got %d, want %d", sql, got, want)
				}
			}
			if batches := query(t, "select batch from fence"); batches < each*workflowRows || batches >= all*workflowRows {
				t.Errorf("got %d transactions for %d points of %d clients, want points to share them", batches, all*workflowRows, clients)
			}
		})
	}
}

// A fence that has moved refuses the whole batch. All later points fail too.
func TestCommitterIsFenced(t *testing.T) {
	t.Parallel()
	for kind, open := range committerPlaces() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			place, query := open(t)
			c, err := openCommitter(t.Context(), place, nothing)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Three(t.Context(), "first"); err != nil {
				t.Fatal(err)
			}
			query(t, "update fence set batch = batch + 1 returning batch")

			for i := range 3 {
				err := c.Three(t.Context(), fmt.Sprint("later-", i))
				if err == nil || !strings.Contains(err.Error(), "fence") {
					t.Fatalf("got %v, want an error of the fence", err)
				}
			}
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			if n := query(t, "select count(*) from executions"); n != 1 {
				t.Errorf("got %d runs, want the one from before", n)
			}
		})
	}
}

// stuck is a store that does not answer before its context ends.
type stuck struct{ entered chan struct{} }

func (s stuck) write(ctx context.Context, _ []*point) error {
	s.entered <- struct{}{}
	<-ctx.Done()
	return context.Cause(ctx)
}

func (stuck) close(context.Context) error { return nil }

// A client gets an error when the committer ends, and when the client's own context ends.
func TestCommitterEnds(t *testing.T) {
	t.Parallel()
	store := stuck{make(chan struct{}, 1)}
	c := newCommitter(t.Context(), store)
	ctx, cancel := context.WithCancel(t.Context())
	errs := make(chan error, 2)
	go func() { errs <- c.Three(ctx, "impatient") }()
	<-store.entered
	cancel()
	if err := <-errs; err == nil {
		t.Error("a client got no error after its context had ended")
	}

	go func() { errs <- c.Three(t.Context(), "patient") }()
	for len(c.posts) == 0 {
		time.Sleep(time.Millisecond)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-errs; err == nil {
		t.Error("a client got no error although the committer was closed")
	}
	if err := c.Three(t.Context(), "late"); err == nil {
		t.Error("a closed committer accepted a workflow")
	}
}
