package perduretest

import (
	"context"
	"io"
	"io/fs"
	"testing"

	"github.com/perdure/perdure"
)

// checker replays exported histories. Whoever knows their format implements it.
type checker interface {
	// Check replays the history that r holds with the definitions, executing no step, and says in what the code differs from what is recorded.
	Check(ctx context.Context, r io.Reader, defs ...perdure.Definition) error
}

// replayFiles replays the histories in all files that a pattern (see fs.Glob) matches, each as a test of its own. A pattern that matches nothing
// is a mistake: a test that checks nothing must not succeed.
func replayFiles(t *testing.T, c checker, files fs.FS, pattern string, defs ...perdure.Definition) {
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
			if err := replayFile(t.Context(), c, files, name, defs...); err != nil {
				t.Errorf("perduretest: %s: %v", name, err)
			}
		})
	}
}

func replayFile(ctx context.Context, c checker, files fs.FS, name string, defs ...perdure.Definition) error {
	f, err := files.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	return c.Check(ctx, f, defs...)
}
