package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/pgtest"
)

// node is a node of a plan.
type node struct {
	Type      string  `json:"Node Type"`
	Relation  string  `json:"Relation Name"`
	Index     string  `json:"Index Name"`
	Condition string  `json:"Index Cond"`
	Rows      float64 `json:"Actual Rows"`
	Loops     float64 `json:"Actual Loops"`
	Plans     []node
}

// scans returns what no plan of a commit may have: a scan of a table, a hash join or a merge join,
// an index without a condition, and an index that is for other queries.
func (n *node) scans() (out []string) {
	switch n.Type {
	case "Seq Scan", "Parallel Seq Scan", "Hash Join", "Merge Join":
		out = append(out, n.Type+" on "+n.Relation)
	case "Index Scan", "Index Only Scan", "Bitmap Index Scan":
		if n.Condition == "" {
			out = append(out, n.Type+" without a condition on "+n.Index)
		}
		if n.Index != "executions_current" && n.Index != "fences_batch" && n.Index != "inbox_waiting" && !strings.HasSuffix(n.Index, "_pkey") && !strings.HasPrefix(n.Index, "cursors_") {
			out = append(out, n.Index+" is for other queries")
		}
	}
	for i := range n.Plans {
		out = append(out, n.Plans[i].scans()...)
	}
	return out
}

// The server makes the plans of all statements of a commit while the tables are empty, and its
// statistics say that they are empty. The plans must also be right for full tables: they must reach
// every table through an index.
func TestHotPlans(t *testing.T) {
	t.Parallel()
	Sequential(t)
	c := Config{URL: pgtest.URL(t), AllowUnsafe: true}
	s, err := Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()

	for _, full := range []bool{false, true} {
		if full {
			Fill(t, s)
		}
		conn := laneConn(t, s)

		exec := func(sql string) (rows []string) {
			t.Helper()
			results, err := conn.Exec(t.Context(), sql).ReadAll()
			if err != nil {
				t.Fatalf("%s: %v", sql, err)
			}
			for _, r := range results {
				for _, row := range r.Rows {
					rows = append(rows, string(row[0]))
				}
			}
			return rows
		}

		exec(`set statement_timeout = 0`) // a busy machine may take longer to analyze
		exec(`analyze`)
		for i := range s.statements {
			st := &s.statements[i]
			exec(fmt.Sprintf("prepare %s as %s", st.name, st.sql))
			nulls := strings.TrimSuffix(strings.Repeat("null, ", st.params), ", ")
			text := strings.Join(exec(fmt.Sprintf("explain (format json) execute %s(%s)", st.name, nulls)), "")
			var plans []struct{ Plan node }
			if err := json.Unmarshal([]byte(text), &plans); err != nil {
				t.Fatal(err)
			}
			bad := plans[0].Plan.scans()
			if i == stStartIfAbsent && !strings.Contains(text, `"Index Name": "executions_current"`) {
				bad = append(bad, "an address is not found by its index")
			}
			if len(bad) > 0 {
				t.Errorf("full %v: statement %d: %v:\n%s", full, i, bad, strings.Join(exec(fmt.Sprintf("explain execute %s(%s)", st.name, nulls)), "\n"))
			}
		}
	}
}

// The server keeps the plans of the statements that read runs and entities, and of the statements
// for requests and messages between processes. So the plans must be right from the start.
func TestKeptPlans(t *testing.T) {
	t.Parallel()
	Sequential(t)
	s, err := Open(t.Context(), Config{URL: pgtest.URL(t), AllowUnsafe: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	conn, err := s.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	defer conn.Release()
	exec := func(sql string) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}

	// With this name, the server behaves like a server that does not know the setting.
	exec(strings.ReplaceAll(keepPlans, "plan_cache_mode", "plan_habits"))
	exec(strings.Replace(keepPlans, "true", "false", 1)) // apply the setting to the whole test
	for _, full := range []bool{false, true} {
		if full {
			Fill(t, s)
		}
		exec(`analyze`)

		for name, texts := range map[string][]string{
			"named": loadNamed[:], "current": loadCurrent[:], "entity": {loadEntity, loadMailbox}, "runs": {loadHeads, loadEventsOf, loadTimersOf},
			"mail": {loadMessages, loadInbox, loadReplies, loadEnded, loadEndedAt}, "put": {putInbox + putOnce, putInbox + " and " + sameGroups + putOnce, takeBack},
		} {
			for i, text := range texts {
				nulls := "null"
				for n := 2; strings.Contains(text, fmt.Sprintf("$%d", n)); n++ {
					nulls += ", null"
				}
				exec(fmt.Sprintf("prepare p as %s", expand(s.cfg.schema, text)))
				var plans []struct{ Plan node }
				var raw []byte
				if err := conn.QueryRow(t.Context(), "explain (verbose, format json) execute p("+nulls+")").Scan(&raw); err != nil {
					t.Fatal(err)
				}

				if err := json.Unmarshal(raw, &plans); err != nil {
					t.Fatal(err)
				}
				if bad := plans[0].Plan.scans(); len(bad) > 0 || !strings.Contains(string(raw), "$1") {
					t.Errorf("full %v: %s %d: %v:\n%s", full, name, i, bad, raw)
				}
				exec("deallocate p")
			}
		}
	}
}

// A search for requests reads no dead letters, and a search for dead letters reads nothing else.
func TestInboxBesideDeadLetters(t *testing.T) {
	t.Parallel()
	Sequential(t)
	if want := strconv.FormatInt(int64(model.MaxTime), 10); never != want {
		t.Fatalf("dead letters have the time %s, the statements say %s", want, never)
	}
	s := openFilled(t)
	conn := laneConn(t, s)

	explain := func(sql string) string {
		t.Helper()
		results, err := conn.Exec(t.Context(), "explain "+expand(s.cfg.schema, sql)).ReadAll()
		if err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		var text strings.Builder
		for _, row := range results[0].Rows {
			text.Write(row[0])
			text.WriteByte('\n')
		}
		return text.String()
	}

	if _, err := conn.Exec(t.Context(), `set statement_timeout = 0`).ReadAll(); err != nil { // a busy machine may take longer to analyze
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), expand(s.cfg.schema, `update {schema}.inbox set not_before = `+never+` where id > '00000000-0000-7000-8000-000000000010'; analyze {schema}.inbox`)).ReadAll(); err != nil {
		t.Fatal(err)
	}
	waiting := strings.NewReplacer("$1::", "array[0, 1, 2]::", "$2", "5", "$3", "500", "$4", "1000000").Replace(loadInbox)
	if plan := explain(waiting); !strings.Contains(plan, "inbox_waiting") || strings.Contains(plan, "Seq Scan on inbox") {
		t.Errorf("what waits is found by:\n%s", plan)
	}
	poll := strings.NewReplacer("$5::", "array[0, 1, 2]::", "{now}", "5").Replace("select " + mailWaits)
	if plan := explain(poll); !strings.Contains(plan, "inbox_waiting") || strings.Contains(plan, "Seq Scan on inbox") {
		t.Errorf("whether something waits is found by:\n%s", plan)
	}
	dead := strings.NewReplacer("$1", "'00000000-0000-7000-8000-000000000011'", "$2", "100").Replace(loadDeadLetters)
	if plan := explain(dead); !strings.Contains(plan, "inbox_dead") {
		t.Errorf("dead letters are found by:\n%s", plan)
	}
}

// The walk over old runs reads the primary key up to its limit and no further. Runs with their own
// removal time are found through the index of removal times. Both are true for a plan that the
// server makes for one call, and for a plan that it keeps. All rows of the full tables are in the
// range of the walk.
func TestExpiredPlans(t *testing.T) {
	t.Parallel()
	Sequential(t)
	s := openFilled(t)
	const none, all = "'00000000-0000-0000-0000-000000000000'", "'7fffffff-0000-0000-0000-000000000000'"

	err := s.read(t.Context(), "explain", func(ctx context.Context, c *pgx.Conn) error {
		simple := func(sql string) (rows []string) {
			t.Helper()
			got, err := c.PgConn().Exec(ctx, s.sql(sql)).ReadAll()
			if err != nil {
				t.Fatalf("%s: %v", sql, err)
			}
			for _, row := range got[0].Rows {
				rows = append(rows, string(row[0]))
			}
			return rows
		}

		simple(`analyze`)
		for _, mode := range []string{"force_generic_plan", "force_custom_plan"} {
			simple(`set plan_cache_mode = ` + mode)
			for _, q := range []struct {
				name, types, sql, args string
				want                   []string
			}{
				{"leaving", "smallint[], bigint, int", loadLeaving, "'{0, 1, 2}', 9000000000000000, 10", []string{"leaving_at", "executions_pkey"}},
				{"shards", "smallint[], smallint, uuid, uuid", oldShards, "'{0, 1, 2}', 0, " + none + ", " + all, []string{"executions_pkey"}},
				{"walk", "smallint, uuid, uuid, int, bigint", walkOld, "0::smallint, " + none + ", " + all + ", 10, 9000000000000000", []string{"executions_pkey", "leaving_pkey"}},
			} {
				simple(fmt.Sprintf("prepare %s (%s) as %s", q.name, q.types, q.sql))
				text := strings.Join(simple(fmt.Sprintf("explain (analyze, timing off, summary off, format json) execute %s(%s)", q.name, q.args)), "")
				simple("deallocate " + q.name)
				var plans []struct{ Plan node }
				if err := json.Unmarshal([]byte(text), &plans); err != nil {
					t.Fatal(err)
				}

				var used []string
				if bad := plans[0].Plan.reads(&used, 30); len(bad) > 0 {
					t.Errorf("%s, %s: %v\n%s", q.name, mode, bad, text)
				}
				slices.Sort(used)
				slices.Sort(q.want)
				if used = slices.Compact(used); !slices.Equal(used, q.want) {
					t.Errorf("%s, %s: reads %v, want %v", q.name, mode, used, q.want)
				}
			}
		}

		simple(`reset plan_cache_mode`)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A sweep has a limit of rows that it may remove. For each table, it looks at most at that many
// deleted runs. It looks only once at a run that has no rows in the table.
func TestSweepPlans(t *testing.T) {
	t.Parallel()
	Sequential(t)
	s := openFilled(t)
	err := s.work(t.Context(), "explain", true, func(ctx context.Context, c *pgx.Conn) error {
		if _, err := c.Exec(ctx, s.sql(`insert into {schema}.garbage (run, shard)
select ('11111111-0000-7000-8000-' || lpad(to_hex(g), 12, '0'))::uuid, g % (select count(*) from {schema}.shards) from generate_series(1, 20000) g`)); err != nil {
			return err
		}

		for _, analyzed := range []bool{false, true} {
			if analyzed {
				if _, err := c.Exec(ctx, `analyze`); err != nil {
					return err
				}
			}

			for i, sql := range sweepDeleted {
				const limit = 10
				var text string
				if err := c.QueryRow(ctx, "explain (analyze, timing off, summary off, format json) "+s.sql(sql), sortedShards(allShards(s), 0), limit).Scan(&text); err != nil {
					return err
				}
				var plans []struct{ Plan node }
				if err := json.Unmarshal([]byte(text), &plans); err != nil {
					return err
				}
				var used []string
				bad := plans[0].Plan.reads(&used, limit)
				if len(bad) > 0 || !slices.Contains(used, "garbage_pkey") {
					t.Errorf("statement %d, analyzed %v: %v, reads %v\n%s", i, analyzed, bad, used, text)
				}
			}
		}

		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func allShards(s *Store) (out []model.ShardID) {
	for i := range s.info.Shards {
		out = append(out, model.ShardID(i))
	}
	return out
}

// reads collects the indexes that a plan has read, and the problems: a table that was scanned, or
// more rows than necessary.
func (n *node) reads(used *[]string, most float64) (bad []string) {
	if n.Index != "" && n.Loops > 0 {
		*used = append(*used, n.Index)
	}
	if n.Type == "Seq Scan" {
		bad = append(bad, "scans "+n.Relation)
	}
	if n.Relation+n.Index != "" && n.Rows*n.Loops > most {
		bad = append(bad, fmt.Sprintf("%s%s: %v rows", n.Relation, n.Index, n.Rows*n.Loops))
	}
	for i := range n.Plans {
		bad = append(bad, n.Plans[i].reads(used, most)...)
	}
	return bad
}

// laneConn opens a connection with the settings of a lane.
func laneConn(t *testing.T, s *Store) *pgconn.PgConn {
	t.Helper()
	conn, err := s.dial(t.Context(), s.cfg.laneSettings(laneKey{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// openFilled opens a store with the rows that fill inserts. The server has no statistics about
// these rows.
func openFilled(t *testing.T) *Store {
	t.Helper()
	s, err := Open(t.Context(), Config{URL: filled.URL(t), AllowUnsafe: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// filled is the template of a database after fill.
var filled = pgtest.Template{Fill: func(ctx context.Context, url string) error {
	s, err := Open(ctx, Config{URL: url, AllowUnsafe: true})
	if err != nil {
		return err
	}
	return errors.Join(fill(ctx, s), s.Close())
}}

// fill inserts so many rows that a scan is the worst of all plans. It fills every large table
// except garbage.
func fill(ctx context.Context, s *Store) error {
	conn, err := pgx.ConnectConfig(ctx, s.cfg.connConfig(settings{}))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	const n = 20_000
	run := `('00000000-0000-7000-8000-' || lpad(to_hex(g), 12, '0'))::uuid`

	shards := s.info.Shards
	for _, sql := range []string{
		`insert into {schema}.executions (started, run, shard, current, tenant, workflow, key, start, state, closed, outcome)
		 select g, %[1]s, g %% %[2]d, true, 'filler', 'w', 'k' || g, '\xa0', 2, g, '\xa0' from generate_series(1, %[3]d) g`,
		`insert into {schema}.leaving (at, run, shard) select 4e15::bigint + g, %[1]s, g %% %[2]d from generate_series(1, %[3]d) g`,
		`insert into {schema}.runnable (run, shard) select %[1]s, g %% %[2]d from generate_series(1, %[3]d) g`,
		`insert into {schema}.labels (started, run, shard, tenant, name, value) select g, %[1]s, g %% %[2]d, 'filler', 'n', 'v' || g %% 100 from generate_series(1, %[3]d) g`,
		`insert into {schema}.history (seq, at, run, shard, kind, body)
		 select g / %[2]d, g, '00000000-0000-7000-8000-000000000001', g %% %[2]d, 2, '\xa0' from generate_series(1, %[3]d) g`,
		`insert into {schema}.timers (due, run, shard, id, tenant, workflow, key) select 4e15::bigint + g, %[1]s, g %% %[2]d, 't' || g, 'filler', 'w', 'k' from generate_series(1, %[3]d) g`,
		`insert into {schema}.messages (seq, to_shard, from_shard, body) select g / %[2]d, g %% %[2]d, 0, '\xa0' from generate_series(%[2]d, %[3]d) g`,
		`insert into {schema}.cursors (position, to_shard, from_shard) select %[3]d, a, b from generate_series(0, %[2]d - 1) a, generate_series(0, %[2]d - 1) b on conflict do nothing`,
		`insert into {schema}.inbox (not_before, id, shard, tenant, workflow, key, request, body)
		 select 9e15::bigint, %[1]s, g %% %[2]d, 'filler', 'w', 'k', 'r' || g, '\xa0' from generate_series(1, %[3]d) g`,
		`insert into {schema}.requests (at, shard, tenant, workflow, key, id, body) select 8e15::bigint + g, g %% %[2]d, 'filler', 'w', 'k', 'r' || g, '\xa0' from generate_series(1, %[3]d) g`,
		`insert into {schema}.dead (at, requeued, run, shard, task, tenant, kind, queue, fingerprint, body)
		 select g, 0, %[1]s, g %% %[2]d, 't', 'filler', 'k' || g %% 7, 'q', 'f' || g %% 50, '\xa0' from generate_series(1, %[3]d) g`,
		`insert into {schema}.task_data (run, shard, task, name, body) select %[1]s, g %% %[2]d, 't', 'n', '\xa0' from generate_series(1, %[3]d) g`,
		`insert into {schema}.task_logs (at, epoch, batch, run, n, shard, level, task, text)
		 select 8e15::bigint + g, 1, g, %[1]s, 0, g %% %[2]d, 0, 't', 'x' from generate_series(1, %[3]d) g`,
		`insert into {schema}.settings (version, at, tenant, kind, name, body)
		 select -g - 0 * %[2]d, 8e15::bigint + g, 'filler', 'k', left('n' || %[1]s, 0) || 'n' || g, case when g %% 2 = 0 then 'x'::bytea end from generate_series(1, %[3]d) g`,
		`insert into {schema}.audit (id, tenant, final, body) select %[1]s, 'filler' || g %% %[2]d, true, 'x' from generate_series(1, %[3]d) g`,
		`insert into {schema}.replay_reports (id, tenant, request, head, body)
		 select %[1]s, 'filler' || g %% %[2]d, 'r' || g, 'h', 'b' from generate_series(1, %[3]d) g`,
		`insert into {schema}.entities (version, changed, shard, locked, tenant, type, key, body)
		 select g, g, g %% %[2]d, g %% 200 = 0, 'filler', 't' || g %% 5, left(%[1]s::text, 0) || 'k' || g, '\xa0' from generate_series(1, %[3]d) g`,
		`insert into {schema}.mailbox (seq, at, shard, tenant, type, key, body)
		 select g, g, g %% %[2]d, 'filler', 't', left(%[1]s::text, 0) || 'k' || g %% 50, '\xa0' from generate_series(1, %[3]d) g`,
		`insert into {schema}.fences (node, epoch, batch, lane) select %[1]s, 1, 1, 0 from generate_series(1, 1000) g`,
	} {
		if strings.Contains(sql, "%") {
			sql = fmt.Sprintf(strings.ReplaceAll(sql, "generate_series(1, 1000)", "generate_series(1, 1000 + 0 * %[2]d + 0 * %[3]d)"), run, shards, n)
		}
		if _, err := conn.Exec(ctx, expand(s.cfg.schema, sql)); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}

	return nil
}

// Fill is fill for the tests outside this package.
func Fill(t testing.TB, s *Store) {
	t.Helper()
	if err := fill(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}

// Sequential skips a test in short mode with the race detector, because nothing in the test is
// concurrent. The fast suite also runs the package without the detector, and `make test` runs
// everything with it.
func Sequential(t testing.TB) {
	t.Helper()
	if raceEnabled && testing.Short() {
		t.Skip("nothing in it is concurrent")
	}
}

// OverlappingOnly reports whether the conformance suite leaves out the groups in which nothing is
// concurrent, for the reason of [Sequential].
func OverlappingOnly() bool { return raceEnabled && testing.Short() }
