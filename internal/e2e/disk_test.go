package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/pgtest"
)

// envNamespace marks a test process that was started again in a namespace in which it may mount
// file systems.
const envNamespace = "PERDURE_E2E_NAMESPACE"

// The disk is full. The engine acknowledges only work that it has stored, the caller gets the
// reason, and everything continues when there is room.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		dir, ok := mountSmall(t)
		if !ok {
			inNamespace(t)
			return
		}
		s := newSite(t, "sqlite")
		s.path = filepath.Join(dir, "e2e.db")
		s.url = "file:" + s.path
		fullDisk(t, s, dir, s.path)
	})

	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		if os.Getenv(envNamespace) != "" {
			t.Skip("a server does not run as the root of a namespace")
		}
		dir, ok := mountSmall(t)
		if !ok {
			t.Skip("no file system can be mounted here")
		}
		s := newSite(t, "postgres")
		s.moveTo(dir)
		fullDisk(t, s, dir, "executions")
	})
}

// fullDisk fills the disk of a store while an app works. The error that callers get must name the
// place.
func fullDisk(t *testing.T, s *site, dir, place string) {
	t.Helper()
	s.cfg.LeaseTTL = 3 * time.Second
	a := newAlive()
	keep := perdure.NewWorkflow("keep", func(_ perdure.WorkflowCtx, in string) (string, error) { return in[:1], nil })
	app := s.open(a.w, keep)
	c := caller(t, app)
	a.start(t, app, c)

	done := 0
	for ; done < 5; done++ {
		if _, err := keep.Run(c, noise(1000), perdure.RawKey(fmt.Sprint(done))); err != nil {
			t.Fatal(err)
		}
	}

	filler := filepath.Join(dir, "filler")
	fill(t, filler)
	last := noise(100_000)

	full := patiently(t, place, func(ctx context.Context) error {
		for ; ; done++ { // the existing files may have some room left
			if _, err := keep.Run(app.With(ctx), last, perdure.RawKey(fmt.Sprint(done))); err != nil {
				return err
			}
		}
	})

	wantError(t, "a start on a full disk", full, perdure.ErrUnavailable, "keep", place)
	if text := strings.ToLower(full.Error()); !strings.Contains(text, "full") && !strings.Contains(text, "space") {
		t.Errorf("error %q does not say what is wrong", full)
	}
	t.Logf("the caller got: %v", full)
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}

	// The last request, which failed while the disk was full, may have taken effect since then.
	// Repeating it is safe.
	if _, err := keep.Run(c, last, perdure.RawKey(fmt.Sprint(done))); err != nil {
		t.Errorf("once there is room: %v", err)
	}
	a.checkEnd(t, c, "a")
	app = s.reopen(app, a.w, keep)
	if got := list(t, app, `workflow = "keep" and status = "completed"`); len(got) != done+1 {
		t.Errorf("%d executions are stored, want %d", len(got), done+1)
	}
	if err := app.Close(); err != nil {
		t.Fatal(err)
	}
	closeWhileFull(t, s, filler, place, keep)
}

// closeWhileFull closes an app while the disk is full and a caller waits. Close reports that the
// disk is full, the caller gets the reason, and all acknowledged work is stored afterwards. The
// last commit may find room, because the database starts its log again. In that case the test tries
// again.
func closeWhileFull(t *testing.T, s *site, filler, place string, keep *perdure.Workflow[string, string]) {
	t.Helper()
	for try := range 10 {
		closed := closeOnceWhileFull(t, s, filler, place, keep, fmt.Sprintf("full%d-", try))
		t.Logf("Close: %v", closed)
		if closed != nil {
			wantError(t, "Close on a full disk", closed, perdure.ErrUnavailable, "not stored", place)
			return
		}
	}
	t.Error("the last commit found room on a full disk ten times")
}

//arch:parameters where the disk is, and what runs on it
func closeOnceWhileFull(t *testing.T, s *site, filler, place string, keep *perdure.Workflow[string, string], key string) error {
	t.Helper()
	app, err := s.cfg.Open(t.Context(), s.url, keep)
	if err != nil {
		t.Fatal(err)
	}
	fill(t, filler)
	acknowledged, heard := 0, make(chan error, 1)
	go func() {
		for ; ; acknowledged++ {
			if _, err := keep.Run(app.With(t.Context()), noise(100_000), perdure.RawKey(fmt.Sprint(key, acknowledged))); err != nil {
				heard <- err
				return
			}
		}
	}()

	limit := time.Second
	eventually(t, "the store takes nothing", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		limit = min(2*limit, patience) // the machine may be too busy to say why within a second
		_, err := keep.Start(app.With(ctx), noise(100_000), perdure.RawKey(key+"refused"))
		return err != nil && strings.Contains(err.Error(), place)
	})
	closed := app.Close()
	wantError(t, "a call during Close", <-heard, perdure.ErrUnavailable)

	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	app = s.open(keep)
	for i := range acknowledged {
		if info, err := app.Executions().Describe(t.Context(), keep.Execution(perdure.RawKey(fmt.Sprint(key, i)))); err != nil || info.Status != perdure.Completed {
			t.Errorf("%s%d was acknowledged and is %s, %v", key, i, info.Status, err)
		}
	}
	if err := app.Close(); err != nil {
		t.Fatal(err)
	}
	return closed
}

// noise is a text that cannot be compressed.
func noise(n int) string {
	b := make([]byte, n)
	x := uint32(2463534242)
	for i := range b {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		b[i] = 'a' + byte(x>>24)%26
	}
	return string(b)
}

// mountSmall mounts a small file system.
func mountSmall(t *testing.T) (dir string, ok bool) {
	t.Helper()
	dir = t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=24m"); err != nil {
		if os.Getenv(envNamespace) != "" {
			t.Fatal(err)
		}
		t.Logf("mount: %v", err)
		return "", false
	}

	t.Cleanup(func() {
		// The unmount is lazy, because the server decides when it closes the files of a tablespace.
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})

	return dir, true
}

// inNamespace runs the test again, in a namespace in which every user may mount.
func inNamespace(t *testing.T) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+strings.ReplaceAll(t.Name(), "/", "$/^")+"$", "-test.v")
	cmd.Env = append(os.Environ(), envNamespace+"=1")

	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}

	out, err := cmd.CombinedOutput()
	if _, ran := errors.AsType[*exec.ExitError](err); err != nil && !ran {
		t.Skipf("this machine allows neither mounts nor namespaces: %v", err)
	}
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("%v:\n%s", err, out)
	}
}

// moveTo moves an empty database to a directory.
func (s *site) moveTo(dir string) {
	s.t.Helper()
	if os.Getuid() == 0 { // the server runs as another user
		u, err := user.Lookup("postgres")
		if err != nil {
			s.t.Fatal(err)
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		if err := os.Chown(dir, uid, gid); err != nil {
			s.t.Fatal(err)
		}
		for d := filepath.Dir(dir); strings.HasPrefix(d, os.TempDir()) && d != os.TempDir(); d = filepath.Dir(d) {
			if err := os.Chmod(d, 0o755); err != nil {
				s.t.Fatal(err)
			}
		}
	}

	// PostgreSQL moves a database only while it has no connections
	other := &site{t: s.t, kind: s.kind, url: pgtest.URL(s.t)}
	u, err := url.Parse(s.url)
	if err != nil {
		s.t.Fatal(err)
	}
	name := strings.TrimPrefix(u.Path, "/")
	other.sql(fmt.Sprintf(`create tablespace small location '%s'`, dir))
	other.sql(fmt.Sprintf(`alter database %q set tablespace small`, name))

	s.t.Cleanup(func() {
		other.sql(fmt.Sprintf(`alter database %q set tablespace pg_default`, name))
		other.sql(`drop tablespace small`)
	})
}

// fill writes until there is no room.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for block := make([]byte, 1<<12); ; {
		if _, err := f.Write(block); errors.Is(err, syscall.ENOSPC) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
