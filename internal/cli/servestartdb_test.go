package cli

import (
	"io"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/internal/store"
)

// unfitDatabases are databases that a server cannot rely on. Some may lose commits, cannot store
// every text, accept no writes, or belong to another build. For others, the clock is wrong, or a
// call takes too long for the lease.
func unfitDatabases(t *testing.T) []unfit {
	t.Helper()
	server := pgtest.Start(t, pgtest.Options{Fsync: true})
	noSync := pgtest.Start(t, pgtest.Options{Settings: map[string]string{"full_page_writes": "on"}})
	noPages := pgtest.Start(t, pgtest.Options{Fsync: true, Settings: map[string]string{"full_page_writes": "off"}})
	good, newer := server.NewDatabase(t), server.NewDatabase(t)

	run := func(database, statement string) {
		t.Helper()
		execute(t, database, statement)
	}
	run(server.URL("postgres"), "create database ascii template template0 encoding 'SQL_ASCII' lc_collate 'C' lc_ctype 'C'")
	run(server.URL("postgres"), "create database reading template template0")
	run(server.URL("postgres"), "alter database reading set default_transaction_read_only = on")
	run(server.URL("postgres"), "create role careless login password 'canary'")
	run(server.URL("postgres"), "alter role careless set synchronous_commit = off")
	run(server.URL("postgres"), "create role app login password 'canary'")
	run(server.URL("postgres"), "create database owned template template0 owner app")
	// Replace the function that returns the version of the database server, so that it returns an
	// older version.
	run(server.URL("postgres"), "create database aged template template0")
	run(server.URL("aged"), "create function public.current_setting(text) returns text language sql as $$ select '130018' $$")
	run(server.URL("postgres"), "alter database aged set search_path = public, pg_catalog")
	for _, database := range []string{good, newer} {
		migrateAt(t, database)
	}
	run(newer, "insert into perdure.migrations (version, name, at, compatible) values (9999, 'later', 0, 9999)")

	clock := func(by time.Duration) func(*options) {
		return func(o *options) {
			o.wrap = func(s store.Store) store.Store { return shifted{Store: s, by: by} }
		}
	}
	slow := func(o *options) {
		o.wrap = func(s store.Store) store.Store { return shifted{Store: s, late: 100 * time.Millisecond} }
	}
	schema := func(name string) unfit {
		return unfit{row: 10, what: "schema " + name, store: "postgres://127.0.0.1:1/app", args: []string{"--schema", name}, want: `schema "` + name + `"`, next: ""}
	}

	return []unfit{
		{row: 8, what: "fsync off", store: noSync.URL("postgres"), want: "runs with fsync=off and may lose commits", next: "set fsync=on"},
		{row: 8, what: "full_page_writes off", store: noPages.URL("postgres"), want: "runs with full_page_writes=off", next: "set full_page_writes=on"},
		{row: 8, what: "synchronous_commit off for the role", store: as(t, good, "careless"), want: "runs with synchronous_commit=off", next: "set synchronous_commit=on"},
		{row: 8, what: "a standby", store: standby(t), want: "is read only (a standby", next: "connect to the primary"},
		{row: 8, what: "a database that only reads", store: server.URL("reading"), want: "is read only", next: "connect to the primary"},
		{row: 8, what: "a version before 14", store: server.URL("aged"), want: "is PostgreSQL 13; 14 or newer is needed", next: "upgrade the database server"},
		{row: 8, what: "another encoding", store: server.URL("ascii"), want: "has the encoding SQL_ASCII", next: "create a database with encoding 'UTF8'"},
		{row: 8, what: "a superuser in production", store: good, args: []string{"--production"}, want: "which is a superuser", next: "create a role that only owns the schema"},
		{row: 8, what: "a pooler of transactions", store: server.StartBouncer(t, pgtest.PoolTransaction, 3).URL(good), want: "shares server connections between transactions", next: "prepare=off"},

		{row: 9, what: "a newer schema", store: newer, want: "has version 9999 of the schema and this build knows up to", next: "run that build"},
		{row: 9, what: "an older schema without migration", store: as(t, server.URL("owned"), "app"), args: []string{"--no-migrate"}, want: "has version 0 of the schema", next: "run `perdure migrate`"},

		schema("pg_app"), schema("information_schema"), schema("App"), schema("1app"), schema(strings.Repeat("a", 49)),

		{row: 11, what: "a clock that is ahead", store: good, change: clock(90 * time.Minute), want: "differ by 1h", next: "synchronize both clocks"},
		{row: 11, what: "a clock that is behind", store: good, change: clock(-time.Hour), want: "differ by -", next: "synchronize both clocks"},

		{row: 12, what: "a lease of few round trips", store: good, change: slow, args: []string{"--lease", "1s"}, want: "a lease of 1s is too short", next: "set --lease to"},
		{row: 12, what: "a lease that is too long", store: good, args: []string{"--lease", "1000h"}, want: "the lease is 1000h0m0s, must be at most", next: ""},
		{row: 12, what: "another number of shards", store: good + "&shards=7", want: "shards and 7 are configured", next: "configure 64"},
	}
}

// execute runs a statement in a database.
func execute(t *testing.T, database, statement string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// migrateAt creates the schema in a database.
func migrateAt(t *testing.T, database string) {
	t.Helper()
	var complaint strings.Builder
	if code := Main(t.Context(), []string{"migrate", "--store", database}, Streams{In: strings.NewReader(""), Out: io.Discard, Err: &complaint}); code != 0 {
		t.Fatalf("migrate: exit %d: %s", code, &complaint)
	}
}

// as returns the URL of a database for another role.
func as(t *testing.T, database, role string) string {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(role, "canary")
	return u.String()
}

// standby starts a database server that only replicates another one.
func standby(t *testing.T) string {
	t.Helper()
	server := pgtest.Start(t, pgtest.Options{Fsync: true})
	if err := server.Stop(pgtest.Fast); err != nil {
		t.Fatal(err)
	}
	writeFile(t, server.DataDir(), "standby.signal", "")
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return server.URL("postgres")
}

// Two servers with the same configuration, as after a copy of a machine, are two nodes. That is
// because each process draws its node id when it starts.
func TestCopiedConfiguration(t *testing.T) {
	t.Parallel()
	database := pgtest.Start(t, pgtest.Options{Fsync: true}).NewDatabase(t)
	dir := t.TempDir()
	config := writeFile(t, dir, "perdure.toml", "store = '"+database+"'\nlisten = '127.0.0.1:0'\nadmin_key_file = '"+writeFile(t, dir, "key", serveKey)+"'\n")
	startServe(t, "--config", config)
	startServe(t, "--config", config)

	conn, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var nodes int
	if err := conn.QueryRow(t.Context(), "select count(distinct node) from perdure.nodes").Scan(&nodes); err != nil || nodes != 2 {
		t.Errorf("%d nodes, want 2: %v", nodes, err)
	}
}

// A role that owns its schema is enough for a server in production.
func TestServeInProduction(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, pgtest.Options{Fsync: true})
	execute(t, server.URL("postgres"), "create role app login password 'canary'")
	execute(t, server.URL("postgres"), "create database owned template template0 owner app")
	dir := t.TempDir()
	config := writeFile(t, dir, "perdure.toml", "store = '"+as(t, server.URL("owned"), "app")+"'\nproduction = true\n")
	key := writeFile(t, dir, "key", serveKey)
	startServe(t, "--config", config, "--listen", "127.0.0.1:0", "--admin-key-file", key).end()
}
