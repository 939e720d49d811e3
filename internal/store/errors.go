package store

import (
	"errors"
	"fmt"

	"github.com/perdure/perdure/internal/fault"
)

// Class says in which way a call failed, which decides what the caller may do. Adapters classify;
// nobody else looks at driver errors.
type Class uint8

// Classes of failure.
const (
	// Retryable: nothing was applied and nothing will be; the same call may be sent again
	// (serialization failure, deadlock, connection refused before anything was sent).
	Retryable Class = iota + 1
	// Unknown: the call may have been applied, now or later by an orphaned transaction. For Commit,
	// the only legal reaction is Refence.
	Unknown
	// Refused: nothing was applied because of the data: a constraint, a value that is too large, a
	// guard that did not match. The same batch would be refused again.
	Refused
	// Fenced: nothing was applied because the caller is not the owner any more.
	Fenced
	// Away: nothing was applied because the store cannot be reached or cannot write (down,
	// read-only, disk full). Try again later.
	Away
)

var classNames = [...]string{"", "retryable", "unknown", "refused", "fenced", "away"}

// String names the class.
func (c Class) String() string {
	if int(c) < len(classNames) {
		return classNames[c]
	}
	return fmt.Sprintf("class(%d)", uint8(c))
}

// Error is a failed call with its class.
type Error struct {
	Class Class
	Op    string // what was asked, for people
	Err   error
	// Final tells that the store takes no writes any more, whatever happens, until it has been
	// opened again.
	Final bool
}

// Final reports whether an error says that the store must be opened again.
func Final(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Final
}

// ErrFenced is a bare error of class Fenced, for errors.Is and for tests.
var ErrFenced = &Error{Class: Fenced, Op: "commit", Err: errors.New("not the owner any more")}

// Error is a sentence.
func (e *Error) Error() string { return fmt.Sprintf("%s: %s: %v", e.Op, e.Class, e.Err) }

// Unwrap gives the driver's error and the fault kind.
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

// Is matches errors of the same class when the target is a bare *Error such as ErrFenced.
func (e *Error) Is(target error) bool {
	var t *Error
	return errors.As(target, &t) && t == ErrFenced && e.Class == Fenced
}

// ClassOf is the class of an error of an adapter; an unclassified error is Unknown, the class that
// assumes least.
func ClassOf(err error) Class {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Class
	}
	return Unknown
}

// Errorf makes an error of a class.
func Errorf(c Class, op, format string, args ...any) *Error {
	return &Error{Class: c, Op: op, Err: fmt.Errorf(format, args...)}
}
