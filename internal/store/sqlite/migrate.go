package sqlite

import (
	"context"
	"crypto/rand"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"strings"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/store"
)

// Migrations are SQL files, numbered from 1 without a gap and never changed after a release. Each
// migration runs in one transaction together with the update of the version. So if a process is
// killed in the middle of a migration, the file still has the version from before that migration.
//
// The package does not use a migration library. SQLite runs data definition in transactions, the
// file lock excludes other processes, and a library would import database/sql, which this package
// does not use. The version is stored in a row of our own table and not in PRAGMA user_version,
// because the file may also belong to the user, who may use that pragma.

//go:embed migrations/*.sql
var migrationFiles embed.FS

// migrations returns the names of the files in order. The file at index i leads to version i+1,
// which a test checks.
func migrations() []string {
	names, err := fs.Glob(migrationFiles, "migrations/*.sql") // sorted
	if err != nil {
		panic(err) // the pattern is a constant
	}
	return names
}

// Latest returns the schema version of this build.
func Latest() int { return len(migrations()) }

// Status is the result of Check.
type Status struct {
	// Version is the version of the schema in the file, 0 if the file has no schema. Known is the
	// version of the schema that this build uses.
	Version, Known int
	// Pending are the migrations that Open would run.
	Pending []string
	// Shards and Cluster are the number of shards and the id of the cluster of an existing store.
	Shards  int
	Cluster string
	// Store is the URL of the store.
	Store string
}

// Check reads the schema version of a file and changes nothing. The file may be in use. A schema
// that is newer than this build is an error.
func Check(ctx context.Context, cfg Config) (Status, error) {
	cfg.ReadOnly, cfg.Shards = true, 0
	cfg, err := cfg.withDefaults()
	if err != nil {
		return Status{}, err
	}
	st := Status{Known: Latest(), Pending: migrations(), Store: storeURL(cfg.Path)}
	// A missing or empty file is a new store: all migrations are pending.
	if fi, err := os.Stat(cfg.Path); errors.Is(err, fs.ErrNotExist) || err == nil && fi.Mode().IsRegular() && fi.Size() == 0 {
		return st, checkOrphan(cfg.Path)
	}

	if err := checkPath(&cfg); err != nil {
		return st, err
	}
	s := &Store{cfg: cfg}
	c, err := openConn(ctx, &cfg, modeReadOnly, readerPragmas)
	if err != nil {
		return st, s.openError(err)
	}

	defer func() { _ = c.close() }() // c was used only to read
	if st.Version, err = schemaVersion(c); err == nil {
		err = checkVersion(cfg.Path, st.Version, st.Known)
	}
	if err != nil || st.Version == 0 {
		return st, s.openError(err)
	}

	st.Pending = st.Pending[st.Version:]
	info, err := readInfo(c, &cfg)
	st.Shards, st.Cluster = info.Shards, info.Cluster
	return st, s.openError(err)
}

// schemaVersion returns the version of the file, 0 if it contains no store.
func schemaVersion(c *conn) (int, error) {
	// The file may be a database of the user without our tables.
	_, found, err := c.number("select 1 from sqlite_schema where type = 'table' and name = 'perdure_meta'")
	if err != nil || !found {
		return 0, err
	}
	version, found, err := c.number("select value from perdure_meta where name = 'schema'")
	if err == nil && (!found || version < 1) {
		err = fault.New(fault.Corrupt, "table perdure_meta: the version of the schema is missing")
	}
	return int(version), err
}

// migrate brings the schema to the version of this build and initialises a new store. It refuses a
// newer schema.
func migrate(c *conn, path string, shards int) error {
	names := migrations()
	version, err := schemaVersion(c)
	if err != nil {
		return err
	}
	if err := checkVersion(path, version, len(names)); err != nil {
		return err
	}

	for ; version < len(names); version++ {
		text, err := migrationFiles.ReadFile(names[version])
		if err != nil {
			return err
		}
		if err := migrateTo(c, version+1, string(text), shards); err != nil {
			return fmt.Errorf("%s: %w", names[version], err)
		}
	}

	return nil
}

// checkVersion refuses a schema of a newer build.
func checkVersion(path string, version, known int) error {
	if version <= known {
		return nil
	}
	return &fault.Error{
		Kind: fault.Conflict, Text: fmt.Sprintf("%s has schema version %d, but this build knows no version above %d", path, version, known),
		Hint: "run the newer build of perdure that has written it, or restore a backup from before the upgrade",
	}
}

// migrateTo runs one migration and notes its version, in one transaction.
func migrateTo(c *conn, version int, text string, shards int) (err error) {
	tx, err := c.db.BeginImmediate()
	if err != nil {
		return err
	}
	defer tx.End(&err)
	return c.db.Exec(migrationSQL(version, text, shards))
}

// migrationSQL returns the SQL of a migration together with the statement that stores its version.
// The first migration also stores the values that are fixed at creation, so that a store never
// exists without them.
func migrationSQL(version int, text string, shards int) string {
	var out strings.Builder
	out.WriteString(strings.TrimSpace(text) + "\n")
	if version == 1 {
		if shards == 0 {
			shards = defaultShards
		}
		// The id of a cluster needs no escaping, because it has only letters and digits.
		fmt.Fprintf(&out, "insert into perdure_meta (name, value) values ('shards', %d), ('cluster', '%s'), ('epoch', 0);\n", shards, rand.Text())
		fmt.Fprintf(&out, "insert into perdure_shards (shard, node, epoch)\n"+
			"  with recursive n (shard) as (select 0 union all select shard + 1 from n where shard < %d) select shard, null, 0 from n;\n", shards-1)
	}
	fmt.Fprintf(&out, "insert into perdure_meta (name, value) values ('schema', %d) on conflict do update set value = excluded.value;\n", version)
	return out.String()
}

// Script returns the SQL that Open would run to create or upgrade the schema, one transaction for
// each migration, and changes nothing. It is empty if the schema is up to date.
func Script(ctx context.Context, cfg Config) (string, error) {
	shards := cfg.Shards
	st, err := Check(ctx, cfg)
	if err != nil {
		return "", err
	}

	var out strings.Builder
	for version, name := range migrations() {
		if version < st.Version {
			continue
		}
		text, err := migrationFiles.ReadFile(name)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&out, "-- %s\nbegin immediate;\n%scommit;\n\n", migrationName(name), migrationSQL(version+1, string(text), shards))
	}
	return out.String(), nil
}

// migrationName returns the name of a migration for people.
func migrationName(file string) string {
	return "migration " + strings.TrimSuffix(strings.TrimPrefix(file, "migrations/"), ".sql")
}

// storeURL returns the URL of a store, for people and for ParseURL.
func storeURL(path string) string { return (&url.URL{Scheme: "file", Path: uriPath(path)}).String() }

// readInfo reads the description of the store.
func readInfo(c *conn, cfg *Config) (store.Info, error) {
	info := store.Info{URL: storeURL(cfg.Path)}
	var err error
	if info.Version, err = schemaVersion(c); err != nil {
		return info, err
	}
	shards, found, err := c.number("select value from perdure_meta where name = 'shards'")
	if err != nil {
		return info, err
	}

	// The number of shards decides the shard of every address. If the number were wrong, requests
	// would go to wrong shards. So compare it with the number of rows in the table of shards.
	rows, _, err := c.number("select count(*) from perdure_shards")
	if err != nil {
		return info, err
	}
	if !found || shards < 1 || shards != rows {
		return info, fault.New(fault.Corrupt, "table perdure_meta: the number of shards is %d, and there are rows for %d", shards, rows)
	}

	info.Shards = int(shards)
	err = c.query("select value from perdure_meta where name = 'cluster'", func(q *stmt) error {
		info.Cluster = q.text(0)
		return nil
	})
	if err == nil && info.Cluster == "" {
		err = fault.New(fault.Corrupt, "table perdure_meta: the id of the cluster is missing")
	}

	if err == nil && cfg.Shards != 0 && cfg.Shards != info.Shards {
		err = &fault.Error{
			Kind: fault.Conflict, Text: fmt.Sprintf("%s has %d shards, which never changes, but %d are asked for", cfg.Path, info.Shards, cfg.Shards),
			Hint: fmt.Sprintf("leave the number of shards out, or ask for %d", info.Shards),
		}
	}

	return info, err
}
