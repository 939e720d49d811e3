package mutants

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// root is the directory of the module.
const root = "../.."

// patch returns the source file with the bug of a mutant.
func (m *mutant) patch(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), m.old); n != 1 {
		t.Fatalf("mutant %q: %s has the text that is to be replaced %d times, want once:\n%s", m.name, m.file, n, m.old)
	}
	return strings.Replace(string(text), m.old, m.new, 1)
}

// TestMutantsApply checks that every change still applies.
func TestMutantsApply(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for i := range list {
		m := &list[i]
		t.Run(m.name, func(t *testing.T) {
			if seen[m.name] {
				t.Error("the name is used twice")
			}
			seen[m.name] = true
			if m.patch(t) == "" || len(m.tests) == 0 {
				t.Error("there is nothing to run")
			}
		})
	}
}
