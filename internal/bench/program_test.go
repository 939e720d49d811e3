package bench

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestFindProgramAsksForTheVersion(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p, err := FindProgram(t.Context(), "any", self)
	if err != nil || p.Path != self || p.Version != "bench.test 1.2.3" {
		t.Errorf("got %+v, %v; want the first line of what the program prints", p, err)
	}
}

func TestFindProgramSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	_, err := FindProgram(t.Context(), "no-such-server", "")
	if !errors.Is(err, exec.ErrNotFound) || !strings.Contains(err.Error(), "no-such-server") {
		t.Errorf("got %v, want an error that names the program", err)
	}
	path := filepath.Join(t.TempDir(), "server")
	if _, err = FindProgram(t.Context(), "any", path); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v, want an error that names the path", err)
	}
	if _, err = FindProgram(t.Context(), "false", ""); err == nil || !strings.Contains(err.Error(), "false --version: exit status 1") {
		t.Errorf("got %v, want an error that says what the program did", err)
	}
}

// startScript starts a shell as a server. The server is ready when its directory has a file of this
// name.
func startScript(ctx context.Context, t *testing.T, script string) (*ServerProcess, error) {
	t.Helper()
	dir := t.TempDir()
	return Program{Path: "/bin/sh"}.Start(ctx, Start{
		Args: []string{"-c", script}, Log: filepath.Join(dir, "log"),
		Ready: func(context.Context) error {
			_, err := os.Stat(filepath.Join(dir, "ready"))
			return err
		},
	})
}

func TestServerRunsUntilItIsClosed(t *testing.T) {
	t.Parallel()
	// Many installed programs are scripts that start the server as a child.
	sp, err := startScript(t.Context(), t, "sleep 1000 & touch ready; wait")
	if err != nil {
		t.Fatal(err)
	}
	servers, workers := sp.Processes()
	if _, err := os.Stat("/proc/self/stat"); err == nil && len(servers) != 2 {
		t.Errorf("got the processes %v, want the shell and its child", servers)
	}
	if servers[0] != sp.cmd.Process.Pid || len(workers) != 0 {
		t.Errorf("got %v and workers %v, want the process %d first and no workers", servers, workers, sp.cmd.Process.Pid)
	}
	if err := sp.Close(); err != nil {
		t.Fatal(err)
	}
	if state := sp.cmd.ProcessState.String(); state != "signal: terminated" {
		t.Errorf("the server ended with %q", state)
	}
}

func TestServerThatEndsIsExplainedByItsLog(t *testing.T) {
	t.Parallel()
	_, err := startScript(t.Context(), t, "echo the port is taken >&2; exit 3")
	for _, part := range []string{"/bin/sh: the server ended before it was ready", "the port is taken"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("got %v, want an error with %q", err, part)
		}
	}
}

func TestServerThatIsNeverReadyIsStopped(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	_, err := Program{Path: "/bin/sh"}.Start(ctx, Start{
		Args: []string{"-c", "exec sleep 1000"}, Log: filepath.Join(t.TempDir(), "log"),
		Ready: func(context.Context) error { cancel(); return errors.New("connection refused") },
	})
	if err == nil || !strings.Contains(err.Error(), "the server is not ready: connection refused") {
		t.Errorf("got %v", err)
	}
}

func TestSettingsOfTheUserAreHidden(t *testing.T) {
	t.Parallel()
	env := []string{"PATH=/bin", "RESTATE_ROLES=admin", "HOME=/root", "RESTATE_INGRESS__BIND_ADDRESS=x"}
	if got, want := visible(env, []string{"RESTATE_"}), []string{"PATH=/bin", "HOME=/root"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestFreePortsDiffer(t *testing.T) {
	t.Parallel()
	ports, err := FreePorts(4)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(ports)
	if len(slices.Compact(ports)) != 4 || ports[0] == 0 {
		t.Errorf("got %v, want 4 ports", ports)
	}
}
