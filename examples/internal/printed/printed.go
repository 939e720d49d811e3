// Package printed helps the tests of the examples. It records the output of a program and compares
// it with the expected output. Only these tests should use it.
package printed

import (
	"fmt"
	"strings"
	"sync"
)

// Text is the output of a program. Steps and tasks may print from other goroutines. The zero value
// is empty.
type Text struct {
	mu  sync.Mutex
	all strings.Builder
}

// Write implements io.Writer.
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

// Diff returns the difference between a text and the expected lines. It returns an empty string if
// they are equal.
func Diff(got string, lines ...string) string {
	want := strings.Join(lines, "\n") + "\n"
	if got == want {
		return ""
	}
	return fmt.Sprintf("it printed\n%swant\n%s", got, want)
}
