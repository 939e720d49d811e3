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

// maxTries bounds how often something is tried at once that failed for a passing reason.
const maxTries = 10

// sqlState is the code that a PostgreSQL server gave an error; empty when none did. The drivers
// agree on the method.
func sqlState(err error) string {
	var coded interface{ SQLState() string }
	if errors.As(err, &coded) {
		return coded.SQLState()
	}
	return ""
}

// passing reports whether an error is the fault of what others did at the same moment: nothing was
// done, and trying again at once may help.
func passing(err error) bool {
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
	text := err.Error() // the drivers of SQLite agree on nothing but the words of the library
	return strings.Contains(text, "database is locked") || strings.Contains(text, "database table is locked") || strings.Contains(text, "SQLITE_BUSY")
}

// doubtful reports whether it is open if a transaction was committed.
func doubtful(err error) bool {
	_, committing := errors.AsType[*commitError](err)
	return committing && sqlState(err) == "" && !over(err)
}

// over reports whether a transaction was ended before.
func over(err error) bool {
	return errors.Is(err, sql.ErrTxDone) || err != nil && strings.Contains(err.Error(), "tx is closed")
}

// pause waits a little longer after each try, and not before the first repetition. It reports false
// when there is to be no other.
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
