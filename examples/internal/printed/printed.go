// Package printed is for the tests of the examples: it keeps what a program prints, and compares it
// with what it should have printed. It promises nothing to programs of others.
package printed

import (
	"fmt"
	"strings"
	"sync"
)

// Text is what a program has printed. Steps and tasks may print from other goroutines. The zero
// value is empty.
type Text struct {
	mu  sync.Mutex
	all strings.Builder
}

// Write is part of io.Writer.
func (t *Text) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all.Write(p)
}

// Say prints a line.
func (t *Text) Say(format string, args ...any) { fmt.Fprintf(t, format+"\n", args...) }

func (t *Text) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all.String()
}

// Diff says what differs between a text and the lines that it should have; nothing when it has
// them.
func Diff(got string, lines ...string) string {
	want := strings.Join(lines, "\n") + "\n"
	if got == want {
		return ""
	}
	return fmt.Sprintf("it printed\n%swant\n%s", got, want)
}
