package perdure

import (
	"errors"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
)

// Errors of waits in workflow code, and of calls, tasks and executions that were cancelled or took
// too long.
var (
	// the execution, the task or the future was cancelled
	ErrCanceled = replay.ErrCanceled
	// a time limit is over: of the scope, the attempt, the call or the execution
	ErrTimeout = replay.ErrTimeout
)

// Errors of the engine, for errors.Is. The text of each error says what failed, and on what.
var (
	// what the call names, such as an execution, does not exist
	ErrNotFound = fault.NewSentinel("not found", fault.NotFound)
	// the call contradicts what is stored: the key has another input, the execution is closed, or
	// the promise is already settled
	ErrConflict = fault.NewSentinel("conflict", fault.Conflict, fault.AlreadyExists)
	// an argument of the call is wrong
	ErrInvalid = fault.NewSentinel("invalid", fault.Invalid, fault.WrongType)
	// a value does not fit the type that the code expects; errors.Is also matches ErrInvalid
	ErrWrongType   = fault.NewSentinel("wrong type", fault.WrongType)
	ErrExhausted   = fault.NewSentinel("a limit is reached", fault.Exhausted)            // try later
	ErrUnavailable = fault.NewSentinel("the store cannot be reached", fault.Unavailable) // try again
	// the execution cannot continue until an operator or a new build changes something
	ErrBlocked = fault.NewSentinel("the execution is blocked", fault.Blocked)
)

var kinds = map[fault.Kind]error{
	fault.NotFound: ErrNotFound, fault.Conflict: ErrConflict, fault.AlreadyExists: ErrConflict, fault.Invalid: ErrInvalid,
	fault.Exhausted: ErrExhausted, fault.Unavailable: ErrUnavailable, fault.Blocked: ErrBlocked,
	fault.Canceled: ErrCanceled, fault.Timeout: ErrTimeout, fault.WrongType: ErrWrongType,
}

// engineError is an error of the engine that errors.Is recognises.
type engineError struct {
	error
	kind error
}

func (e *engineError) Unwrap() []error { return []error{e.error, e.kind} }

// public lets users recognise an error with errors.Is. An exported function calls public or remote
// once, on an error that it gets from the engine. All other functions return errors unchanged.
// Errors of package fault need public only if their kind is Canceled or Timeout: errors.Is already
// compares all other kinds with the sentinels above. So an exported function may return an error of
// kind Invalid, which says what is wrong with its arguments, without a call of public.
func public(err error) error {
	if err == nil {
		return nil
	}
	if kind, ok := kinds[fault.KindOf(err)]; ok && !errors.Is(err, kind) {
		return &engineError{err, kind}
	}
	return err
}

// RemoteError is the error of a step, a child or a workflow that came from another process or from
// the journal. It does not contain the errors that the original error wrapped. It is the same value
// on replay.
type RemoteError struct {
	Kind    string // canceled, timeout, panic, … or empty for an error of user code
	Type    string // Go type of the original error
	Message string

	failure *model.Failure
}

// Error returns the message of the original error.
func (e *RemoteError) Error() string { return e.Message }

// Stack returns the stack of the goroutine that panicked. It is empty for errors of other kinds. It
// belongs to the innermost error: if an activity panics and its workflow returns that error, the
// workflow fails with the stack of the activity.
func (e *RemoteError) Stack() string {
	if e.failure == nil {
		return ""
	}
	return e.failure.Stack
}

// Is compares the kind of the error with ErrCanceled, ErrTimeout, ErrNotFound, ErrDropped,
// ErrInterrupted and the other sentinel errors of this package.
func (e *RemoteError) Is(target error) bool {
	switch target { //nolint:errorlint // sentinels
	case ErrDropped:
		return e.Kind == model.FailureDropped
	case ErrInterrupted:
		return e.Kind == model.FailureInterrupted
	}
	kind := fault.ParseKind(e.Kind)
	return target != nil && (kinds[kind] == target || kind == fault.WrongType && target == ErrInvalid) //nolint:errorlint // sentinels
}

// As lets errors.As find the stored failure of the engine.
func (e *RemoteError) As(target any) bool {
	if f, ok := target.(**model.Failure); ok && e.failure != nil {
		*f = e.failure
		return true
	}
	return false
}

// remote turns a stored failure into an error for users. It does not change errors of waits, and
// makes errors of the engine recognisable.
func remote(err error) error {
	if err == nil {
		return nil
	}
	var f *model.Failure
	var re *RemoteError
	if errors.As(err, &re) || !errors.As(err, &f) {
		return public(err)
	}
	return &RemoteError{Kind: f.Kind, Type: f.Type, Message: f.Message, failure: f}
}

// publish calls remote on the named result of an exported function that can fail in several places:
//
//	defer publish(&err)
func publish(err *error) { *err = remote(*err) }
