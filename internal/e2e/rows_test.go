package e2e_test

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/pgproxy"
)

var counted = perdure.NewWorkflow("counted", func(ctx perdure.WorkflowCtx, steps int) (int, error) {
	sum := 0
	for i := range steps {
		v, err := perdure.Do(ctx, "add", func(context.Context) (int, error) { return i, nil }, perdure.StepKey(strconv.Itoa(i)))
		if err != nil {
			return 0, err
		}
		sum += v
	}
	return sum, nil
})

// An inline step inserts one row and writes nothing else. A start inserts one row, and a close
// updates one row. Each commit also updates its fence.
func TestInlineStepIsOneRow(t *testing.T) {
	t.Parallel()
	for _, kind := range durable {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, kind)
			if err := s.open(counted).Close(); err != nil { // creates the tables
				t.Fatal(err)
			}
			count := s.countPostgres
			if kind == "sqlite" {
				count = s.countSQLite()
			}

			once := func(steps int, key string) map[string]int {
				before := count()
				app := s.open(counted)
				got, err := counted.Run(caller(t, app), steps, perdure.RawKey(key))
				equal(t, "the sum", got, err, steps*(steps-1)/2)
				if err := app.Close(); err != nil {
					t.Fatal(err)
				}
				after := count()
				for what, n := range before {
					if after[what] -= n; after[what] == 0 {
						delete(after, what)
					}
				}
				return after
			}
			// On a busy machine a start may come before the node owns its shards. Such a start
			// waits in the inbox, which needs additional rows.
			writes := func(steps int) (after map[string]int) {
				for try := range 10 {
					if after = once(steps, fmt.Sprintf("k%d-%d", steps, try)); after["inbox insert"] == 0 {
						break
					}
				}
				return after
			}

			few, many := writes(10), writes(50)
			t.Logf("10 steps: %v", few)
			t.Logf("50 steps: %v", many)

			for steps, n := range map[int]map[string]int{10: few, 50: many} {
				want := map[string]int{"history insert": steps, "executions insert": 1, "executions update": 1}
				if kind == "postgres" { // PostgreSQL has a table of runnable runs
					want["runnable insert"], want["runnable delete"] = 1, 1
				}

				got := map[string]int{}
				for what, n := range n {
					switch table, _, _ := strings.Cut(what, " "); table {
					case "nodes", "fences", "shards", "meta":
						// These writes are for ownership: registration, renewal, and the fence of
						// each commit.
					default:
						got[what] = n
					}
				}

				if !maps.Equal(got, want) {
					t.Errorf("a workflow of %d steps wrote %v, want %v", steps, got, want)
				}

				// There is at most one commit per step, besides the commits that start and close
				// the run, and that acquire and free shards.
				if n["fences update"] > steps+6 {
					t.Errorf("a workflow of %d steps took %d commits", steps, n["fences update"])
				}
			}
		})
	}
}

// countPostgres returns the row counts of the server. Sessions report their counts when they end,
// so countPostgres waits for their end.
func (s *site) countPostgres() map[string]int {
	s.t.Helper()
	eventually(s.t, "the end of all sessions", func() bool {
		return s.sql(`select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()`)[0][0] == "0"
	})
	n := map[string]int{}
	for _, row := range s.sql(`select relname, n_tup_ins, n_tup_upd, n_tup_del from pg_stat_user_tables where schemaname = 'perdure'`) {
		for i, what := range []string{"insert", "update", "delete"} {
			n[row[0]+" "+what], _ = strconv.Atoi(row[i+1])
		}
	}
	return n
}

// countSQLite installs triggers that count every write from now on.
func (s *site) countSQLite() func() map[string]int {
	s.t.Helper()
	s.sql(`create table counted (what text primary key, n integer not null default 0) strict`)
	for _, row := range s.sql(`select name from sqlite_schema where type = 'table' and name like 'perdure\_%' escape '\'`) {
		for _, what := range []string{"insert", "update", "delete"} {
			label := strings.TrimPrefix(row[0], "perdure_") + " " + what
			s.sql(fmt.Sprintf(`insert into counted (what) values ('%s')`, label))
			s.sql(fmt.Sprintf(`create trigger "count %s" after %s on %s begin update counted set n = n + 1 where what = '%s'; end`, label, what, row[0], label))
		}
	}

	return func() map[string]int {
		n := map[string]int{}
		for _, row := range s.sql(`select what, n from counted`) {
			n[row[0]], _ = strconv.Atoi(row[1])
		}
		return n
	}
}

// An idle process sends at most one statement per second, also with waiting executions.
func TestIdleProcessIsQuiet(t *testing.T) {
	t.Parallel()
	s := newSite(t, "postgres")
	proxy := pgproxy.New(t, strings.Split(strings.Split(s.url, "@")[1], "/")[0])
	direct := s.url
	s.url = proxy.URL(direct)
	s.cfg.IdleAfter = 50 * time.Millisecond
	wake := perdure.NewSignal[string]("wake")

	parked := perdure.NewWorkflow("parked", func(ctx perdure.WorkflowCtx, far bool) (string, error) {
		if far {
			return "", ctx.Sleep(time.Hour)
		}
		return wake.Receive(ctx)
	})

	app := s.open(parked)
	c := caller(t, app)
	for i := range 100 {
		if _, err := parked.Start(c, i%2 == 0, perdure.RawKey(strconv.Itoa(i))); err != nil {
			t.Fatal(err)
		}
	}

	s.url = direct
	eventually(t, "all executions are unloaded", func() bool {
		return s.sql(`select count(*) from perdure.executions where state = 1`)[0][0] == "100"
	})
	var statements atomic.Int64
	var texts [1000]string

	counting := proxy.Inject(pgproxy.Rule{Fault: pgproxy.Reset, Match: func(r pgproxy.Request) bool {
		for _, sql := range r.SQL {
			if i := statements.Add(1); int(i) <= len(texts) {
				texts[i-1] = sql
			}
		}
		return false
	}})

	const lasting = 12 * time.Second
	<-time.After(lasting)
	counting.Cancel()
	n := int(statements.Load())
	t.Logf("%d statements in %s", n, lasting)
	if n > int(lasting/time.Second) {
		t.Errorf("an idle process sent %d statements in %s:\n%s", n, lasting, strings.Join(texts[:min(n, len(texts))], "\n"))
	}
	if n == 0 {
		t.Error("not even the lease was renewed: nothing was counted")
	}

	// The process is idle, not dead.
	to := parked.Execution(perdure.RawKey("1"))
	if err := wake.Send(c, to, "up"); err != nil {
		t.Fatal(err)
	}
	got, err := to.Result(c)
	equal(t, "result", got, err, "up")
}
