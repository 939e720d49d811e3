package perduretest

import (
	"bytes"
	"io/fs"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/attach"
)

// Replay runs the current code against exported histories, without executing a step. It reads all
// files that match a pattern (see fs.Glob), each in a subtest. A subtest fails if the code does not
// do what the history records. In that case, a deploy of this code would block running executions.
// Export some histories of every kind with `perdure workflow export`, and keep them in the
// repository.
//
// The code runs in virtual time. So it may be slow, and code that blocks without a durable call
// fails the test immediately.
//
// If no file matches the pattern, the test fails, because a test that checks nothing must not
// succeed.
func Replay(t *testing.T, files fs.FS, pattern string, defs ...perdure.Definition) {
	t.Helper()
	Config{}.Replay(t, files, pattern, defs...)
}

// Replay works like the function Replay, but uses c.Payloads, which must be the payload settings of
// the app that exported the histories. Their transforms run in real time, so they may use a
// network.
func (c Config) Replay(t *testing.T, files fs.FS, pattern string, defs ...perdure.Definition) {
	t.Helper()
	names, err := fs.Glob(files, pattern)
	if err != nil {
		t.Fatalf("perduretest: %q: %v", pattern, err)
	}
	if len(names) == 0 {
		t.Fatalf("perduretest: no history matches %q: export some with `perdure workflow export`", pattern)
	}

	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			history, err := fs.ReadFile(files, name)
			if err != nil {
				t.Fatalf("perduretest: %v", err)
			}
			out := newOuter(t.Context())
			defer out.close()
			inside := c
			inside.Payloads = out.codec(c.Payloads, c.MaxPayload)
			bubble(t, func(t *testing.T) { inside.replay(t, t, history, defs...) })
		})
	}
}

// replay replays a history inside the bubble. It reports mistakes to tb.
func (c Config) replay(t *testing.T, tb testing.TB, history []byte, defs ...perdure.Definition) {
	cfg := attach.Config{MaxPayload: c.MaxPayload, Payloads: c.Payloads}
	if err := attach.Replay(t.Context(), cfg, bytes.NewReader(history), defs...); err != nil {
		tb.Errorf("perduretest: %s: %v", t.Name(), err)
	}
}
