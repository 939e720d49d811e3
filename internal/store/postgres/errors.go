package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/store"
)

// SQLSTATEs that this package treats one by one.
const (
	codeGuard             = "22P02" // fences and guards raise it: invalid text representation
	codeReadOnly          = "25006"
	codeCompletionUnknown = "40003"
	codeLockNotAvailable  = "55P03"
	codeQueryCanceled     = "57014"
	codePlanChanged       = "0A000" // cached plan must not change result type
	codeNoSuchStatement   = "26000"
	codeStatementExists   = "42P05"
	codeDataCorrupted     = "XX001"
	codeIndexCorrupted    = "XX002"
	codeUndefinedTable    = "42P01"
	codeInvalidSchema     = "3F000"
)

// classOf decides what an error of severity ERROR means for a write. Some codes do not say whether
// the transaction was aborted: they are Unknown. After all other codes, nothing was applied and
// nothing will be, and the question is whether the same call can succeed later. Codes that are not
// listed are Away, because it does no harm to wait and try again. Refused would make the engine
// search the rows for the cause.
func classOf(code string) store.Class {
	if len(code) != 5 {
		return store.Away
	}

	switch code {
	case codeCompletionUnknown:
		return store.Unknown
	case codeLockNotAvailable, codeQueryCanceled, codePlanChanged, codeNoSuchStatement, codeStatementExists:
		return store.Retryable
	case codeDataCorrupted, codeIndexCorrupted:
		return store.Refused // existing rows are the cause; other batches can continue
	}

	switch code[:2] {
	case "40": // serialization failure, deadlock
		return store.Retryable
	case "08", "57": // connection, operator intervention (57014 is above)
		return store.Unknown
	case "21", "22", "23", "27", "44", "54", "P0":
		// Cardinality, data, constraints, triggers, program limits, errors raised by functions.
		return store.Refused
	case "72": // snapshot too old
		return store.Retryable
	}

	// 25 read-only, 28 and 42 rights and missing tables, 53 resources, 55 state, 58 and XX system
	// errors, F0 configuration.
	return store.Away
}

// provesAbort reports whether the error proves that the transaction was aborted. FATAL and PANIC do
// not: the session may end after the commit was written, for instance while it waits for a standby.
func (f *failure) provesAbort() bool {
	severity := f.SeverityUnlocalized
	if severity == "" { // missing if the server only imitates the protocol
		severity = f.Severity
	}
	return severity == "ERROR" && classOf(f.Code) != store.Unknown
}

// class returns the class of a failed batch.
func (f *failure) class() store.Class {
	if f.statement != nil && f.statement.index == stFence && f.Code == codeGuard {
		return store.Fenced
	}
	return classOf(f.Code)
}

// breaksConnection reports whether the store must drop the connection, because its server cannot
// write or ends the connection, or because its prepared statements are out of date.
func (f *failure) breaksConnection() bool { return breaksConnection(f.Code) }

func breaksConnection(code string) bool {
	switch code {
	case codeReadOnly, codePlanChanged, codeNoSuchStatement, codeStatementExists:
		return true
	}
	return len(code) == 5 && (code[:3] == "57P" || code[:2] == "08")
}

// explain returns the error for people: what the server said, without values of rows.
func (f *failure) explain(schema string) error {
	switch {
	case f.statement == nil:
		return withHint(f.PgError, f.PgError)
	case f.class() == store.Fenced:
		return store.ErrFenced.Err
	case f.Code == codeGuard:
		return fmt.Errorf("%s.%s: a guarded write found other rows than it expects", schema, f.statement.table)
	default:
		return fmt.Errorf("%s.%s: %w", schema, f.statement.table, withHint(f.PgError, f.PgError))
	}
}

// withHint adds a hint to errors that an operator must fix.
func withHint(err error, pg *pgconn.PgError) error {
	hint := ""
	switch pg.Code {
	case codeNoSuchStatement, codeStatementExists:
		hint = "a connection pooler shares server connections between clients: add prepare=off to the URL of the store"
	case codeUndefinedTable, codeInvalidSchema:
		hint = "run `perdure migrate`"
	default:
		return err
	}
	return fault.WithHint(fault.New(fault.Unavailable, "%w", err), "%s", hint)
}

var errClosed = errors.New("the store is closed")

// awayError returns the error of a call that could not begin.
func awayError(op string, err error) error {
	if _, ok := errors.AsType[*store.Error](err); ok {
		return err
	}
	return &store.Error{Class: store.Away, Op: op, Err: err}
}

// fencedError returns the error of a node or lane that no longer owns its fence.
func fencedError(op string) error {
	return &store.Error{Class: store.Fenced, Op: op, Err: store.ErrFenced.Err}
}

// refusal returns the error of a call whose arguments cannot be stored.
func refusal(op string, err error) error { return &store.Error{Class: store.Refused, Op: op, Err: err} }

// classify returns the error of a call that the driver makes, which is every call except Commit. If
// a write fails, the driver may have sent it, so its class is Unknown unless the server says that
// it aborted the transaction. A read changes nothing, so its class is never Unknown.
func classify(ctx context.Context, op string, write bool, err error) error {
	var e *store.Error
	if err == nil || errors.As(err, &e) {
		return err
	}
	unknown := store.Unknown
	if !write {
		unknown = store.Away
	}
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		if cause := context.Cause(ctx); cause != nil {
			err = fmt.Errorf("%w (%w)", cause, err)
		}
		if fault.KindOf(err) == fault.Corrupt {
			return fmt.Errorf("%s: %w", op, err)
		}
		return &store.Error{Class: unknown, Op: op, Err: err}
	}

	f := failure{PgError: pg}
	if !f.provesAbort() {
		return &store.Error{Class: unknown, Op: op, Err: withHint(err, pg)}
	}
	class := f.class()
	if class == store.Retryable && pg.Code != codePlanChanged && !write {
		class = store.Away // a read that takes too long would take too long again
	}

	return &store.Error{Class: class, Op: op, Err: withHint(err, pg)}
}
