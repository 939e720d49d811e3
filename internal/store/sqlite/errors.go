package sqlite

import (
	"context"
	"errors"
	"fmt"

	"github.com/ncruces/go-sqlite3"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/store"
)

// failure returns the store error for an error after which nothing was applied.
func (s *Store) failure(op string, err error) error {
	var done *store.Error
	var known *fault.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &done):
		return err
	case errors.As(err, &known): // a row that cannot be decoded
		return &store.Error{Class: store.Refused, Op: op, Err: err}
	case errors.Is(err, context.Canceled):
		return &store.Error{Class: store.Retryable, Op: op, Err: fault.New(fault.Canceled, "%w", err)}
	case errors.Is(err, context.DeadlineExceeded):
		return &store.Error{Class: store.Retryable, Op: op, Err: fault.New(fault.Timeout, "%w", err)}
	}

	class, kind, hint := s.judge(err)
	return &store.Error{Class: class, Op: op, Err: &fault.Error{Kind: kind, Text: s.cfg.Path, Cause: err, Hint: hint}}
}

// judge classifies an error of SQLite.
func (s *Store) judge(err error) (store.Class, fault.Kind, string) {
	var code sqlite3.ErrorCode
	if !errors.As(err, &code) {
		return store.Away, fault.Internal, ""
	}

	// The class says what the caller may do: try the same again (Retryable), look for the bad row
	// (Refused), or wait (Away).
	if isDamaged(err) {
		code = sqlite3.CORRUPT
	}
	switch code {
	case sqlite3.BUSY, sqlite3.LOCKED:
		return store.Retryable, fault.Unavailable, "another program writes to the file; end its transaction"
	case sqlite3.CONSTRAINT, sqlite3.TOOBIG, sqlite3.MISMATCH, sqlite3.RANGE:
		return store.Refused, fault.Invalid, ""
	case sqlite3.CORRUPT:
		return store.Away, fault.Corrupt, "the file is damaged: restore a backup, or save what is left with the .recover command of sqlite3"
	case sqlite3.FULL:
		return store.Away, fault.Unavailable, "free space on the disk"
	case sqlite3.READONLY, sqlite3.CANTOPEN, sqlite3.PERM, sqlite3.AUTH:
		return store.Away, fault.Unavailable, "make the file and its directory writable for this process"
	case sqlite3.IOERR:
		return store.Away, fault.Unavailable, "look for disk errors in the log of the system"
	default: // a bug of this package, or a table that another program has changed
		return store.Away, fault.Internal, ""
	}
}

// syncFailed reports whether the system could not confirm that data is on disk.
func syncFailed(err error) bool {
	return errors.Is(err, sqlite3.IOERR_FSYNC) || errors.Is(err, sqlite3.IOERR_DIR_FSYNC)
}

// isDamaged reports whether SQLite found the structure of the file broken, or its end missing.
func isDamaged(err error) bool {
	return errors.Is(err, sqlite3.CORRUPT) || errors.Is(err, sqlite3.NOTADB) || errors.Is(err, sqlite3.IOERR_SHORT_READ)
}

// certainlyNotApplied reports whether a failed COMMIT has left nothing behind.
//
// SQLite writes the frames of a transaction to the log, with the committing frame last. It then
// syncs, and publishes the transaction to readers. On any error SQLite rolls back in memory. If a
// write ran out of space or the file became read-only, the last frame was not written completely,
// so the transaction can never be recovered. A violated constraint or a busy file stops SQLite
// before it writes frames. After any other error the log may contain the frames, and the next
// recovery of the file may apply them. In that case the outcome is unknown until the file is opened
// again.
func certainlyNotApplied(err error) bool {
	return errors.Is(err, sqlite3.FULL) || errors.Is(err, sqlite3.READONLY) || errors.Is(err, sqlite3.CONSTRAINT) || errors.Is(err, sqlite3.BUSY)
}

// breakDown makes the store refuse every further write. It keeps the first reason.
func (s *Store) breakDown(err error) {
	s.broken.CompareAndSwap(nil, &err)
}

// refuseBroken returns the error of a write after breakDown.
func (s *Store) refuseBroken(op string) error {
	cause := s.broken.Load()
	if cause == nil {
		return nil
	}
	kind, hint := fault.Unavailable, "check the disk, then restart the process: the file is recovered when it is opened again"
	if isDamaged(*cause) {
		kind = fault.Corrupt
	}
	if lost, ok := errors.AsType[*nameError](*cause); ok {
		hint = lost.hint()
	}
	return &store.Error{Class: store.Away, Op: op, Final: true, Err: &fault.Error{
		Kind: kind, Text: fmt.Sprintf("%s takes no writes since an earlier error", s.cfg.Path), Cause: *cause, Hint: hint,
	}}
}

// noID returns the error for a row without a valid id.
func noID(format string, args ...any) error {
	return corrupt(fmt.Errorf("an id is not 16 bytes long"), format, args...)
}

// corrupt returns the error for a row that cannot be decoded.
func corrupt(err error, format string, args ...any) error {
	return fault.New(fault.Corrupt, "table perdure_%s: %w", fmt.Sprintf(format, args...), err)
}
