package replay

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Errors of waits.
var (
	ErrCanceled = errors.New("canceled")
	ErrTimeout  = errors.New("timeout")
)

// Continue is an error that Code returns to end the run and begin the next.
type Continue struct {
	Workflow string
	Input    model.Payload
}

// Error describes the request. Users see the text only if something other than the workflow
// function returns the error.
func (c *Continue) Error() string { return "continue workflow " + c.Workflow + " as new" }

// FailureOf returns the stored form of an error. It removes our own wrappers, so that the stored
// type is a type that the user knows. It cuts a text that is too long. The code gets the cut text
// as well, so that it sees the same text as a replay.
func FailureOf(err error) *model.Failure {
	f := &model.Failure{Message: err.Error()}
	var late *lateError
	var inner *model.Failure
	var classified *fault.Error

	switch {
	case errors.As(err, &late):
		f.Kind = model.FailureTimeout
		if errors.As(err, &inner) {
			f.Stack, f.Permanent = inner.Stack, inner.Permanent
		}
	case errors.As(err, &inner):
		f.Kind, f.Type, f.Stack, f.Permanent = inner.Kind, inner.Type, inner.Stack, inner.Permanent
	case errors.Is(err, ErrCanceled), errors.Is(err, context.Canceled):
		f.Kind = model.FailureCanceled
	case errors.Is(err, ErrTimeout), errors.Is(err, context.DeadlineExceeded):
		f.Kind = model.FailureTimeout
	case errors.As(err, &classified):
		f.Kind = classified.Kind.String()
	}

	if _, ok := errors.AsType[*permanent](err); ok {
		f.Permanent = true
	}
	if f.Type == "" {
		f.Type = typeName(err)
	}

	return f.Bounded()
}

// lateError is the error of an attempt that ran out of time. It is a timeout, whatever error the
// body returned. For example, a database driver often reports a bad connection when its context
// ends.
type lateError struct {
	step  string
	limit time.Duration
	err   error // what the body returned
}

func (e *lateError) Error() string {
	return fmt.Sprintf("attempt of step %s took more than %s: %s", e.step, e.limit, e.err)
}

func (e *lateError) Unwrap() []error { return []error{ErrTimeout, e.err} }

// typeName returns the Go type of the outermost error that does more than wrap another error.
func typeName(err error) string {
	if late, ok := errors.AsType[*lateError](err); ok {
		err = late.err
	}
	for {
		name := fmt.Sprintf("%T", err)
		switch name {
		case "*replay.permanent", "*replay.retryAfter", "*fmt.wrapError":
			if next := errors.Unwrap(err); next != nil {
				err = next
				continue
			}
		}
		return name
	}
}

// PanicFailure returns the stored form of a panic in user code.
func PanicFailure(v any) *model.Failure {
	text := fmt.Sprint(v)
	kind := "string"
	if v != nil {
		kind = fmt.Sprintf("%T", v)
	}
	return (&model.Failure{Kind: model.FailurePanic, Type: kind, Message: "panic: " + text, Stack: panicStack()}).Bounded()
}

// panicStack returns the stack of the panicking goroutine without the frames of the recovery.
func panicStack() string {
	buf := make([]byte, model.MaxErrorText)
	s := string(buf[:runtime.Stack(buf, false)])
	if i := strings.Index(s, "\npanic("); i >= 0 {
		head, _, _ := strings.Cut(s, "\n")
		s = head + s[i:]
	}
	return s
}

// ExitFailure is the failure of user code that called runtime.Goexit (as t.FailNow does) instead of
// returning.
func ExitFailure(what string) *model.Failure {
	return &model.Failure{Kind: model.FailurePanic, Type: "runtime.Goexit", Message: what + " ended its goroutine (runtime.Goexit) instead of returning"}
}

// misuse returns the error of a durable call in a place where it is not allowed. An attempt that
// fails with this error is never retried.
func misuse(format string, args ...any) error {
	return Permanent(fault.New(fault.Invalid, format, args...))
}
