//go:build mutants

package mutants

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestMutants applies every mutant and checks that its tests fail.
func TestMutants(t *testing.T) {
	dir, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}

	healthy := map[string]bool{}
	for i := range list {
		m := &list[i]
		t.Run(m.name, func(t *testing.T) {
			for _, args := range m.tests {
				if name := strings.Join(args, " "); !healthy[name] {
					if out, failed := test(t, dir, args); failed {
						t.Fatalf("go test %s fails without any mutant:\n%s", name, out)
					}
					healthy[name] = true
				}

				began := time.Now()
				out, failed := m.run(t, dir, args)
				switch {
				case strings.Contains(out, "[build failed]") || strings.Contains(out, "[setup failed]"):
					t.Fatalf("the mutant does not compile:\n%s", out)
				case !failed:
					t.Errorf("no test notices the mutant: go test %s", strings.Join(args, " "))
				default:
					t.Logf("noticed by %s in %v:\n%s", args[0], time.Since(began).Round(time.Millisecond), firstFailure(out))
				}
			}
		})
	}
}

// run compiles a mutant and runs its tests.
func (m *mutant) run(t *testing.T, dir string, args []string) (out string, failed bool) {
	t.Helper()
	tmp := t.TempDir()
	file := filepath.Join(tmp, "mutant.go")
	if err := os.WriteFile(file, []byte(m.patch(t)), 0o600); err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(dir, m.file): file}})
	if err != nil {
		t.Fatal(err)
	}
	spec := filepath.Join(tmp, "overlay.json")
	if err := os.WriteFile(spec, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	return test(t, dir, append([]string{"-overlay", spec}, args...))
}

// test runs go test and returns its output.
func test(t *testing.T, dir string, args []string) (out string, failed bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-count=1", "-vet=off"}, args...)...)
	cmd.Dir = dir
	// the failure of a mutant needs no file to repeat it
	cmd.Env = append(os.Environ(), "RAPID_NOFAILFILE=true")
	text, err := cmd.CombinedOutput()
	return string(text), err != nil
}

// firstFailure returns the start of the output of a failed test.
func firstFailure(out string) string {
	for line := range strings.Lines(out) {
		if strings.Contains(line, ".go:") || strings.Contains(line, "panic") {
			return strings.TrimSpace(line)
		}
	}
	return strings.TrimSpace(out[:min(len(out), 300)])
}
