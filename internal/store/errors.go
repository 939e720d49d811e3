package store

import (
	"errors"
	"fmt"

	"github.com/perdure/perdure/internal/fault"
)

// Class says how a call failed, and so what the caller may do next. Only adapters look at the
// errors of drivers, to classify them.
type Class uint8

// Classes of failure.
const (
	// Retryable: nothing was applied, and nothing will be applied later. The caller may send the
	// same call again. Examples are a serialization failure, a deadlock, and a lock that another
	// transaction did not release in time.
	Retryable Class = iota + 1
	// Unknown: the call may have been applied. Or it may be applied later, by an orphaned
	// transaction, whose client is gone. After a Commit of this class the caller must call Refence.
	Unknown
	// Refused: nothing was applied, because the store does not accept the data. Examples are a
	// constraint, a value that is too large, and a guard that did not match. The store would refuse
	// the same batch again.
	Refused
	// Fenced: nothing was applied because the caller is no longer the owner.
	Fenced
	// Away: nothing was applied because the store cannot be reached or cannot write. Examples are a
	// server that is down or read-only, and a full disk. Try again later.
	Away
)

var classNames = [...]string{"", "retryable", "unknown", "refused", "fenced", "away"}

// String returns the name of the class.
func (c Class) String() string {
	if int(c) < len(classNames) {
		return classNames[c]
	}
	return fmt.Sprintf("class(%d)", uint8(c))
}

// Error is a failed call with its class.
type Error struct {
	Class Class
	Op    string // the operation, for people
	Err   error
	// Final means that the store refuses all writes until it is opened again.
	Final bool
}

// Final reports whether the store must be opened again before it accepts writes.
func Final(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Final
}

// ErrFenced is an error of class Fenced, for errors.Is and for tests.
var ErrFenced = &Error{Class: Fenced, Op: "commit", Err: errors.New("no longer the owner")}

// Error returns the operation, the class and the cause.
func (e *Error) Error() string { return fmt.Sprintf("%s: %s: %v", e.Op, e.Class, e.Err) }

// Unwrap returns the cause. If the cause has no fault kind, Unwrap also returns an error with the
// fault kind of the class.
func (e *Error) Unwrap() []error {
	kind := map[Class]fault.Kind{
		Retryable: fault.Unavailable, Unknown: fault.Unavailable, Refused: fault.Invalid,
		Fenced: fault.Unavailable, Away: fault.Unavailable,
	}[e.Class]
	if _, ok := errors.AsType[*fault.Error](e.Err); ok {
		return []error{e.Err}
	}
	return []error{e.Err, &fault.Error{Kind: kind, Text: e.Op}}
}

// Is reports whether the target is ErrFenced and this error is of class Fenced.
func (e *Error) Is(target error) bool {
	var t *Error
	return errors.As(target, &t) && t == ErrFenced && e.Class == Fenced
}

// ClassOf returns the class of an error of an adapter. For an error without a class it returns
// Unknown, which is safe, because Unknown does not say whether the call was applied.
func ClassOf(err error) Class {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Class
	}
	return Unknown
}

// Errorf creates an error of a class.
func Errorf(c Class, op, format string, args ...any) *Error {
	return &Error{Class: c, Op: op, Err: fmt.Errorf(format, args...)}
}
