package pgtest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The test binary is also the process that tests kill: with this variable, TestMain runs a helper
// instead of the tests.
const helperEnv = "PERDURE_PGTEST_HELPER"

var helpers = map[string]func(){
	// Starts a server, prints its directory, and waits.
	"server": func() {
		pg, err := Open(context.Background(), Options{})
		if err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		fmt.Println(pg.PID(), pg.home.watchdog.Process.Pid, pg.home.dir)
		// It exits when it reads a line or the end of the input, without closing anything.
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	},
}

// victim is a helper process with its own server.
type victim struct {
	cmd                  *exec.Cmd
	postmaster, watchdog int
	dir                  string
	exit                 func()
}

func startVictim(t *testing.T) *victim {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), helperEnv+"=server")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}

	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})

	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(line)
	if len(fields) != 3 {
		t.Fatalf("helper says %q", line)
	}

	v := &victim{cmd: cmd, dir: fields[2], exit: func() { _ = stdin.Close() }}
	for i, pid := range []*int{&v.postmaster, &v.watchdog} {
		if *pid, err = strconv.Atoi(fields[i]); err != nil {
			t.Fatal(err)
		}
		if !isRunning(*pid) {
			t.Fatalf("process %d of the helper does not run", *pid)
		}
	}

	return v
}

// publicDir returns a new directory that the server's user can reach, unlike t.TempDir.
func publicDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "pgtest-") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, os.ErrNotExist)
}

func TestServerAndDirectoryGoWithTheirProcess(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(v *victim){
		"exit":    func(v *victim) { v.exit() },
		"kill -9": func(v *victim) { _ = v.cmd.Process.Kill() },
		"Ctrl-C":  func(v *victim) { _ = v.cmd.Process.Signal(os.Interrupt) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := startVictim(t)
			if !exists(v.dir) {
				t.Fatalf("%s does not exist", v.dir)
			}
			end(v)
			eventually(t, "postmaster is gone", func() bool { return !isRunning(v.postmaster) })
			eventually(t, "directory is gone", func() bool { return !exists(v.dir) })
			eventually(t, "watchdog is gone", func() bool { return !isRunning(v.watchdog) })
		})
	}
}

func TestSweepRemovesWhatTheWatchdogCouldNot(t *testing.T) {
	t.Parallel()
	v := startVictim(t)
	parent := filepath.Dir(v.dir)
	old := time.Now().Add(-2 * unlockedFor)
	age := func(at time.Time) {
		t.Helper()
		if err := os.Chtimes(v.dir, at, at); err != nil {
			t.Fatal(err)
		}
	}
	age(old)
	sweep(parent)
	if !exists(v.dir) {
		t.Fatal("the directory of a living server was swept")
	}

	age(time.Now()) // so that tests of other packages, which sweep too, do not remove it yet
	if err := errors.Join(syscall.Kill(v.watchdog, syscall.SIGKILL), v.cmd.Process.Kill()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "postmaster is gone", func() bool { return !isRunning(v.postmaster) })
	if !exists(v.dir) {
		t.Fatal("no process was left to remove the directory, but it is gone")
	}
	// The loop repeats the sweep, because another test may be sweeping at the same time, or dying
	// backends may still write.
	eventually(t, "the abandoned directory is swept", func() bool {
		if exists(v.dir) {
			_ = os.Chtimes(v.dir, old, old)
			sweep(parent)
		}
		return !exists(v.dir)
	})
}

func TestSweepSparesWhatIsBeingCreated(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	young := filepath.Join(parent, "run-young")
	if err := os.Mkdir(young, 0o700); err != nil {
		t.Fatal(err)
	}
	sweep(parent)
	if !exists(young) {
		t.Error("a directory that is not locked yet was swept")
	}
}

func TestKilledServerLeavesNoSharedMemory(t *testing.T) {
	t.Parallel()
	pg, err := Open(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	pidFile, err := os.ReadFile(filepath.Join(pg.DataDir(), "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}

	id := strings.Fields(strings.Split(string(pidFile), "\n")[6])[1]
	segment := func() bool {
		t.Helper()
		text, err := os.ReadFile("/proc/sysvipc/shm")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if fields := strings.Fields(line); len(fields) > 1 && fields[1] == id {
				return true
			}
		}
		return false
	}
	if !segment() {
		t.Fatalf("segment %s of a running server not found", id)
	}

	if err := pg.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := pg.Close(); err != nil {
		t.Fatal(err)
	}
	if segment() {
		t.Errorf("segment %s is still there", id)
	}
}

func TestMissingPostgresFailsAndSaysWhatToInstall(t *testing.T) {
	empty := t.TempDir()
	t.Setenv("PATH", empty)
	t.Setenv(EnvBinaries, "")
	_, err := findBinaries(filepath.Join(empty, "*"))
	if err == nil || !strings.Contains(err.Error(), "apt-get install postgresql") || !strings.Contains(err.Error(), "scripts/setup.sh") {
		t.Errorf("error = %v, want a sentence that says what to install", err)
	}
	t.Setenv(EnvBinaries, empty)
	_, err = Open(t.Context(), Options{})
	if err == nil || !strings.Contains(err.Error(), empty) || !strings.Contains(err.Error(), "apt-get install postgresql") {
		t.Errorf("error = %v, want a sentence that says where we looked and what to install", err)
	}

	tb := &recorder{TB: t}
	done := make(chan struct{})
	go func() { defer close(done); Start(tb, Options{}) }()
	<-done
	if !strings.Contains(tb.fatal, "apt-get install postgresql") {
		t.Errorf("the test ended with %q, want a failure that says what to install", tb.fatal)
	}
}

// recorder is a testing.TB that remembers how it failed.
type recorder struct {
	testing.TB
	fatal string
}

func (r *recorder) Helper() {}

func (r *recorder) Fatalf(format string, args ...any) {
	r.fatal = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Skipf(format string, args ...any) {
	r.TB.Errorf("skipped: "+format, args...)
	runtime.Goexit()
}

func TestNewestBinariesWin(t *testing.T) {
	t.Setenv(EnvBinaries, "")
	root := t.TempDir()
	for _, version := range []string{"9.6", "10", "15", "9", "16-without-initdb"} {
		bin := filepath.Join(root, version, "bin")
		if err := os.MkdirAll(bin, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"postgres", "initdb"} {
			if strings.HasSuffix(version, name) {
				continue
			}
			if err := os.WriteFile(filepath.Join(bin, name), nil, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}

	if got, err := findBinaries(filepath.Join(root, "*", "bin")); err != nil || got != filepath.Join(root, "15", "bin") {
		t.Errorf("findBinaries = %s, %v; want version 15", got, err)
	}
}

func TestTemplateIsMadeOnceAndReused(t *testing.T) {
	temp := publicDir(t)
	t.Setenv("TMPDIR", temp)
	first, second := Start(t, Options{}), Start(t, Options{})
	if !strings.HasPrefix(first.DataDir(), temp) {
		t.Fatalf("data directory %s is not in %s", first.DataDir(), temp)
	}
	if first.password != second.password {
		t.Error("the second server does not come from the template of the first")
	}
	if third := Start(t, Options{InitArgs: []string{"--data-checksums"}}); third.password == first.password {
		t.Error("a server with arguments of its own for initdb comes from the template")
	}
	templates, err := filepath.Glob(filepath.Join(temp, "perdure-pgtest-*", "template-*"))
	if err != nil || len(templates) != 1 {
		t.Fatalf("templates = %v, %v; want one", templates, err)
	}

	if info, err := os.Stat(templates[0]); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode of the template, which holds the password = %v, %v; want 0600", info.Mode(), err)
	}
}

// The data directory of the first server is on another file system than the template.
func TestTemplateIsMadeOnAnotherFileSystem(t *testing.T) {
	temp := publicDir(t)
	t.Setenv("TMPDIR", temp)
	other := ""
	for _, dir := range []string{"/dev/shm", "/tmp", "/var/tmp"} {
		var a, b syscall.Stat_t
		if syscall.Stat(temp, &a) == nil && syscall.Stat(dir, &b) == nil && a.Dev != b.Dev {
			other = dir
		}
	}
	if other == "" {
		t.Skip("this machine has one file system for temporary files")
	}
	dir, err := os.MkdirTemp(other, "perdure-pgtest-other-") //nolint:usetesting // the directory must be on another file system
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}

	first, second := Start(t, Options{Dir: dir}), Start(t, Options{})
	if first.password != second.password {
		t.Error("the second server does not come from the template of the first")
	}
}

func TestRootsPrivateTemporaryDirectoryIsAvoided(t *testing.T) {
	private := filepath.Join(t.TempDir(), "private")
	if err := os.Mkdir(private, 0o700); err != nil {
		t.Fatal(err)
	}
	inner := filepath.Join(private, "inner")
	if err := os.Mkdir(inner, 0o755); err != nil {
		t.Fatal(err)
	}

	if reachableByOthers(inner) || !reachableByOthers(os.TempDir()) {
		t.Fatal("reachableByOthers is wrong")
	}
	t.Setenv("TMPDIR", inner)
	dir, err := base(&serverUser{})
	if err != nil {
		t.Fatal(err)
	}

	if strings.HasPrefix(dir, private) {
		t.Errorf("base = %s, which the server's user cannot enter", dir)
	}
}

func TestBaseOfSomebodyElseIsRefused(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	name := filepath.Join(temp, "perdure-pgtest-"+strconv.Itoa(os.Geteuid()))
	if err := os.Symlink(t.TempDir(), name); err != nil {
		t.Fatal(err)
	}
	if _, err := base(nil); err == nil {
		t.Error("a symbolic link was accepted")
	}
	if err := errors.Join(os.Remove(name), os.WriteFile(name, nil, 0o644)); err != nil {
		t.Fatal(err)
	}

	if _, err := base(nil); err == nil {
		t.Error("a file was accepted")
	}
	if err := errors.Join(os.Remove(name), os.Mkdir(name, 0o777), os.Chmod(name, 0o777)); err != nil {
		t.Fatal(err)
	}
	if _, err := base(nil); err == nil {
		t.Error("a directory that everybody may write to was accepted")
	}
}
