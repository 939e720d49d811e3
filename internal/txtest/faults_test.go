package txtest_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// errInjected is the error of a call to the database for which a fault was planned. The error does
// not tell the caller whether the call was executed.
var errInjected = errors.New("injected fault")

// action is a fault of a call to the database.
type action uint8

const (
	pass        action = iota
	failBefore         // the call is not executed; the connection stays
	loseAnswer         // the call is executed and its answer is lost; the connection stays
	cutBefore          // the connection is lost before the call is executed
	cutAfter           // the connection is lost after the call was executed
	crashBefore        // the process dies
	crashAfter
	pauseBefore // the process stops until the test wakes it
	pauseAfter
	actions
)

var actionNames = [...]string{"pass", "fail before", "lose answer", "cut before", "cut after", "crash before", "crash after", "pause before", "pause after"}

func (a action) String() string { return actionNames[a] }

func (a action) before() bool {
	return a == failBefore || a == cutBefore || a == crashBefore || a == pauseBefore
}

// faults has the faults on the connections of one process to the user's database.
type faults struct {
	// plan returns the fault of the nth call. The caller holds the lock of faults.
	plan func(n int, op string) action
	// crash runs when the process dies.
	crash func()
	// paused receives a value for every pause. A send to resume ends a pause.
	paused, resume chan struct{}

	dead     chan struct{} // closed by a crash; later actions of the process have no effect
	released chan struct{} // closed when the goroutines of a dead process may end

	mu    sync.Mutex
	calls int
	ops   []string
	once  sync.Once
}

func newFaults() *faults {
	return &faults{
		paused: make(chan struct{}, 16), resume: make(chan struct{}), dead: make(chan struct{}), released: make(chan struct{}),
	}
}

func (f *faults) next(op string) action {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	f.ops = append(f.ops, op)
	if f.plan == nil {
		return pass
	}
	return f.plan(f.calls, op)
}

func (f *faults) die() {
	f.once.Do(func() {
		close(f.dead)
		if f.crash != nil {
			f.crash()
		}
	})
}

// gone blocks the goroutines of a dead process.
func (f *faults) gone(cut func()) bool {
	select {
	case <-f.dead:
		cut()
		<-f.released
		return true
	default:
		return false
	}
}

// call makes one call to the database, with the fault that is planned for that call.
func (f *faults) call(op string, cut func(), do func() error) error {
	if f.gone(cut) {
		return errInjected
	}

	a := f.next(op)
	if !a.before() {
		err := do()
		if a == pass || err != nil {
			if f.gone(cut) {
				return errInjected
			}
			return err
		}
	}

	switch a {
	case cutBefore, cutAfter:
		cut()
	case crashBefore, crashAfter:
		f.die()
		f.gone(cut)
	case pauseBefore, pauseAfter:
		f.paused <- struct{}{}
		select {
		case <-f.resume:
		case <-f.released:
		}
		if a == pauseBefore {
			return do()
		}
		return nil
	default:
	}

	return errInjected
}

// ---- database/sql

// connector makes connections with faults.
type connector struct {
	driver.Connector
	f *faults
}

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	in, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &conn{in: in, f: c.f, open: map[*stmt]struct{}{}}, nil
}

func openDB(c driver.Connector, f *faults) *sql.DB { return sql.OpenDB(connector{c, f}) }

type conn struct {
	in  driver.Conn
	f   *faults
	bad bool

	open map[*stmt]struct{} // SQLite does not close a connection with open statements
}

func (c *conn) cut() {
	if c.bad {
		return
	}
	c.bad = true
	for s := range c.open {
		_ = s.Stmt.Close()
	}
	_ = c.in.Close()
}

func (c *conn) call(op string, do func() error) error {
	if c.bad {
		return errInjected
	}
	return c.f.call(op, c.cut, do)
}

func (c *conn) IsValid() bool { return !c.bad }

func (c *conn) Close() error {
	if c.bad {
		return nil
	}
	return c.in.Close()
}

func (c *conn) Begin() (driver.Tx, error) { return nil, errors.New("not used") }

func (c *conn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	var tx driver.Tx
	err := c.call("begin", func() (err error) { tx, err = c.in.(driver.ConnBeginTx).BeginTx(ctx, o); return err })
	if err != nil {
		if tx != nil && !c.bad {
			_ = tx.Rollback()
		}
		return nil, err
	}
	return dbTx{tx, c}, nil
}

type dbTx struct {
	driver.Tx
	c *conn
}

func (t dbTx) Commit() error   { return t.end("commit", t.Tx.Commit) }
func (t dbTx) Rollback() error { return t.end("rollback", t.Tx.Rollback) }

// end rolls the transaction back before its connection returns to the pool, as drivers do.
func (t dbTx) end(op string, do func() error) error {
	executed := false
	err := t.c.call(op, func() error { executed = true; return do() })
	if !executed && !t.c.bad {
		_ = t.Tx.Rollback()
	}
	return err
}

func (c *conn) Prepare(string) (driver.Stmt, error) { return nil, errors.New("not used") }

func (c *conn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if c.bad {
		return nil, errInjected
	}
	in, err := c.in.(driver.ConnPrepareContext).PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	s := &stmt{Stmt: in, c: c}
	c.open[s] = struct{}{}
	return s, nil
}

type stmt struct {
	driver.Stmt
	c *conn
}

func (s *stmt) Close() error {
	if s.c.bad {
		return nil
	}
	delete(s.c.open, s)
	return s.Stmt.Close()
}

func (s *stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (r driver.Result, err error) {
	err = s.c.call("exec", func() (err error) { r, err = s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args); return err })
	return r, err
}

func (s *stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (r driver.Rows, err error) {
	err = s.c.call("query", func() (err error) { r, err = s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args); return err })
	if err != nil && r != nil && !s.c.bad {
		_ = r.Close()
	}
	return r, err
}

func (s *stmt) CheckNamedValue(v *driver.NamedValue) error {
	if c, ok := s.Stmt.(driver.NamedValueChecker); ok {
		return c.CheckNamedValue(v)
	}
	if c, ok := s.c.in.(driver.NamedValueChecker); ok {
		return c.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

// ---- pgx, by its shape

type faultPool struct {
	pool *pgxpool.Pool
	f    *faults
}

func (p *faultPool) Begin(ctx context.Context) (*faultTx, error) {
	c, err := p.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	t := &faultTx{c: c, f: p.f}
	err = t.call("begin", func() (err error) { t.tx, err = c.Begin(ctx); return err })
	if err != nil {
		if t.tx != nil {
			_ = t.tx.Rollback(context.WithoutCancel(ctx))
		}
		c.Release()
		return nil, err
	}
	return t, nil
}

type faultTx struct {
	c    *pgxpool.Conn
	tx   pgx.Tx
	f    *faults
	done bool
}

func (t *faultTx) cut() { _ = t.c.Conn().PgConn().Conn().Close() }

func (t *faultTx) call(op string, do func() error) error { return t.f.call(op, t.cut, do) }

func (t *faultTx) Exec(ctx context.Context, sql string, args ...any) (tag pgconn.CommandTag, err error) {
	err = t.call("exec", func() (err error) { tag, err = t.tx.Exec(ctx, sql, args...); return err })
	return tag, err
}

func (t *faultTx) QueryRow(ctx context.Context, sql string, args ...any) faultRow {
	return faultRow(func(dest ...any) error {
		return t.call("query", func() error { return t.tx.QueryRow(ctx, sql, args...).Scan(dest...) })
	})
}

type faultRow func(dest ...any) error

func (r faultRow) Scan(dest ...any) error { return r(dest...) }

func (t *faultTx) end(op string, do func() error) error {
	if t.done {
		return pgx.ErrTxClosed
	}
	err := t.call(op, do)
	t.done = true
	t.c.Release()
	return err
}

func (t *faultTx) Commit(ctx context.Context) error {
	return t.end("commit", func() error { return t.tx.Commit(ctx) })
}

func (t *faultTx) Rollback(ctx context.Context) error {
	return t.end("rollback", func() error { return t.tx.Rollback(ctx) })
}
