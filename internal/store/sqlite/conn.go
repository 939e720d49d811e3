package sqlite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/ncruces/go-sqlite3"
)

// conn is one connection with its prepared statements. Only one goroutine at a time uses it.
type conn struct {
	db    *sqlite3.Conn
	stmts map[string]*stmt
}

// Modes of opening, as SQLite spells them in a URI.
const (
	modeCreate   = "rwc"
	modeReadOnly = "ro"
)

// Memory that one connection may use. The process reserves only the address space, not the memory.
const (
	writerMemory = 1 << 29
	readerMemory = 1 << 28
)

// openConn opens a connection. No pragma here writes to the file.
func openConn(ctx context.Context, cfg *Config, mode string, pragmas string) (*conn, error) {
	registerFiles()
	// The log contains the same secrets as the file, so it gets the same mode.
	query := url.Values{"mode": {mode}, "modeof": {cfg.Path}, "vfs": {cmp.Or(cfg.vfs, systemName)}}
	// SQLite does not decode + as a space.
	name := url.URL{Scheme: "file", Path: uriPath(cfg.Path), RawQuery: strings.ReplaceAll(query.Encode(), "+", "%20")}
	memory := int64(readerMemory)
	if mode == modeCreate {
		memory = writerMemory
	}
	db, err := sqlite3.OpenContext(sqlite3.WithMaxMemory(context.WithoutCancel(ctx), memory), name.String())
	if err != nil {
		return nil, err
	}

	c := &conn{db: db, stmts: map[string]*stmt{}}
	// Plans must not depend on bound values. Otherwise, each time a bound of a range changes,
	// SQLite compiles the statement again, which costs more than running it.
	if _, err := db.Config(sqlite3.DBCONFIG_ENABLE_QPSG, true); err != nil {
		_ = c.close() // err says what is wrong
		return nil, err
	}
	if err := db.Exec(pragmas); err != nil {
		_ = c.close() // err says what is wrong
		return nil, err
	}

	return c, nil
}

// uriPath returns an absolute path as it is written in a URI.
func uriPath(path string) string {
	path = filepath.ToSlash(path)
	if !strings.HasPrefix(path, "/") { // C:/app.db
		path = "/" + path
	}
	return path
}

// close finalises the statements and closes the connection.
func (c *conn) close() error {
	for _, q := range c.stmts {
		_ = q.s.Close() // Close returns the error of the last run again
	}
	c.stmts = nil
	return c.db.Close()
}

// prepare returns the statement of a text. It compiles the text once per connection. The texts are
// constants of this package.
func (c *conn) prepare(sql string) (*stmt, error) {
	if q, ok := c.stmts[sql]; ok {
		return q, nil
	}
	s, tail, err := c.db.PrepareFlags(sql, sqlite3.PREPARE_PERSISTENT)
	if err != nil {
		return nil, fmt.Errorf("prepare %q: %w", sql, err)
	}
	// SQLite compiles only the first statement of a text and would ignore the rest.
	if tail != "" {
		_ = s.Close()
		return nil, fmt.Errorf("prepare %q: more than one statement", sql)
	}
	q := &stmt{s: s}
	c.stmts[sql] = q
	return q, nil
}

// exec runs a statement that returns no rows, and returns how many rows it changed.
func (c *conn) exec(sql string, args ...any) (int64, error) {
	q, err := c.prepare(sql)
	if err != nil {
		return 0, err
	}
	if err := q.bind(args...).run(); err != nil {
		return 0, err
	}
	return c.db.Changes(), nil
}

// query calls row for each row of the result until row returns an error or errStop.
func (c *conn) query(sql string, row func(q *stmt) error, args ...any) error {
	q, err := c.prepare(sql)
	if err != nil {
		return err
	}
	return q.bind(args...).each(row)
}

// queryOnce is query for a statement that is used only once, such as a listing. It does not keep
// the statement.
func (c *conn) queryOnce(sql string, row func(q *stmt) error, args ...any) error {
	s, _, err := c.db.Prepare(sql)
	if err != nil {
		return fmt.Errorf("prepare %q: %w", sql, err)
	}
	err = (&stmt{s: s}).bind(args...).each(row)
	_ = s.Close() // Close returns the error of the run again
	return err
}

// number reads the single number that a statement returns. found is false if there is no row, or if
// the number is null.
func (c *conn) number(sql string, args ...any) (n int64, found bool, err error) {
	err = c.query(sql, func(q *stmt) error {
		n, found = q.int(0), q.s.ColumnType(0) != sqlite3.NULL
		return nil
	}, args...)
	return n, found, err
}

// stmt is a prepared statement. Arguments are counted from 1, columns from 0, as SQLite does.
type stmt struct {
	s   *sqlite3.Stmt
	bad error // the first error of binding an argument since the last run
}

func (q *stmt) setInt(i int, v int64) {
	if err := q.s.BindInt64(i, v); err != nil && q.bad == nil {
		q.bad = err
	}
}

func (q *stmt) setText(i int, v string) {
	if err := q.s.BindText(i, v); err != nil && q.bad == nil {
		q.bad = err
	}
}

// setBlob binds bytes; nil is null.
func (q *stmt) setBlob(i int, v []byte) {
	var err error
	if v == nil {
		err = q.s.BindNull(i)
	} else {
		err = q.s.BindBlob(i, v)
	}
	if err != nil && q.bad == nil {
		q.bad = err
	}
}

// bind binds all arguments. It is slower than the other setters, and meant for statements that are
// not in the hot path.
func (q *stmt) bind(args ...any) *stmt {
	for i, arg := range args {
		switch v := arg.(type) {
		case int64:
			q.setInt(i+1, v)
		case int:
			q.setInt(i+1, int64(v))
		case string:
			q.setText(i+1, v)
		case []byte:
			q.setBlob(i+1, v)
		default:
			panic(fmt.Sprintf("sqlite: argument of type %T", arg))
		}
	}
	return q
}

// run executes a statement that returns no rows.
func (q *stmt) run() error {
	if err := q.bad; err != nil {
		q.bad = nil
		return err
	}
	return q.s.Exec()
}

// each calls row for each row. If row returns an error, each stops and returns that error. For
// errStop it stops and returns nil.
func (q *stmt) each(row func(q *stmt) error) error {
	if err := q.bad; err != nil {
		q.bad = nil
		return err
	}

	for q.s.Step() {
		if err := row(q); err != nil {
			_ = q.s.Reset() // ends the statement; the row's error is the one that matters
			if errors.Is(err, errStop) {
				return nil
			}
			return err
		}
	}

	err := q.s.Err()
	if reset := q.s.Reset(); err == nil {
		err = reset
	}
	return err
}

// errStop ends an iteration without an error.
var errStop = errors.New("stop")

func (q *stmt) int(col int) int64   { return q.s.ColumnInt64(col) }
func (q *stmt) text(col int) string { return q.s.ColumnText(col) }

// raw returns the bytes of a column, nil for null. They are valid until the next row.
func (q *stmt) raw(col int) []byte { return q.s.ColumnRawBlob(col) }

// id copies an id of 16 bytes; ok is false when the column holds anything else.
func (q *stmt) id(col int) (id [16]byte, ok bool) {
	raw := q.raw(col)
	copy(id[:], raw)
	return id, len(raw) == len(id)
}
