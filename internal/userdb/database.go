package userdb

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/fault"
)

// Row is one row of a result.
type Row interface {
	// Scan copies the columns into dest.
	Scan(dest ...any) error
}

// Tx is an open transaction of any driver.
type Tx interface {
	// Exec returns the number of rows that a statement changed or returned.
	Exec(ctx context.Context, query string, args ...any) (int64, error)
	// QueryRow runs a query that returns one row.
	QueryRow(ctx context.Context, query string, args ...any) Row
	// Commit commits the transaction.
	Commit(ctx context.Context) error
	// Rollback rolls the transaction back.
	Rollback(ctx context.Context) error
	// Raw returns the transaction in the type that user code knows.
	Raw() any
}

// Source says how to begin transactions in a database of the user.
type Source struct {
	// Pool is the connection pool of the user, which begins the transactions. Two sources with the
	// same pool are the same database.
	Pool  any
	Begin func(ctx context.Context) (Tx, error)
	// Dialect is the dialect of the database. If it is Unknown, Open finds it out.
	Dialect Dialect
	// Schema is the schema of our tables. If it is empty, SQL statements use the names of the
	// tables without a schema.
	Schema string
}

// Table is the name of one of our tables.
type Table string

// The tables.
const (
	Outcomes Table = "perdure_outcomes"
	Outbox   Table = "perdure_outbox"
)

// Database is a database of the user. It is safe for concurrent use.
type Database struct {
	src Source

	mu      sync.Mutex
	dialect *dialect // nil until it is known
	limits  limits   // the limits of the server
	ready   map[Table]bool
}

// limits are the limits that the server itself sets for transactions; 0 if there is no such limit.
// whole is negative if the server cannot limit the whole duration of a transaction.
type limits struct{ idle, statement, whole time.Duration }

// New returns the Database of a source. Call Open before using it.
func New(src Source) *Database { return &Database{src: src, ready: map[Table]bool{}} }

// InSchema returns the same database with our tables in a schema.
func (d *Database) InSchema(name string) *Database {
	src := d.src
	src.Schema = name
	return New(src)
}

// Same reports whether two databases have the same pool and schema.
func (d *Database) Same(other *Database) bool {
	a, b := reflect.TypeOf(d.src.Pool), reflect.TypeOf(other.src.Pool)
	return d == other || a == b && a.Comparable() && d.src.Pool == other.src.Pool && d.src.Schema == other.src.Schema
}

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,62}$`)

// qualify returns the name of a table in SQL.
func qualify(schema string, t Table) string {
	if schema == "" {
		return string(t)
	}
	return `"` + schema + `".` + string(t)
}

// short is the time limit of operations that normally take only a moment.
const short = 10 * time.Second

// Open finds out the dialect of the database and creates the table if it does not exist. Repeated
// calls do nothing.
func (d *Database) Open(ctx context.Context, t Table) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ready[t] {
		return nil
	}
	if d.src.Begin == nil {
		return fault.New(fault.Invalid, "there is no database: the pool is nil")
	}

	if d.src.Schema != "" && !identifier.MatchString(d.src.Schema) {
		return fault.New(fault.Invalid, "schema %q is not a plain identifier", d.src.Schema)
	}
	ctx, cancel := context.WithTimeout(ctx, 3*short)
	defer cancel()

	if d.dialect == nil {
		if err := d.look(ctx); err != nil {
			return fault.New(fault.Unavailable, "look at the database: %w", err)
		}
	}

	if err := d.create(ctx, t); err != nil {
		return err
	}

	for _, u := range d.dialect.upgrade[t] {
		if err := d.upgrade(ctx, t, u); err != nil {
			return err
		}
	}

	d.ready[t] = true
	return nil
}

// look finds out the dialect and the limits of the server.
func (d *Database) look(ctx context.Context) error {
	var asked []error
	for _, candidate := range []*dialect{&postgres, &sqlite} {
		if d.src.Dialect != Unknown && d.src.Dialect != candidate.name {
			continue
		}
		var version string

		err := d.within(ctx, func(tx Tx) error {
			if err := tx.QueryRow(ctx, candidate.version).Scan(&version); err != nil {
				return err
			}
			if candidate.limits == "" {
				return nil
			}
			var idle, statement, whole int64
			err := tx.QueryRow(ctx, candidate.limits).Scan(&idle, &statement, &whole)
			d.limits = limits{idle: millis(idle), statement: millis(statement), whole: millis(whole)}
			return err
		})
		if err == nil {
			d.dialect = candidate
			return nil
		}

		asked = append(asked, fmt.Errorf("as %s: %w", candidate.name, err))
	}

	return errors.Join(asked...)
}

func millis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// create creates a table, unless it exists. A role that may not create tables can use a table that
// another role has created.
func (d *Database) create(ctx context.Context, t Table) error {
	ddl := d.sql(t, d.dialect.create[t])
	err := d.define(ctx, t, d.dialect.exists, ddl)
	switch {
	case err == nil:
		return nil
	case sqlState(err) == denied || sqlState(err) == noSchema:
		return fault.WithHint(fault.New(fault.Denied, "table %s is missing and cannot be created: %w", qualify(d.src.Schema, t), err),
			"ask a user who may create tables to run:\n%s;", ddl)
	}
	return fault.New(fault.Unavailable, "create table %s: %w", qualify(d.src.Schema, t), err)
}

// upgrade changes a table of an older version, unless it is already changed.
func (d *Database) upgrade(ctx context.Context, t Table, u upgrade) error {
	ddl := d.sql(t, u.ddl)
	err := d.define(ctx, t, u.done, ddl)
	switch {
	case err == nil:
		return nil
	case sqlState(err) == denied:
		return fault.WithHint(fault.New(fault.Denied, "table %s is of an older version and cannot be altered: %w", qualify(d.src.Schema, t), err),
			"have its owner run:\n%s;", ddl)
	}
	return fault.New(fault.Unavailable, "alter table %s: %w", qualify(d.src.Schema, t), err)
}

// define runs statements in one transaction, unless a query shows that they have already run.
func (d *Database) define(ctx context.Context, t Table, done, ddl string) (err error) {
	for try := range maxTries {
		err = d.within(ctx, func(tx Tx) error {
			var is bool
			if err := tx.QueryRow(ctx, d.sql(t, done), d.existsArg(t)).Scan(&is); err != nil || is {
				return err
			}

			// Two processes may create the table at the same time. With "if not exists" alone, one
			// of them could fail, because it does not wait for the other.
			if d.dialect.lock != "" {
				if _, err := tx.Exec(ctx, d.dialect.lock); err != nil {
					return err
				}
			}

			for statement := range strings.SplitSeq(ddl, ";\n") {
				if _, err := tx.Exec(ctx, statement); err != nil {
					return err
				}
			}

			return nil
		})
		if !isTransient(err) || !pause(ctx, try) {
			break
		}
	}

	return err
}

func (d *Database) existsArg(t Table) string {
	if d.dialect == &sqlite {
		return string(t)
	}
	return qualify(d.src.Schema, t)
}

// sql fills in the name of the table.
func (d *Database) sql(t Table, text string) string { return fill(d.dialect, d.src.Schema, t, text) }

func fill(in *dialect, schema string, t Table, text string) string {
	prefix := ""
	if schema != "" {
		prefix = `"` + schema + `".`
	}
	text = strings.NewReplacer("{table}", qualify(schema, t), "{schema.}", prefix, "{now}", in.now).Replace(text)
	if in == &sqlite {
		text = strings.ReplaceAll(text, "$", "?")
	}
	return text
}

// within runs fn in a transaction and commits it if fn returns nil.
func (d *Database) within(ctx context.Context, fn func(Tx) error) error {
	tx, err := d.src.Begin(ctx)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	done := false
	defer func() {
		if !done {
			rollBack(ctx, tx)
		}
	}()
	if err := fn(tx); err != nil {
		return err
	}
	done = true
	return commit(ctx, tx)
}

// read runs one query in its own transaction.
func (d *Database) read(ctx context.Context, query string, args []any, dest ...any) error {
	return d.within(ctx, func(tx Tx) error { return tx.QueryRow(ctx, query, args...).Scan(dest...) })
}

// commit ignores the end of the caller's context. If a commit were cancelled half-way, the caller
// would not know whether the commit took effect.
func commit(ctx context.Context, tx Tx) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*short)
	defer cancel()
	if err := tx.Commit(ctx); err != nil {
		return &commitError{err}
	}
	return nil
}

// rollBack rolls a transaction back. If the rollback fails, the connection is broken, and the
// server ends the transaction.
func rollBack(ctx context.Context, tx Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), short)
	defer cancel()
	_ = tx.Rollback(ctx)
}

// commitError is the error of a commit. If the error comes from the server, the commit has failed.
// Otherwise the commit may have taken effect.
type commitError struct{ err error }

func (e *commitError) Error() string { return "commit: " + e.err.Error() }
func (e *commitError) Unwrap() error { return e.err }

func text(n int64) string { return strconv.FormatInt(n, 10) }
