package postgres_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/postgres"
	"github.com/perdure/perdure/internal/store/storetest"
)

// Every hot table has a shard key: a column that is never null and that is part of every unique
// index. No table has a foreign key. So a distributed PostgreSQL can divide all hot tables by their
// shard keys. A new table must be in one of the lists hotTables and smallTables.
func TestHotTablesHaveTheirShardKey(t *testing.T) {
	t.Parallel()
	c := connect(t, migrated.URL(t))
	tables := textsOf(t, c, `select tablename::text from pg_tables where schemaname = 'perdure' order by 1`)
	for _, table := range tables {
		key, hot := postgres.HotTables[table]
		if hot == slices.Contains(postgres.SmallTables, table) {
			t.Errorf("table %s must be either in hotTables or in smallTables", table)
		}
		if !hot {
			continue
		}
		if found := textsOf(t, c, fmt.Sprintf(`select attname::text from pg_attribute where attrelid = 'perdure.%s'::regclass and attname = '%s' and attnotnull`, table, key)); len(found) != 1 {
			t.Errorf("table %s has no column %s that is never null", table, key)
		}
		const lacking = `
select i.indexrelid::regclass::text from pg_index i where i.indrelid = 'perdure.%s'::regclass and i.indisunique and not exists (
  select from pg_attribute a where a.attrelid = i.indrelid and a.attnum = any (i.indkey) and a.attname = '%s')`
		if found := textsOf(t, c, fmt.Sprintf(lacking, table, key)); len(found) > 0 {
			t.Errorf("unique indexes %v of %s lack the shard key %s", found, table, key)
		}
	}
	if found := textsOf(t, c, `select conname::text from pg_constraint where contype = 'f' and connamespace = 'perdure'::regnamespace`); len(found) > 0 {
		t.Errorf("the tables have foreign keys %v, want none: distributed tables cannot have foreign keys to all other tables", found)
	}
}

// textsOf returns the results of a query that selects one text.
func textsOf(t *testing.T, c *pgx.Conn, sql string) []string {
	t.Helper()
	rows, err := c.Query(t.Context(), sql)
	if err != nil {
		t.Fatal(err)
	}
	out, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// divided is a store whose hot tables PostgreSQL has partitioned by their shard keys. Partitioning
// has the same condition as a distributed PostgreSQL: every unique index must contain the shard
// key.
var divided = pgtest.Template{Fill: func(ctx context.Context, url string) error {
	if _, err := postgres.Migrate(ctx, postgres.Config{URL: url, Shards: testShards, AllowUnsafe: true}); err != nil {
		return err
	}
	c, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close(ctx) }()

	for table, key := range postgres.HotTables {
		sql := fmt.Sprintf(`alter table perdure.%[1]s rename to old_%[1]s;
create table perdure.%[1]s (like perdure.old_%[1]s including all) partition by hash (%[2]s);
drop table perdure.old_%[1]s;`, table, key)
		for i := range 4 {
			sql += fmt.Sprintf("create table perdure.%[1]s_%[2]d partition of perdure.%[1]s for values with (modulus 4, remainder %[2]d);", table, i)
		}
		if _, err := c.Exec(ctx, strings.TrimSpace(sql), pgx.QueryExecModeSimpleProtocol); err != nil {
			return fmt.Errorf("%s: %w", table, err)
		}
	}
	return nil
}}

// The statements of commits, recovery, requests and lists work on tables that are divided by their
// shard keys. The statements of sweeps do not: they name rows by their physical position, which is
// unique only within one partition.
func TestConformanceOnDividedTables(t *testing.T) {
	t.Parallel()
	groups := []string{"commit", "starts", "runs", "events", "timers", "labels", "entities", "list"}
	if testing.Short() { // commits write to all tables, and lists join them
		groups = []string{"commit", "list"}
	}
	storetest.RunWith(t, storetest.Options{
		Open: func(t *testing.T) store.Store {
			return openConfig(t, postgres.Config{URL: divided.URL(t), Shards: testShards, AllowUnsafe: true, AllowDivided: true})
		},
		Only: groups,
	})
}

// Open refuses a store with divided tables, because sweeps do not work on them. Open does not mind
// partitioned tables of other programs in the same schema.
func TestDividedTablesAreRefused(t *testing.T) {
	t.Parallel()
	expectRefusal(t, postgres.Config{URL: divided.URL(t), AllowUnsafe: true}, fault.Conflict, "are partitioned")

	url := migrated.URL(t)
	if _, err := connect(t, url).Exec(t.Context(), `create table perdure.orders (shard int not null) partition by hash (shard)`); err != nil {
		t.Fatal(err)
	}
	if err := openConfig(t, postgres.Config{URL: url, AllowUnsafe: true}).Close(); err != nil {
		t.Error(err)
	}
}
