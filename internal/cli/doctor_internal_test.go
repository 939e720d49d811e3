package cli

import (
	"errors"
	"strings"
	"testing"
)

// logOf is a store with a write-ahead log of the given size.
type logOf struct {
	bytes int64
	err   error
}

func (l logOf) LogSize() (bytes, normal int64, err error) { return l.bytes, 80 << 20, l.err }

func TestLogFinding(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		bytes       int64
		state, says string
	}{
		{0, "ok", "0 MiB"},
		{80 << 20, "ok", "80 MiB"},
		{454 << 20, "warning", "454 MiB, normal is up to 80"},
	} {
		f, err := logFinding(logOf{bytes: c.bytes})
		if err != nil || f.State != c.state || !strings.Contains(f.Detail, c.says) {
			t.Errorf("%d bytes: %+v, %v, want %s and %q", c.bytes, f, err, c.state, c.says)
		}
	}

	if _, err := logFinding(logOf{err: errors.New("denied")}); err == nil {
		t.Error("no error")
	}
}
