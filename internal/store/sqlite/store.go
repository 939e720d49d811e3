package sqlite

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/ncruces/go-sqlite3"

	"github.com/perdure/perdure/internal/episode"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/store"
)

// Store is an open SQLite file.
type Store struct {
	cfg  Config
	info store.Info
	lock *fileLock // nil when read-only

	// writer has the writing connection while it is not in use. A caller that takes the connection
	// out of the channel may write. The channel of a read-only store is empty.
	writer chan *writer
	// readers has the reading connections that are not in use. A nil entry is a connection that is
	// not open yet.
	readers chan *conn
	// broken is why the store no longer accepts writes.
	broken atomic.Pointer[error]

	moves      *episode.Source
	move       chan struct{} // holds at most one request to move the log into the file
	moving     sync.Mutex    // held while the log is moved
	done       chan struct{} // closed by Close
	closeOnce  sync.Once
	closeError error
	background sync.WaitGroup
}

var (
	_ store.Store  = (*Store)(nil)
	_ store.Logged = (*Store)(nil)
)

// Info describes the store as it was opened.
func (s *Store) Info() store.Info { return s.info }

// Close interrupts the reads in progress, waits for the write in progress, moves the log into the
// file and releases the file. Repeated calls are harmless.
func (s *Store) Close() error {
	s.closeOnce.Do(func() {
		close(s.done)
		s.background.Wait()
		var problems []error
		for range cap(s.readers) {
			if c := <-s.readers; c != nil {
				problems = append(problems, s.closeConn(c))
			}
		}
		if !s.cfg.ReadOnly {
			w := <-s.writer
			problems = append(problems, s.rescueAgain(w), s.closeConn(w.conn), s.lock.release())
		}
		s.closeError = errors.Join(problems...)
	})

	return s.closeError
}

// closeConn closes a connection. When the last connection is closed, SQLite moves the log into the
// file. After a failed sync it must not do that: pages of the log may never have reached the disk,
// and SQLite would treat them as safe.
func (s *Store) closeConn(c *conn) error {
	if s.broken.Load() != nil {
		if _, err := c.db.Config(sqlite3.DBCONFIG_NO_CKPT_ON_CLOSE, true); err != nil {
			return err
		}
	}
	return c.close()
}

// errClosed is the error of calls after Close, and of calls that Close ends.
func errClosed(op string) error { return store.Errorf(store.Away, op, "the store is closed") }

// isClosed reports whether Close was called.
func (s *Store) isClosed() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// take waits for a connection in the channel from, which is the channel of the writer or of the
// readers. Callers put the connection back after use.
func take[T any](ctx context.Context, s *Store, op string, from chan T) (got T, err error) {
	if err := ctx.Err(); err != nil {
		return got, s.failure(op, err)
	}

	select {
	case got = <-from:
	case <-ctx.Done():
		return got, s.failure(op, ctx.Err())
	case <-s.done:
		return got, errClosed(op)
	}

	// If a connection is free and the store is closed or the context has ended, the select picks
	// one of these cases at random. So check the other two again.
	if s.isClosed() {
		err = errClosed(op)
	} else if ctx.Err() != nil {
		err = s.failure(op, ctx.Err())
	}

	if err != nil {
		from <- got
	}
	return got, err
}

// write runs f in a transaction and commits it. If f fails, nothing is applied. If the commit
// fails, the class of the error says what is known. If the context ends before the transaction
// begins, the transaction does not begin. After that the context has no effect. So the end of a
// context never makes an outcome unknown.
func (s *Store) write(ctx context.Context, op string, f func(w *writer) error) error {
	if s.cfg.ReadOnly {
		return &store.Error{Class: store.Away, Op: op, Err: &fault.Error{
			Kind: fault.Conflict, Text: s.cfg.Path + " is open for reading only", Hint: "ask the process that owns the file",
		}}
	}

	w, err := take(ctx, s, op, s.writer)
	if err != nil {
		return err
	}

	// The writer must go back into the channel even after a panic, or every later call would wait
	// forever.
	ended := false
	defer func() {
		if !ended { // a panic: the state of SQLite in memory cannot be trusted
			s.breakDown(errors.New("panic in a transaction"))
		}
		s.writer <- w
	}()

	err = s.transact(w, op, f)
	ended = true
	return err
}

func (s *Store) transact(w *writer, op string, f func(w *writer) error) error {
	// If another program has deleted or replaced the log, commits go into a file without a name.
	// Save these commits before the next transaction adds another commit.
	if lost := w.names.check(); lost != nil {
		s.rescue(w, lost)
	}
	if err := s.refuseBroken(op); err != nil {
		return err
	}
	// "begin immediate" takes the write lock now. Otherwise another program could write after our
	// first read, and our first write would fail in the middle of the transaction.
	if err := w.begin.run(); err != nil {
		return s.failure(op, err)
	}

	// If f fails, undo everything that it has written. If the file is damaged or a sync has failed,
	// the store cannot trust later commits either.
	if err := f(w); err != nil {
		s.rollback(w)
		if isDamaged(err) || syncFailed(err) {
			s.breakDown(err)
		}
		return s.failure(op, err)
	}

	if err := w.commit.run(); err != nil {
		return s.commitFailed(w, op, err)
	}
	s.updateLog(w)
	return nil
}

// commitFailed decides what a failed COMMIT means.
func (s *Store) commitFailed(w *writer, op string, err error) error {
	s.rollback(w)
	// After most errors it is unknown whether the commit took effect: its pages may be in the log
	// without being synced. Only the next recovery of the log, when the file is opened again, shows
	// the outcome.
	if certainlyNotApplied(err) {
		return s.failure(op, err)
	}
	s.breakDown(err)
	return &store.Error{Class: store.Unknown, Op: op, Final: true, Err: &fault.Error{
		Kind: fault.Unavailable, Text: s.cfg.Path + ": the commit may or may not survive", Cause: err,
		Hint: "check the disk, then restart the process: the file is recovered when it is opened again",
	}}
}

// rollback ends the transaction, unless SQLite has already done so, as it does after some errors.
func (s *Store) rollback(w *writer) {
	defer w.discardLog()
	if w.db.GetAutocommit() {
		return
	}
	if err := w.rollback.run(); err != nil || !w.db.GetAutocommit() {
		s.breakDown(errors.Join(errors.New("a transaction could not be rolled back"), err))
	}
}

// read runs f on its own connection, in a transaction that sees one snapshot of the store.
func (s *Store) read(ctx context.Context, op string, f func(c *conn) error) error {
	c, err := take(ctx, s, op, s.readers)
	if err != nil {
		return err
	}
	defer func() { s.readers <- c }()

	// A reading connection is opened at its first use, and again after an error.
	if c == nil {
		if c, err = openConn(ctx, &s.cfg, modeReadOnly, readerPragmas); err != nil {
			return s.failure(op, err)
		}
	}

	// A read transaction keeps one snapshot. Until it ends, the whole log cannot be moved into the
	// file. So it must end when its caller gives up.
	interrupt := readContext{ctx, s}
	c.db.SetInterrupt(interrupt)
	if _, err = c.exec("begin"); err == nil {
		err = f(c)
	}
	c.db.SetInterrupt(context.Background())

	// Ending a read transaction releases its snapshot. The first error wins.
	if !c.db.GetAutocommit() {
		if _, end := c.exec("commit"); err == nil {
			err = end
		}
	}

	switch {
	case errors.Is(err, sqlite3.INTERRUPT):
		err = interrupt.Err()
	case err != nil && sqliteError(err):
		_ = c.close() // the next call opens a new connection; err says what is wrong
		c = nil
	}

	return s.failure(op, err)
}

// sqliteError reports whether an error comes from SQLite and not from the contents of a row.
func sqliteError(err error) bool {
	var code sqlite3.ErrorCode
	return errors.As(err, &code)
}

// readContext is a context that ends when the caller of a read gives up or the store is closed.
// SQLite checks this context from time to time.
type readContext struct {
	context.Context //nolint:containedctx // lives as long as one call of read
	s               *Store
}

func (r readContext) Err() error {
	if r.s.isClosed() {
		return errClosed("read")
	}
	return r.Context.Err()
}
