//go:build long

package chaos_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/pgtest"
)

// previous is the commit of the previous release. Its schema has version 14, the first version with
// which releases can share a store in any order. After each release, set previous to the commit of
// the release before it.
const previous = "97badcc097ec2f7e7d278197e2c18cee8a65535b"

// buildPrevious builds the test binary of the previous release. The environment tells TestMain of
// that binary what the process does, as in this build.
func buildPrevious(t *testing.T) (binary string) {
	t.Helper()
	binary = filepath.Join(t.TempDir(), "chaos.test")
	goCommand(t, unpackPrevious(t), "test", "-c", "-trimpath", "-o", binary, "./internal/chaos")
	return binary
}

// unpackPrevious unpacks the sources of the previous release from the history of the repository.
func unpackPrevious(t *testing.T) (tree string) {
	t.Helper()
	if err := exec.Command("git", "cat-file", "-e", previous+"^{commit}").Run(); err != nil {
		t.Skipf("the history of the repository does not have the previous release, commit %s: %v", previous, err)
	}
	archive := exec.Command("git", "archive", "--format=tar", previous)
	archive.Dir = topOf(t)
	packed, err := archive.Output()
	if err != nil {
		t.Fatal(err)
	}
	tree = filepath.Join(t.TempDir(), "tree")
	if err := unpack(packed, tree); err != nil {
		t.Fatal(err)
	}
	return tree
}

// topOf returns the top directory of the repository.
func topOf(t *testing.T) string {
	t.Helper()
	top, err := exec.Command("git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(top))
}

// goCommand runs the go command in the sources of a release.
func goCommand(t *testing.T, tree string, args ...string) {
	t.Helper()
	build := exec.Command("go", args...)
	build.Dir = tree
	build.Env = append(os.Environ(), "GOFLAGS=-buildvcs=false")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go %v in %s: %v\n%s", args, tree, err, out)
	}
}

// unpack writes the files of an archive below a directory.
func unpack(packed []byte, dir string) error {
	for r := tar.NewReader(bytes.NewReader(packed)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		path := filepath.Join(dir, filepath.FromSlash(h.Name))
		if !strings.HasPrefix(path, dir+string(filepath.Separator)) {
			return errors.New("the archive has a file outside its directory: " + h.Name)
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		content, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		if err := os.WriteFile(path, content, h.FileInfo().Mode().Perm()|0o600); err != nil {
			return err
		}
	}
}

// Processes of the previous release and of this one share a store.
func TestLongPreviousRelease(t *testing.T) {
	t.Parallel()
	old := buildPrevious(t)
	t.Run("rolling to this release and back", func(t *testing.T) {
		t.Parallel()
		rollBetween(t, old, os.Args[0])
	})
	for name, binaries := range map[string][2]string{"this takes over from the previous": {old, os.Args[0]}, "the previous takes over from this": {os.Args[0], old}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			takeOver(t, binaries[0], binaries[1])
		})
	}
}

// rollBetween replaces two processes of one release, one after the other, by two processes of
// another release. Then it replaces these by two processes of the first release. All of them work
// during the change. The first process of the newer release upgrades the schema, so the older
// release later opens an upgraded store. The callers get no errors, and no step runs twice.
func rollBetween(t *testing.T, old, now string) {
	t.Helper()
	url := pgtest.URL(t)
	l := newLedger(t)
	const lease = 20 * time.Second // long enough that no node loses it on a busy machine
	begun := map[string]int{}
	start := func(binary, prefix string) *process {
		p := spawnFrom(t, binary, url, duty{l, 0, lease}, envServe+"="+prefix)
		p.awaitLine("up", 3*time.Minute)
		return p
	}
	stop := func(prefix string, p *process) {
		t.Helper()
		p.signal(syscall.SIGTERM)
		n, err := strconv.Atoi(p.awaitLine("begun", 3*time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		p.finish(3 * time.Minute)
		for _, wrong := range []string{"caller heard:", "lost its lease"} {
			if strings.Contains(p.text(), wrong) {
				t.Errorf("process %s logged %q:\n%s", prefix, wrong, p.text())
			}
		}
		begun[prefix] = n
	}
	// replace starts a process, waits until the old and the new process have both finished work
	// while both were up, and stops the old one.
	replace := func(was *process, prefix, binary, by string) *process {
		t.Helper()
		next := start(binary, by)
		next.awaitLine("done 1", 3*time.Minute)
		stop(prefix, was)
		return next
	}

	a, b := start(old, "a"), start(old, "b")
	a.awaitLine("done 1", 3*time.Minute)
	b.awaitLine("done 1", 3*time.Minute)
	a = replace(a, "a", now, "c")
	b = replace(b, "b", now, "d")
	a = replace(a, "c", old, "e")
	b = replace(b, "d", old, "f")
	stop("e", a)
	stop("f", b)

	// Another process finishes the executions of callers that are gone.
	last := openApp(t, url, l, lease)
	var wg sync.WaitGroup
	total := 0
	for prefix, n := range begun {
		total += n
		for i := range n {
			wg.Go(func() {
				if err := driveOne(last.app.With(t.Context()), l, prefix, i); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	t.Logf("%d rounds of executions in two releases", total)
	verifyOnce(t, verify(t, url, total, l))
}

// takeOver lets processes of two releases start the same executions, and kills the first process
// during the work. The other release takes over, and the results are the same.
func takeOver(t *testing.T, dies, heir string) {
	t.Helper()
	url := pgtest.URL(t)
	l := newLedger(t)
	const n = 20
	first := spawnFrom(t, dies, url, duty{l, n, 10 * time.Second})
	first.awaitLine("up", 3*time.Minute)
	second := spawnFrom(t, heir, url, duty{l, n, 10 * time.Second})
	second.awaitLine("up", 3*time.Minute)
	first.kill()
	second.finish(5 * time.Minute)
	verify(t, url, n, l)
}
