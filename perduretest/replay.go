package perduretest

import (
	"context"
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
// If no file matches the pattern, the test fails, because a test that checks nothing must not
// succeed.
func Replay(t *testing.T, files fs.FS, pattern string, defs ...perdure.Definition) {
	t.Helper()
	Config{}.Replay(t, files, pattern, defs...)
}

// Replay works like the function Replay, but uses c.Payloads, which must be the payload settings of
// the app that exported the histories.
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
			if err := c.replayFile(t.Context(), files, name, defs...); err != nil {
				t.Errorf("perduretest: %s: %v", name, err)
			}
		})
	}
}

func (c Config) replayFile(ctx context.Context, files fs.FS, name string, defs ...perdure.Definition) error {
	f, err := files.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	return attach.Replay(ctx, attach.Config{MaxPayload: c.MaxPayload, Payloads: c.Payloads}, f, defs...)
}
