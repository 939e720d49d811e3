//go:build mutants

package mutants

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// changed selects mutants by the file that they change.
var changed = flag.String("files", "", "run only mutants of files whose path matches this regular expression")

// TestMutants applies every mutant and checks that its tests fail. Two mutants run at a time on two
// cores; the flag -parallel changes that.
func TestMutants(t *testing.T) {
	dir, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	chosen, err := regexp.Compile(*changed)
	if err != nil {
		t.Fatal(err)
	}

	sound := &soundTests{dir: dir, runs: map[string]func() soundRun{}}
	var picked []*mutant
	for i := range list {
		if chosen.MatchString(list[i].file) {
			picked = append(picked, &list[i])
		}
	}

	var done, missed atomic.Int64
	for _, m := range picked {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			t.Cleanup(func() { // go test shows the results only when all mutants have run
				if t.Failed() {
					fmt.Fprintf(os.Stderr, "FAILED: %s\n", m.name)
					missed.Add(1)
				}
				fmt.Fprintf(os.Stderr, "%d of %d mutants, %d failed\n", done.Add(1), len(picked), missed.Load())
			})
			for _, args := range m.tests {
				m.mustBeNoticed(t, sound, args)
			}
		})
	}
}

// mustBeNoticed fails the test if the run of go test passes although the mutant is in the code.
func (m *mutant) mustBeNoticed(t *testing.T, sound *soundTests, args []string) {
	t.Helper()
	name := strings.Join(args, " ")
	without := sound.run(t, args)
	if without.failed {
		t.Fatalf("go test %s fails without any mutant:\n%s", name, without.out)
	}

	// If tests never end with a mutant, they have noticed it. The limit keeps them from using a
	// core for long.
	began := time.Now()
	limit := max(time.Minute, 3*without.took)
	out, failed := m.run(t, sound.dir, append([]string{"-timeout", limit.String()}, args...))
	switch {
	case strings.Contains(out, "[build failed]") || strings.Contains(out, "[setup failed]"):
		t.Fatalf("the mutant does not compile:\n%s", out)
	case !failed:
		t.Errorf("no test notices the mutant: go test %s", name)
	default:
		t.Logf("noticed by %s in %v:\n%s", args[0], time.Since(began).Round(time.Millisecond), firstFailure(out))
	}
}

// soundTests runs each set of tests once without a mutant, because a test that always fails would
// seem to notice every mutant.
type soundTests struct {
	dir  string
	mu   sync.Mutex
	runs map[string]func() soundRun // by the arguments of go test
}

// soundRun is a run of tests without a mutant.
type soundRun struct {
	out    string
	failed bool
	took   time.Duration
}

// run returns the run of some tests without a mutant.
func (s *soundTests) run(t *testing.T, args []string) soundRun {
	t.Helper()
	name := strings.Join(args, " ")
	s.mu.Lock()
	run, ok := s.runs[name]
	if !ok {
		run = sync.OnceValue(func() soundRun {
			began := time.Now()
			out, failed := test(t, s.dir, args)
			return soundRun{out, failed, time.Since(began)}
		})
		s.runs[name] = run
	}
	s.mu.Unlock()
	return run()
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
	// The mutant causes the failure, so no file for repeating it is needed.
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
