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

	// writer holds the writing connection while nobody writes; who takes it out may write. Empty
	// when read-only.
	writer chan *writer
	// readers holds the connections that are not in use; nil stands for one that is not open yet.
	readers chan *conn
	// broken is why the store takes no writes any more.
	broken atomic.Pointer[error]

	moves      *episode.Source
	move       chan struct{} // asks for a move of the log into the file; holds at most one
	moving     sync.Mutex    // held by who moves the log
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

// Close ends what is under way, moves the log into the file and gives the file up. Closing again is
// harmless.
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

// closeConn closes a connection. SQLite moves the log into the file with the last one; after a
// failed sync it must not, because that would declare pages of the log to be safe that may never
// have reached the disk.
func (s *Store) closeConn(c *conn) error {
	if s.broken.Load() != nil {
		if _, err := c.db.Config(sqlite3.DBCONFIG_NO_CKPT_ON_CLOSE, true); err != nil {
			return err
		}
	}
	return c.close()
}

// errClosed is what calls get after Close, and while it ends them.
func errClosed(op string) error { return store.Errorf(store.Away, op, "the store is closed") }

// isClosed tells whether Close was called.
func (s *Store) isClosed() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// take waits for something that others put back: the writer or a reader.
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

	// Both may have been ready.
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

// write runs f in a transaction and commits it. When f fails nothing is applied; when the commit
// fails, the class of the error says what is known. A context that ends before the transaction
// begins prevents it; later it has no effect, so that a caller that gives up never leaves the
// outcome open.
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

	ended := false
	defer func() {
		if !ended { // a panic: what SQLite has in memory is not to be trusted
			s.breakDown(errors.New("panic in a transaction"))
		}
		s.writer <- w
	}()

	err = s.transact(w, op, f)
	ended = true
	return err
}

func (s *Store) transact(w *writer, op string, f func(w *writer) error) error {
	if lost := w.names.check(); lost != nil {
		s.rescue(w, lost)
	}
	if err := s.refuseBroken(op); err != nil {
		return err
	}
	if err := w.begin.run(); err != nil {
		return s.failure(op, err)
	}

	if err := f(w); err != nil {
		s.rollback(w)
		if damaged(err) || syncFailed(err) {
			s.breakDown(err)
		}
		return s.failure(op, err)
	}

	if err := w.commit.run(); err != nil {
		return s.commitFailed(w, op, err)
	}
	s.committed(w)
	return nil
}

// commitFailed decides what a failed COMMIT means.
func (s *Store) commitFailed(w *writer, op string, err error) error {
	s.rollback(w)
	if certainlyNotApplied(err) {
		return s.failure(op, err)
	}
	s.breakDown(err)
	return &store.Error{Class: store.Unknown, Op: op, Final: true, Err: &fault.Error{
		Kind: fault.Unavailable, Text: s.cfg.Path + ": the commit may or may not survive", Cause: err,
		Hint: "check the disk, then restart the process: the file is recovered when it is opened again",
	}}
}

// rollback ends the transaction unless SQLite has done so by itself, which it does after some
// errors.
func (s *Store) rollback(w *writer) {
	defer w.discardLog()
	if w.db.GetAutocommit() {
		return
	}
	if err := w.rollback.run(); err != nil || !w.db.GetAutocommit() {
		s.breakDown(errors.Join(errors.New("a transaction could not be rolled back"), err))
	}
}

// read runs f on a connection of its own, in a transaction that sees one state of the store.
func (s *Store) read(ctx context.Context, op string, f func(c *conn) error) error {
	c, err := take(ctx, s, op, s.readers)
	if err != nil {
		return err
	}
	defer func() { s.readers <- c }()

	if c == nil {
		if c, err = openConn(ctx, &s.cfg, modeReadOnly, readerPragmas); err != nil {
			return s.failure(op, err)
		}
	}

	interrupt := readContext{ctx, s}
	c.db.SetInterrupt(interrupt)
	if _, err = c.exec("begin"); err == nil {
		err = f(c)
	}
	c.db.SetInterrupt(context.Background())

	if !c.db.GetAutocommit() {
		if _, end := c.exec("commit"); err == nil {
			err = end
		}
	}

	switch {
	case errors.Is(err, sqlite3.INTERRUPT):
		err = interrupt.Err()
	case err != nil && sqliteError(err):
		_ = c.close() // the next call begins afresh; err says what is wrong
		c = nil
	}

	return s.failure(op, err)
}

// sqliteError tells an error of SQLite from one of a row that was read well.
func sqliteError(err error) bool {
	var code sqlite3.ErrorCode
	return errors.As(err, &code)
}

// readContext ends a read when its caller gives up or the store is closed. SQLite asks it now and
// then.
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
