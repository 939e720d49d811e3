package store

import (
	"errors"
	"fmt"
)

// SkippedError tells that a read has passed over rows that cannot be read, for example because an
// id in them is no id. The read is whole without them: whoever asked goes on with what it got. Any
// other error means that what was returned is not all there is.
type SkippedError struct {
	Count int
	First error // names the first of them
}

// Error is a sentence.
func (e *SkippedError) Error() string {
	if e.Count == 1 {
		return fmt.Sprintf("passed over a row that cannot be read: %v", e.First)
	}
	return fmt.Sprintf("passed over %d rows that cannot be read, the first is %v", e.Count, e.First)
}

// Unwrap gives the kind of the first one.
func (e *SkippedError) Unwrap() error { return e.First }

// Skipped counts rows that a read passes over.
type Skipped struct {
	count int
	first error
}

// Note counts a row.
func (s *Skipped) Note(why error) {
	if s.count++; s.first == nil {
		s.first = why
	}
}

// Err is the error of the read; nil when nothing was passed over.
func (s *Skipped) Err(op string) error {
	if s.count == 0 {
		return nil
	}
	return &Error{Class: Refused, Op: op, Err: &SkippedError{Count: s.count, First: s.first}}
}

// Whole reports whether a read has returned everything that can be read.
func Whole(err error) bool {
	_, skipped := errors.AsType[*SkippedError](err)
	return err == nil || skipped
}
