// Package fault classifies errors by what the caller can do about them.
//
// An error that leaves one of our packages has one Kind. A function that passes the error on wraps
// it with fmt.Errorf("…: %w", err), which keeps the kind. Each API translates kinds to gRPC codes,
// HTTP statuses or exit codes in one table. The text is a lower-case sentence that names the
// object. A Hint tells a person what to do next.
package fault

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Kind says what the caller can do about an error.
type Kind uint8

// The kinds. The zero Kind is the kind of an error that was not classified. Callers treat it as
// Internal.
const (
	Unclassified    Kind = iota
	NotFound             // the object does not exist, or does not exist for this tenant
	AlreadyExists        // the object exists, but the call requires that it does not
	Invalid              // the request itself is wrong; another attempt cannot help
	Conflict             // the request contradicts what is stored
	Denied               // the caller is authenticated but not allowed
	Unauthenticated      // the caller has no valid credential
	Exhausted            // a bound is reached; try later
	Unavailable          // the store or the owner cannot be reached; try again
	Canceled             // the caller or an operator gave up
	Timeout              // a deadline passed
	Blocked              // the execution cannot continue until an operator changes something
	Corrupt              // stored data cannot be decoded
	Internal             // a bug in Perdure
	NotOwned             // another worker has the claim now, or the claim has ended
	WrongType            // a value does not fit the type that the code expects
)

var kindNames = [...]string{
	"unclassified", "not_found", "already_exists", "invalid", "conflict", "denied", "unauthenticated",
	"exhausted", "unavailable", "canceled", "timeout", "blocked", "corrupt", "internal", "not_owned", "wrong_type",
}

// String returns the name of the kind on the wire and in logs.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// ParseKind reads the text form of a Kind; an unknown text is Unclassified.
func ParseKind(s string) Kind {
	for k, name := range kindNames {
		if name == s {
			return Kind(k)
		}
	}
	return Unclassified
}

// Error is a classified error.
type Error struct {
	Kind  Kind
	Text  string // lower case, names the operation and the object
	Hint  string // what a person can do next; may be empty
	Cause error  // may be nil
}

// Error returns the text, the cause and the hint as one sentence.
func (e *Error) Error() string {
	s := e.Text
	if e.Cause != nil {
		if text := e.Cause.Error(); text != "" {
			s += ": " + text
		}
	}
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}

// Unwrap returns the cause for errors.Is and errors.As.
func (e *Error) Unwrap() error { return e.Cause }

// Is matches a Sentinel of the error's kind.
func (e *Error) Is(target error) bool {
	s, ok := target.(*Sentinel)
	return ok && slices.Contains(s.kinds, e.Kind)
}

// Sentinel matches errors of some kinds in errors.Is. The public API exports sentinels, so that
// code of users does not need kinds.
type Sentinel struct {
	text  string
	kinds []Kind
}

// NewSentinel returns a Sentinel.
func NewSentinel(text string, kinds ...Kind) error { return &Sentinel{text, kinds} }

// Error returns the text of the sentinel.
func (s *Sentinel) Error() string { return s.text }

// New returns an error of a kind. If the format has exactly one %w verb, the error of that verb
// becomes the cause.
func New(k Kind, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	if cause := errors.Unwrap(err); cause != nil {
		return &Error{Kind: k, Text: err.Error(), Cause: hidden{cause}}
	}
	return &Error{Kind: k, Text: err.Error()}
}

// hidden is a cause whose text is already part of the message.
type hidden struct{ error }

func (hidden) Error() string   { return "" }
func (h hidden) Unwrap() error { return h.error }

// WithHint wraps err in an error that also tells a person what to do next. The kind of the new
// error is KindOf(err).
func WithHint(err error, format string, args ...any) error {
	return &Error{Kind: KindOf(err), Text: err.Error(), Cause: hidden{err}, Hint: fmt.Sprintf(format, args...)}
}

// KindOf returns the kind of the outermost classified error in the chain. Without one, an error of
// a context is Timeout or Canceled, and every other error is Internal. KindOf(nil) is Unclassified.
func KindOf(err error) Kind {
	if err == nil {
		return Unclassified
	}
	var e *Error
	if errors.As(err, &e) && e.Kind != Unclassified {
		return e.Kind
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return Timeout
	case errors.Is(err, context.Canceled):
		return Canceled
	}
	return Internal
}

// Is reports whether err has the kind.
func Is(err error, k Kind) bool { return err != nil && KindOf(err) == k }
