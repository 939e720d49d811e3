package sqlite

import (
	"errors"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/vfs"
)

// fileSystem wraps the file system of the driver. It reports which writes failed because there was
// no space, or because the file system is read-only. The driver reports both as an I/O error and
// loses the cause. The store needs the cause: after these errors it knows that a commit has failed.
//
// It also makes the names of new journals and logs durable. The driver tries to do this, but syncs
// the file twice and not its directory.
type fileSystem struct {
	vfs.VFSFilename
	// syncDir makes the names in a directory durable.
	syncDir func(dir string) error
}

// systemName is the name under which SQLite finds the file system.
const systemName = "perdure"

// registerFiles makes the file system known to SQLite, once.
var registerFiles = sync.OnceFunc(func() { vfs.Register(systemName, fileSystem{vfs.Find("").(vfs.VFSFilename), syncDir}) })

// OpenFilename opens a file.
func (s fileSystem) OpenFilename(name *vfs.Filename, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	f, flags, err := s.VFSFilename.OpenFilename(name, flags)
	if err != nil {
		return nil, flags, err
	}
	// Only files that SQLite may have just created need their name synced.
	out := &file{File: f}
	if flags&(vfs.OPEN_WAL|vfs.OPEN_MAIN_JOURNAL|vfs.OPEN_SUPER_JOURNAL) != 0 && flags&vfs.OPEN_CREATE != 0 {
		dir := filepath.Dir(name.String())
		out.syncName = func() error { return s.syncDir(dir) }
	}
	if flags&vfs.OPEN_WAL != 0 {
		return &logFile{file: out}, flags, nil
	}
	return out, flags, nil
}

// file is a file of the driver. It does not support memory mapping, on purpose: see writerPragmas.
type file struct {
	vfs.File
	// syncName makes the name of the file durable. The first sync of a journal or log calls it. A
	// power failure would lose a file without a durable name, but SQLite relies on the journal or
	// log when it writes to the database file. syncName is nil if the name is durable.
	syncName func() error
}

// Sync waits until the disk has the file, and also its name if that may be new.
func (f *file) Sync(flags vfs.SyncFlag) error {
	if err := f.File.Sync(flags); err != nil || f.syncName == nil {
		return err
	}
	if err := f.syncName(); err != nil {
		return vfs.SystemError(err, sqlite3.IOERR_DIR_FSYNC)
	}
	f.syncName = nil
	return nil
}

// WriteAt writes.
func (f *file) WriteAt(p []byte, off int64) (int, error) {
	n, err := f.File.WriteAt(p, off)
	return n, cause(err)
}

// Truncate changes the size.
func (f *file) Truncate(size int64) error { return cause(f.File.Truncate(size)) }

// SizeHint reserves space.
func (f *file) SizeHint(size int64) error {
	if h, ok := f.File.(vfs.FileSizeHint); ok {
		return cause(h.SizeHint(size))
	}
	return nil
}

// HasMoved reports whether the file was renamed or removed, so that its name no longer leads to it.
func (f *file) HasMoved() (bool, error) {
	if m, ok := f.File.(vfs.FileHasMoved); ok {
		return m.HasMoved()
	}
	return false, nil
}

// SharedMemory is the index of the log.
func (f *file) SharedMemory() vfs.SharedMemory {
	if m, ok := f.File.(vfs.FileSharedMemory); ok {
		return m.SharedMemory()
	}
	return nil
}

// cause replaces the error of a failed write by the SQLite error code that says why the write
// failed.
func cause(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EFBIG):
		return vfs.SystemError(err, sqlite3.FULL)
	case errors.Is(err, syscall.EROFS):
		return vfs.SystemError(err, sqlite3.READONLY)
	}
	return err
}
