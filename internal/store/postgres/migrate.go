package postgres

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// Migrations are numbered files. There are no migrations back to an older version. All missing
// migrations run in one transaction, which also records them and holds an advisory lock. So if five
// processes start at the same time, only one migrates. A process that is killed half-way leaves
// nothing behind. This also works through a pooler. (goose would need database/sql, an exclusive
// session, and a rewritten file per schema name, and would save about a hundred lines.)
//
// Some migrations do not disturb older builds, for example a new table or a column with a default.
// Such a migration has a line with the number of the oldest migration that a build must know to use
// the schema:
//
//	-- compatible: 14
//
// A build that knows that migration may open the store although the schema is newer. So releases
// that differ only by such migrations can run at the same time, in whatever order they start.

//go:embed migrations/*.sql
var migrationFiles embed.FS

type migration struct {
	version    int
	name       string
	sql        string
	compatible int // the number in that line; 0 if the migration has no such line
}

// firstCompatible is the first migration that records which older builds can use the schema.
const firstCompatible = 14

// compatibleLine matches the line of a migration that does not disturb older builds.
var compatibleLine = regexp.MustCompile(`(?m)^-- compatible: (\d{1,6})$`)

// Latest is the version of the schema that this build reads and writes.
func Latest() (int, error) {
	all, err := migrations()
	return len(all), err
}

// migrations returns all migrations that this build knows, in order.
func migrations() ([]migration, error) {
	names, err := fs.Glob(migrationFiles, "migrations/*.sql")
	if err != nil {
		return nil, err
	}

	var out []migration
	for i, path := range names {
		text, err := migrationFiles.ReadFile(path)
		if err != nil {
			return nil, err
		}
		name := strings.TrimSuffix(strings.TrimPrefix(path, "migrations/"), ".sql")
		number, _, _ := strings.Cut(name, "_")
		version, err := strconv.Atoi(number)
		if err != nil || version != i+1 {
			return nil, fmt.Errorf("migration %s does not follow migration %d", name, i)
		}
		one := migration{version: version, name: name, sql: string(text)}
		if line := compatibleLine.FindStringSubmatch(one.sql); line != nil {
			one.compatible, _ = strconv.Atoi(line[1]) // digits
		}
		out = append(out, one)
	}

	return out, nil
}

// Status is the result of Check.
type Status struct {
	// Version is the version of the schema in the database, 0 if there is none. Known is the
	// version of this build.
	Version, Known int
	// Pending are the migrations that Open would run.
	Pending []string
	// Shards, Groups and Cluster of an existing store. Shards includes the shards of Groups, which
	// are all groups except the default one.
	Shards  int
	Groups  []model.Group
	Cluster string
	// Databases are the databases that hold shard groups of the cluster, in addition to this
	// database.
	Databases []store.Database
	// Member is the name of this database in its cluster, and Home is the id of the cluster. Both
	// are empty in the first database of a cluster.
	Member, Home string
	// Divided says that tables of the store are partitioned. Other tables in the schema do not
	// count.
	Divided bool
	// Store is the URL of the store, without credentials.
	Store string
}

// Check reads the version of the schema and changes nothing. A schema that is too new for this
// build is an error.
func Check(ctx context.Context, c Config) (Status, error) {
	cfg, err := c.read()
	if err != nil {
		return Status{}, err
	}
	var st Status
	err = insist(ctx, func(ctx context.Context) error {
		m, err := newMigrator(ctx, cfg)
		if err != nil {
			return err
		}
		defer m.close()
		st, err = m.status(ctx)
		return err
	})
	return st, err
}

// Migrate creates or upgrades the schema, as Open does.
func Migrate(ctx context.Context, c Config) (Status, error) {
	cfg, err := c.read()
	if err != nil {
		return Status{}, err
	}
	return migrate(ctx, cfg, false)
}

// migrate brings the schema up to date and returns its status. If checkOnly is set, it returns an
// error for a schema that is not up to date. If the connection is lost, migrate connects again: a
// migration is one transaction, and the next check shows whether it was applied.
func migrate(ctx context.Context, cfg *config, checkOnly bool) (st Status, err error) {
	err = insist(ctx, func(ctx context.Context) error {
		st, err = migrateOnce(ctx, cfg, checkOnly)
		return err
	})
	return st, err
}

func migrateOnce(ctx context.Context, cfg *config, checkOnly bool) (Status, error) {
	m, err := newMigrator(ctx, cfg)
	if err != nil {
		return Status{}, err
	}
	defer m.close()

	st, err := m.status(ctx)
	if err == nil && len(st.Pending) > 0 {
		if checkOnly {
			return st, fault.WithHint(fault.New(fault.Conflict, "%s has version %d of the schema and this build needs %d", st.Store, st.Version, st.Known),
				"run `perdure migrate`")
		}
		if err = m.upgrade(ctx); err == nil {
			st, err = m.status(ctx)
		}
	}

	if err != nil {
		return st, err
	}

	if err := cfg.checkPlace(&st); err != nil && !cfg.anyPlace {
		return st, err
	}
	if st.Divided && !cfg.AllowDivided {
		return st, fault.WithHint(fault.New(fault.Conflict, "tables of %s are partitioned: a sweep would delete the wrong rows", st.Store),
			"put shard groups into several databases instead, see docs/cluster.md")
	}

	created := model.NewLayout(st.Shards, st.Groups).Ranges()[0].Count
	if cfg.Shards != 0 && cfg.Shards != created {
		return st, fault.WithHint(fault.New(fault.Conflict, "%s was created with %d shards and %d are configured", st.Store, created, cfg.Shards),
			"the number of shards is fixed when a store is created: configure %d", created)
	}

	return st, nil
}

// migrator runs migrations on its own connection.
type migrator struct {
	cfg  *config
	conn *pgx.Conn
	all  []migration
}

// Wait times of a migration. A migration waits long for another process that migrates. It waits
// only a short time for a lock on a table that is in use, because all other sessions that use the
// table wait behind the migration. The server ends a migration whose process is silent for
// longestSilence. This time does not depend on the lease, because with a short lease a busy machine
// could not open its store.
const (
	waitForOthers  = time.Minute
	waitForTables  = 3 * time.Second
	longestSilence = 30 * time.Second
	mostMigrations = 10 * time.Minute
)

func newMigrator(ctx context.Context, cfg *config) (*migrator, error) {
	all, err := migrations()
	if err != nil {
		return nil, err
	}
	settings := cfg.baseSettings(mostMigrations, waitForTables)
	settings["idle_in_transaction_session_timeout"] = strconv.FormatInt(longestSilence.Milliseconds(), 10)
	conn, err := pgx.ConnectConfig(ctx, cfg.connConfig(settings))
	if err != nil {
		return nil, awayError("open store", connectError(cfg.server, err))
	}
	return &migrator{cfg, conn, all}, nil
}

func (m *migrator) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = m.conn.Close(ctx) // an error does not matter: the work is done
}

// status reads the version and the parameters with which the store was created.
func (m *migrator) status(ctx context.Context) (Status, error) {
	st := Status{Known: len(m.all), Store: m.cfg.publicURL()}
	var err error
	if st.Version, err = m.version(ctx, m.conn); err != nil {
		return st, m.openError(ctx, err)
	}

	newer, err := m.isTooNew(ctx, &st)
	if err != nil {
		return st, m.openError(ctx, err)
	}
	if newer {
		return st, fault.WithHint(fault.New(fault.Conflict, "%s has version %d of the schema and this build knows up to %d", st.Store, st.Version, st.Known),
			"a newer build has upgraded it: run that build, or restore a backup")
	}

	for _, one := range m.all[min(st.Version, st.Known):] {
		st.Pending = append(st.Pending, one.name)
	}

	if st.Version > 0 {
		if err = m.facts(ctx, &st); err != nil {
			return st, err
		}
	}

	return st, nil
}

// facts reads the properties of the store that never change, or only while no process uses the
// store.
func (m *migrator) facts(ctx context.Context, st *Status) error {
	// A schema of an older version has no column for groups.
	const look = `
select shards, cluster, coalesce(to_jsonb(m) ->> 'groups', ''), coalesce(to_jsonb(m) ->> 'databases', ''), coalesce(to_jsonb(m) ->> 'member', ''), coalesce(to_jsonb(m) ->> 'home', ''),
  exists (select from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace where n.nspname = $1 and c.relname = any ($2::text[]) and c.relkind = 'p')
from {schema}.meta m`
	var cluster pgtype.UUID
	var groups, databases string
	if err := m.conn.QueryRow(ctx, expand(m.cfg.schema, look), m.cfg.Schema, ownTables()).Scan(&st.Shards, &cluster, &groups, &databases, &st.Member, &st.Home, &st.Divided); err != nil {
		return m.openError(ctx, err)
	}
	st.Cluster = cluster.String()

	var err error
	if st.Databases, err = parseDatabases(databases); err != nil {
		return fault.New(fault.Corrupt, "the databases of %s cannot be read: %w", st.Store, err)
	}
	if st.Groups, err = model.ParseGroups(groups); err != nil {
		return fault.New(fault.Corrupt, "the shard groups of %s cannot be read: %w", st.Store, err)
	}
	for i := range st.Groups {
		st.Shards += st.Groups[i].Shards
	}
	return nil
}

// isTooNew reports whether the schema has a migration that this build does not know and that is not
// compatible with this build.
func (m *migrator) isTooNew(ctx context.Context, st *Status) (bool, error) {
	if st.Version <= st.Known {
		return false, nil
	}
	const look = `select bool_or(compatible = 0 or compatible > $1) from {schema}.migrations where version > $1`
	var newer bool
	err := m.conn.QueryRow(ctx, expand(m.cfg.schema, look), st.Known).Scan(&newer)
	return newer, err
}

func (m *migrator) openError(ctx context.Context, err error) error {
	return classify(ctx, "open store "+m.cfg.publicURL(), false, err)
}

// version returns the last migration that ran, 0 if there is no schema yet.
func (m *migrator) version(ctx context.Context, q interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
},
) (v int, err error) {
	// to_regclass does not work here: its cache does not notice a table that was created while we
	// waited for the lock.
	const look = `select exists (select from pg_catalog.pg_tables where schemaname = $1 and tablename = 'migrations')`
	var exists bool
	if err = q.QueryRow(ctx, look, m.cfg.Schema).Scan(&exists); err != nil || !exists {
		return 0, err
	}
	err = q.QueryRow(ctx, expand(m.cfg.schema, `select coalesce(max(version), 0) from {schema}.migrations`)).Scan(&v)
	return v, err
}

// upgrade runs the missing migrations. It waits only a moment for a table that is in use, and then
// tries again.
func (m *migrator) upgrade(ctx context.Context) error {
	const tries = 10
	for try := 1; ; try++ {
		err := m.upgradeOnce(ctx)
		var pg *pgconn.PgError
		if err == nil || try == tries || !errors.As(err, &pg) || pg.Code != codeLockNotAvailable {
			return m.openError(ctx, err)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Duration(try) * 100 * time.Millisecond):
		}
	}
}

func (m *migrator) upgradeOnce(ctx context.Context) error {
	return pgx.BeginFunc(ctx, m.conn, func(tx pgx.Tx) error {
		exec := func(sql string, args ...any) error {
			_, err := tx.Exec(ctx, expand(m.cfg.schema, sql), args...)
			return err
		}

		wait := func(d time.Duration) error {
			return exec(`select set_config('lock_timeout', $1, true)`, strconv.FormatInt(d.Milliseconds(), 10))
		}
		if err := wait(waitForOthers); err != nil {
			return err
		}
		if err := exec(`select pg_advisory_xact_lock($1)`, m.lockID()); err != nil {
			return err
		}

		if err := wait(waitForTables); err != nil {
			return err
		}
		done, err := m.version(ctx, tx) // read it again: another process may have migrated
		if err != nil || done >= len(m.all) {
			return err
		}

		hasSchema, err := m.hasSchema(ctx, tx)
		if err != nil {
			return err
		}
		for _, p := range m.parts(done, hasSchema) {
			// Several statements in one call need the simple protocol. There are no parameters.
			if _, err = tx.Exec(ctx, p.sql, pgx.QueryExecModeSimpleProtocol); err != nil {
				return fmt.Errorf("%s: %w", p.what, err)
			}
		}
		return nil
	})
}

// part is a piece of an upgrade.
type part struct{ what, sql string }

// parts returns the SQL that upgrades a schema of version done. Version 0 means that the tables do
// not exist. An upgrade runs the SQL, and Script prints it. hasSchema is true if the schema exists:
// a role with more rights may have created it without tables.
func (m *migrator) parts(done int, hasSchema bool) (parts []part) {
	add := func(what, sql string, args ...any) {
		parts = append(parts, part{what, strings.TrimSuffix(expand(m.cfg.schema, fmt.Sprintf(sql, args...)), ";") + ";"})
	}
	if done == 0 && !hasSchema {
		add("create the schema", `create schema {schema}`)
	}
	if done == 0 {
		add("create the table of migrations", `create table if not exists {schema}.migrations (version integer not null primary key, name text not null, at bigint not null)`)
	}

	for _, one := range m.all[min(done, len(m.all)):] {
		what := "migration " + one.name
		add(what, "%s", one.sql)
		// The name needs no escaping, because it is the name of a file of this build.
		add(what, `insert into {schema}.migrations (version, name, at) values (%d, '%s', {now})`, one.version, one.name)
		if one.version >= firstCompatible {
			add(what, `update {schema}.migrations set compatible = %d where version = %d`, one.compatible, one.version)
		}
	}

	if done == 0 {
		shards := orDefault(m.cfg.Shards, DefaultShards)
		add("create the shards", `insert into {schema}.meta (id, shards, epoch, created) values (1, %d, 0, {now})`, shards)
		add("create the shards", `insert into {schema}.shards (shard) select generate_series(0, %d)`, shards-1)
	}
	return parts
}

// hasSchema reports whether the schema exists.
func (m *migrator) hasSchema(ctx context.Context, q interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
},
) (exists bool, err error) {
	const look = `select exists (select from pg_catalog.pg_namespace where nspname = $1)`
	err = q.QueryRow(ctx, look, m.cfg.Schema).Scan(&exists)
	return exists, err
}

// Script returns the SQL that Open would run to create or upgrade the schema, as one transaction,
// and changes nothing. It is empty if the schema is up to date. The script takes the lock that an
// upgrade takes. If another process has upgraded the schema in the meantime, the script fails and
// changes nothing.
func Script(ctx context.Context, c Config) (script string, err error) {
	cfg, err := c.read()
	if err != nil {
		return "", err
	}
	err = insist(ctx, func(ctx context.Context) error {
		m, err := newMigrator(ctx, cfg)
		if err != nil {
			return err
		}
		defer m.close()
		script, err = m.script(ctx)
		return err
	})
	return script, err
}

func (m *migrator) script(ctx context.Context) (string, error) {
	st, err := m.status(ctx)
	if err != nil || len(st.Pending) == 0 {
		return "", err
	}
	hasSchema, err := m.hasSchema(ctx, m.conn)
	if err != nil {
		return "", m.openError(ctx, err)
	}

	var out strings.Builder
	fmt.Fprintf(&out, "begin;\nselect pg_advisory_xact_lock(%d);\n", m.lockID())
	what := ""
	for _, p := range m.parts(st.Version, hasSchema) {
		if p.what != what {
			what = p.what
			fmt.Fprintf(&out, "\n-- %s\n", what)
		}
		out.WriteString(p.sql + "\n")
	}
	out.WriteString("\ncommit;\n")
	return out.String(), nil
}

// lockID returns the advisory lock of a schema.
func (m *migrator) lockID() int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte("perdure migrate " + m.cfg.Schema)) // never fails
	return int64(h.Sum64())
}
