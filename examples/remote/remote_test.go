// Package remote_test runs the worker and the client of this directory as separate processes,
// against perdure dev.
package remote_test

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The worker and the client are two programs, and perdure dev is between them.
func TestTwoPrograms(t *testing.T) {
	t.Parallel()
	dir := programs(t)
	store := "file:" + filepath.Join(t.TempDir(), "shop.db")
	dev := exec.CommandContext(t.Context(), filepath.Join(dir, "perdure"), "dev", "--store", store, "--listen", "127.0.0.1:0")
	url := strings.Fields(after(t, dev, dev.StderrPipe, "· serving "))[4]
	url = strings.TrimSuffix(url, ";")

	worker := exec.CommandContext(t.Context(), filepath.Join(dir, "worker"))
	worker.Env = append(os.Environ(), "PERDURE_SERVER="+url)
	after(t, worker, worker.StdoutPipe, "the worker is connected")

	client := exec.CommandContext(t.Context(), filepath.Join(dir, "client"))
	client.Env = append(os.Environ(), "PERDURE_SERVER="+url)
	out, err := client.CombinedOutput()
	const want = "receipt of ada\nreceipt of bob, approved by eve\n"
	if err != nil || string(out) != want {
		t.Errorf("the client printed %q, %v; want %q", out, err, want)
	}
}

// programs returns a directory with the programs perdure, worker and client. scripts/test.sh builds
// them once for several tests and sets the directory.
func programs(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("PERDURE_TEST_PROGRAMS"); dir != "" {
		return dir
	}
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", dir, "../../cmd/perdure", "./worker", "./client")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

// after starts a process and returns the first line of its output that begins with a given text.
// The process ends with the test.
func after(t *testing.T, cmd *exec.Cmd, pipe func() (io.ReadCloser, error), begin string) string {
	t.Helper()
	out, err := pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 30 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if line := lines.Text(); strings.HasPrefix(line, begin) {
			go func() { // so that the process never blocks on its output
				for lines.Scan() {
				}
			}()
			t.Cleanup(func() {
				_ = cmd.Process.Signal(os.Interrupt)
				_ = cmd.Wait()
			})
			return line
		}
	}
	t.Fatalf("%s ended before it printed %q: %v", cmd.Path, begin, cmd.Wait())
	return ""
}
