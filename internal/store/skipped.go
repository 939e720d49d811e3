package store

import (
	"errors"
	"fmt"
)

// SkippedError means that a read has skipped rows that cannot be read, for example because their id
// is not valid. The result is complete except for these rows, so the caller can use it. After any
// other error the result may be incomplete.
type SkippedError struct {
	Count int
	First error // names the first of them
}

// Error says how many rows were skipped, and why the first row was skipped.
func (e *SkippedError) Error() string {
	if e.Count == 1 {
		return fmt.Sprintf("skipped a row that cannot be read: %v", e.First)
	}
	return fmt.Sprintf("skipped %d rows that cannot be read; the first one: %v", e.Count, e.First)
}

// Unwrap returns the error of the first row.
func (e *SkippedError) Unwrap() error { return e.First }

// Skipped counts the rows that a read skips.
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

// Err returns the error of the read, or nil if no row was skipped.
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
