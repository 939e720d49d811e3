package model

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Bounds of the texts that code and people attach to what is stored. Longer ones are cut.
const (
	MaxErrorText  = 16 << 10 // the message of a failure, and its stack
	MaxErrorType  = 512      // the Go type and the kind of a failure
	MaxReasonText = 16 << 10 // the name and the detail of a reason
	MaxReasons    = 32       // that a run is stored with while it waits
)

// Cut is the text with at most so many bytes. A longer one ends with a mark that says how many
// bytes are missing. Cutting a text again changes nothing.
func Cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	mark := func(cut int) string { return fmt.Sprintf("… (%d bytes cut)", cut) }
	keep := max(0, most-len(mark(len(text))))
	for keep > 0 && !utf8.RuneStart(text[keep]) {
		keep--
	}
	// A copy: a slice of the text would keep all of it in memory.
	return strings.Clone(text[:keep]) + mark(len(text)-keep)
}

// Bounded is the failure with texts that may be stored: itself, or a copy with shorter ones.
// Whoever makes a failure bounds it before anybody sees it, so that code reads the same text when
// it runs and when it is replayed.
func (f *Failure) Bounded() *Failure {
	if f == nil || len(f.Message) <= MaxErrorText && len(f.Stack) <= MaxErrorText && len(f.Type) <= MaxErrorType && len(f.Kind) <= MaxErrorType {
		return f
	}
	b := *f
	b.Kind, b.Type = Cut(f.Kind, MaxErrorType), Cut(f.Type, MaxErrorType)
	b.Message, b.Stack = Cut(f.Message, MaxErrorText), Cut(f.Stack, MaxErrorText)
	return &b
}

// Brief is the failure without its stack and with a short text, for where there is no room for
// more.
func (f *Failure) Brief() *Failure {
	b := *f.Bounded()
	b.Message, b.Stack = Cut(b.Message, MaxErrorType), ""
	return &b
}

// Size is roughly what the failure costs in memory and on disk.
func (f *Failure) Size() int {
	if f == nil {
		return 0
	}
	return 32 + len(f.Kind) + len(f.Type) + len(f.Message) + len(f.Stack)
}

// Bounded is the reason with texts that may be stored.
func (r Reason) Bounded() Reason {
	r.Code = ReasonCode(Cut(string(r.Code), MaxErrorType))
	r.Name, r.Detail = Cut(r.Name, MaxReasonText), Cut(r.Detail, MaxReasonText)
	return r
}

// BoundedReasons are the first of the reasons, as they may be stored: the same slice when all of
// them may be.
func BoundedReasons(reasons []Reason) []Reason {
	fits := len(reasons) <= MaxReasons
	for i := 0; fits && i < len(reasons); i++ {
		r := &reasons[i]
		fits = len(r.Code) <= MaxErrorType && len(r.Name) <= MaxReasonText && len(r.Detail) <= MaxReasonText
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

// Bounded is the message with a failure that may be stored: itself, or a copy.
func (m *Message) Bounded() *Message {
	f := m.Failure.Bounded()
	if f == m.Failure {
		return m
	}
	b := *m
	b.Failure = f
	return &b
}
