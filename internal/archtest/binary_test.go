//go:build long

package archtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// binaries lists programs, how large each may be without debug information, and code that must not
// be in it. The test looks at the binary because the linker drops code that nothing calls, even if
// its package is imported.
var binaries = []struct {
	of      string
	most    int64
	mustNot string // a part of the names of functions
}{
	{"./examples/remote/worker", 22 << 20, "github.com/perdure/perdure/internal/store"},
	{"./examples/hello", 44 << 20, "github.com/perdure/perdure/internal/remote.("},
}

func TestLongBinaries(t *testing.T) {
	t.Parallel()
	for _, b := range binaries {
		file := filepath.Join(t.TempDir(), "program")
		run := func(name string, args ...string) string {
			t.Helper()
			cmd := exec.CommandContext(t.Context(), name, args...)
			cmd.Dir = moduleRoot(t)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
			}
			return string(out)
		}
		run("go", "build", "-trimpath", "-ldflags=-w", "-o", file, b.of)
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}

		if info.Size() > b.most {
			t.Errorf("%s has %d bytes, its budget is %d", b.of, info.Size(), b.most)
		}
		if symbols := run("go", "tool", "nm", file); strings.Contains(symbols, b.mustNot) {
			t.Errorf("%s contains code of %s", b.of, b.mustNot)
		}
	}
}
