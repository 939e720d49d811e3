package model

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of texts that code and operators attach to stored values. Longer texts are cut.
const (
	MaxErrorText  = 16 << 10 // the message of a failure, and its stack
	MaxErrorType  = 512      // the Go type and the kind of a failure
	MaxReasonText = 16 << 10 // the name and the detail of a reason
	MaxReasons    = 32       // reasons that are stored with a waiting run
)

// Cut returns the text with at most this many bytes. A text that is cut ends with a mark that says
// how many bytes are missing. Cutting a text again changes nothing.
func Cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	mark := func(cut int) string { return fmt.Sprintf("… (%d bytes cut)", cut) }
	keep := max(0, most-len(mark(len(text))))
	for keep > 0 && !utf8.RuneStart(text[keep]) {
		keep--
	}
	// Copy the bytes, because a slice of the text would keep all of it in memory.
	return strings.Clone(text[:keep]) + mark(len(text)-keep)
}

// Bounded returns the failure with texts that are short enough to store: the same failure, or a
// copy. Code that creates a failure calls Bounded immediately. So user code reads the same text
// when it runs and when it is replayed.
func (f *Failure) Bounded() *Failure {
	if f == nil || len(f.Message) <= MaxErrorText && len(f.Stack) <= MaxErrorText && len(f.Type) <= MaxErrorType && len(f.Kind) <= MaxErrorType {
		return f
	}
	b := *f
	b.Kind, b.Type = Cut(f.Kind, MaxErrorType), Cut(f.Type, MaxErrorType)
	b.Message, b.Stack = Cut(f.Message, MaxErrorText), Cut(f.Stack, MaxErrorText)
	return &b
}

// Brief returns the failure without its stack and with a short message, for places with little
// room.
func (f *Failure) Brief() *Failure {
	b := *f.Bounded()
	b.Message, b.Stack = Cut(b.Message, MaxErrorType), ""
	return &b
}

// Size estimates the bytes that the failure takes in memory and on disk.
func (f *Failure) Size() int {
	if f == nil {
		return 0
	}
	return 32 + len(f.Kind) + len(f.Type) + len(f.Message) + len(f.Stack)
}

// Bounded returns the reason with texts that can be stored. The row of the run has the code as a
// text, and some stores refuse a text with a NUL byte or with invalid UTF-8.
func (r Reason) Bounded() Reason {
	if !r.Code.storable() {
		r.Code = ReasonCode(strings.Map(func(c rune) rune {
			if unicode.IsControl(c) {
				return utf8.RuneError
			}
			return c
		}, string(r.Code)))
	}
	r.Code = ReasonCode(Cut(string(r.Code), MaxErrorType))
	r.Name, r.Detail = Cut(r.Name, MaxReasonText), Cut(r.Detail, MaxReasonText)
	return r
}

func (c ReasonCode) storable() bool {
	return utf8.ValidString(string(c)) && !strings.ContainsFunc(string(c), unicode.IsControl)
}

// BoundedReasons returns at most MaxReasons reasons in a form that can be stored. If the reasons
// have that form already, it returns the same slice.
func BoundedReasons(reasons []Reason) []Reason {
	fits := len(reasons) <= MaxReasons
	for i := 0; fits && i < len(reasons); i++ {
		r := &reasons[i]
		fits = len(r.Code) <= MaxErrorType && r.Code.storable() && len(r.Name) <= MaxReasonText && len(r.Detail) <= MaxReasonText
	}
	if fits {
		return reasons
	}
	kept := make([]Reason, 0, min(len(reasons), MaxReasons))
	for _, r := range reasons[:min(len(reasons), MaxReasons)] {
		kept = append(kept, r.Bounded())
	}
	return kept
}

// Bounded returns the message with a failure that can be stored: the same message, or a copy.
func (m *Message) Bounded() *Message {
	f := m.Failure.Bounded()
	if f == m.Failure {
		return m
	}
	b := *m
	b.Failure = f
	return &b
}
