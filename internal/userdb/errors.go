package userdb

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"
)

// SQLSTATE codes.
const (
	serialization = "40001"
	deadlock      = "40P01"
	denied        = "42501"
	noSchema      = "3F000"
)

// maxTries bounds how often an operation is repeated after a transient failure.
const maxTries = 10

// sqlState returns the SQLSTATE code of an error of a PostgreSQL server. It returns "" for other
// errors. The errors of all drivers have the method SQLState.
func sqlState(err error) string {
	var coded interface{ SQLState() string }
	if errors.As(err, &coded) {
		return coded.SQLState()
	}
	return ""
}

// isTransient reports whether a conflict with other transactions caused the error. If so, the
// operation had no effect, and an immediate retry may help.
func isTransient(err error) bool {
	if err == nil {
		return false
	}
	switch sqlState(err) {
	case serialization, deadlock:
		return true
	case "":
	default:
		return false
	}
	text := err.Error() // errors of SQLite drivers have no common type, only the text of SQLite
	return strings.Contains(text, "database is locked") || strings.Contains(text, "database table is locked") || strings.Contains(text, "SQLITE_BUSY")
}

// doubtful reports whether the transaction may have been committed in spite of the error.
func doubtful(err error) bool {
	_, committing := errors.AsType[*commitError](err)
	return committing && sqlState(err) == "" && !over(err)
}

// over reports whether the transaction had already ended.
func over(err error) bool {
	return errors.Is(err, sql.ErrTxDone) || err != nil && strings.Contains(err.Error(), "tx is closed")
}

// pause waits before the next try: not at all before the first retry, and a little longer before
// each further retry. It returns false if there must be no further try.
func pause(ctx context.Context, try int) bool {
	if try+1 >= maxTries || ctx.Err() != nil {
		return false
	}
	if try == 0 {
		return true
	}
	t := time.NewTimer(time.Duration(try) * 5 * time.Millisecond)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
