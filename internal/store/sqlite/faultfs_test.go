package sqlite

import (
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/ncruces/go-sqlite3/vfs"
)

// faultFS is the file system of SQLite with a place to inject faults.
type faultFS struct {
	vfs.VFSFilename
	name string
	// The file system calls fault before each write, truncate and sync. If fault returns an error,
	// the operation does not happen and returns that error.
	fault atomic.Pointer[func(op, file string) error]
}

var faultFSs atomic.Int64

func newFaultFS(t testing.TB) *faultFS {
	t.Helper()
	f := &faultFS{VFSFilename: vfs.Find("").(vfs.VFSFilename), name: fmt.Sprint("perdure-fault-", faultFSs.Add(1))}
	vfs.Register(f.name, fileSystem{f, func(dir string) error {
		if err := f.inject("sync", dir); err != nil {
			return err
		}
		return syncDir(dir)
	}})
	t.Cleanup(func() { vfs.Unregister(f.name) })
	return f
}

// on injects a fault into operations (write, truncate, sync) on files whose name ends in suffix.
func (f *faultFS) on(op, suffix string, err error) {
	fault := func(o, file string) error {
		if o == op && strings.HasSuffix(file, suffix) {
			return err
		}
		return nil
	}
	f.fault.Store(&fault)
}

// crashAfter lets n-1 operations happen and none after them, as if the process had died.
func (f *faultFS) crashAfter(n int) {
	left := atomic.Int64{}
	left.Store(int64(n))
	fault := func(string, string) error {
		if left.Add(-1) <= 0 {
			return syscall.EIO
		}
		return nil
	}
	f.fault.Store(&fault)
}

func (f *faultFS) heal() { f.fault.Store(nil) }

func (f *faultFS) inject(op, file string) error {
	if fault := f.fault.Load(); fault != nil {
		return (*fault)(op, file)
	}
	return nil
}

func (f *faultFS) OpenFilename(name *vfs.Filename, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	file, flags, err := f.VFSFilename.OpenFilename(name, flags)
	if err != nil {
		return nil, flags, err
	}
	return &faultFile{File: file, fs: f, name: name.String()}, flags, nil
}

func (f *faultFS) Delete(name string, sync bool) error {
	if err := f.inject("delete", name); err != nil {
		return err
	}
	return f.VFSFilename.Delete(name, sync)
}

type faultFile struct {
	vfs.File
	fs   *faultFS
	name string
}

func (f *faultFile) SharedMemory() vfs.SharedMemory {
	return f.File.(vfs.FileSharedMemory).SharedMemory()
}

func (f *faultFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.fs.inject("write", f.name); err != nil {
		return 0, err
	}
	return f.File.WriteAt(p, off)
}

func (f *faultFile) Truncate(size int64) error {
	if err := f.fs.inject("truncate", f.name); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

func (f *faultFile) Sync(flags vfs.SyncFlag) error {
	if err := f.fs.inject("sync", f.name); err != nil {
		return err
	}
	return f.File.Sync(flags)
}

// mountTest mounts a file system for a test that needs a file system of its own. Only root can
// mount one.
func mountTest(t *testing.T, options string) string {
	t.Helper()
	if runtime.GOOS != "linux" || syscall.Getuid() != 0 {
		t.Skip("needs root on linux")
	}
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", options, "tmpfs", dir).CombinedOutput(); err != nil {
		t.Skipf("mount: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	return dir
}

func remount(t *testing.T, dir, options string) {
	t.Helper()
	if out, err := exec.Command("mount", "-o", options, dir).CombinedOutput(); err != nil {
		t.Skipf("remount: %v: %s", err, out)
	}
}
