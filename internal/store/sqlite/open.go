package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/perdure/perdure/internal/episode"
	"github.com/perdure/perdure/internal/fault"
)

// pageSize is the page size of new files. Existing files keep their page size. A commit writes
// whole pages, and most rows of a batch are on different pages. So a commit writes fewer bytes if
// pages are small. A workflow of three steps writes 7 KB, compared with 17 KB for pages of 8 KiB.
// With pages of 1 KiB such a workflow would write 5 KB. But pages would split so often that the
// workflow would take a quarter more processor time. Small pages have a disadvantage: a value of 64
// KiB needs more overflow pages. So large bodies of events have a table of their own.
const pageSize = 2048

// Pragmas of the writing connection.
//
// The cache is small on purpose. After most page splits, SQLite walks the whole hash table of the
// cache at commit. With a cache of 8000 pages, this walk costs as much as writing the rows of a
// batch. The written pages are at the ends of a few trees, so even a small cache has more than
// enough room for them. No connection uses mmap, because an I/O error or a truncated file would
// kill the process instead of returning an error.
const writerPragmas = `
	pragma synchronous = full;
	pragma temp_store = memory;
	pragma cache_size = 2000;
	pragma foreign_keys = off;
	pragma trusted_schema = off;
	pragma cell_size_check = on;
	pragma wal_autocheckpoint = 0;`

// Pragmas of the other connections.
const readerPragmas = `
	pragma synchronous = full;
	pragma temp_store = memory;
	pragma cache_size = 500;
	pragma trusted_schema = off;
	pragma cell_size_check = on;
	pragma wal_autocheckpoint = 0;
	pragma busy_timeout = 2000;`

// busyTimeout is how long a write waits for another program that writes to the same file, such as
// the sqlite3 shell.
const busyTimeout = 2 * time.Second

// Open opens the store in a file. It creates the file if the file does not exist, and brings its
// schema to the version of this build. The caller must close the store.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}

	// Check the path before SQLite opens it, because SQLite would create files and return less
	// helpful errors.
	if err := checkPath(&cfg); err != nil {
		return nil, err
	}

	s := &Store{
		cfg: cfg, writer: make(chan *writer, 1), readers: make(chan *conn, cfg.Readers),
		move: make(chan struct{}, 1), done: make(chan struct{}),
	}

	s.moves = episode.New(cfg.Logger, "the write-ahead log is not moved into the file", "the write-ahead log is moved into the file again").Source("path", cfg.Path)
	for range cfg.Readers {
		s.readers <- nil
	}

	if cfg.ReadOnly {
		if err := s.openReadOnly(ctx); err != nil {
			return nil, err
		}
		return s, nil
	}

	// Only one process at a time can have the lock. So a process that has it knows that all other
	// nodes that the file lists are dead.
	if s.lock, err = lockFile(cfg.Path); err != nil {
		return nil, err
	}

	if err := s.openWriter(ctx); err != nil {
		_ = s.lock.release() // safe: the file is unchanged or still valid
		return nil, s.openError(err)
	}

	return s, nil
}

// openWriter opens the writing connection, migrates and recovers.
func (s *Store) openWriter(ctx context.Context) (err error) {
	if err := createPrivate(s.cfg.Path); err != nil {
		return err
	}

	// When SQLite creates the log, the store must sync the directory. If that does not work, it is
	// better to fail now than at the first commit.
	if err := syncDir(filepath.Dir(s.cfg.Path)); err != nil {
		return err
	}
	c, err := openConn(ctx, &s.cfg, modeCreate, writerPragmas)
	if err != nil {
		return err
	}

	defer func() {
		if err != nil {
			_ = s.closeConn(c)
		}
	}()

	if err := c.db.BusyTimeout(busyTimeout); err != nil {
		return err
	}
	if err := useLog(c, s.cfg.WALSize); err != nil {
		return err
	}
	if err := migrate(c, s.cfg.Path, s.cfg.Shards); err != nil {
		return err
	}

	// Move what the previous process left in the log into the file, and sync the file. If the last
	// sync of that process failed, the kernel may return pages that are not on disk. A reader in
	// another process may prevent the move, which is not an error.
	if _, _, err := c.db.WALCheckpoint("main", sqlite3.CHECKPOINT_TRUNCATE); err != nil && !errors.Is(err, sqlite3.BUSY) {
		return err
	}
	if s.info, err = readInfo(c, &s.cfg); err != nil {
		return err
	}

	w, err := newWriter(c, s.cfg.WALSize)
	if err != nil {
		return err
	}
	if w.names, err = newNameCheck(s.cfg.Path); err != nil {
		return err
	}

	// Moving the log into the file takes long and must not hold the writer, so it has its own
	// connection.
	mover, err := openConn(ctx, &s.cfg, modeCreate, readerPragmas)
	if err != nil {
		return err
	}
	s.writer <- w
	s.background.Go(func() { s.moveLog(mover) })

	return nil
}

// createPrivate creates the file unless it exists. Only the user of this process may read the file,
// because it contains payloads. SQLite would create a file with the permissions of the umask. An
// operator who wants to share the file changes its mode once.
func createPrivate(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return openFailed(path, err)
	}
	return f.Close()
}

// useLog turns the write-ahead log on. The file itself stores this setting.
func useLog(c *conn, size int64) error {
	// SQLite applies this setting only to a new file.
	if err := c.db.Exec(fmt.Sprintf("pragma page_size = %d", pageSize)); err != nil {
		return err
	}
	var mode string
	if err := c.query("pragma journal_mode = wal", func(q *stmt) error { mode = q.text(0); return nil }); err != nil {
		return err
	}
	// Without the log, readers would block the writer, and commits would need more syncs.
	if mode != "wal" {
		return fault.New(fault.Unavailable, "the file system allows no write-ahead log (journal mode is %s)", mode)
	}
	// A reader in another process can make the log grow. SQLite truncates the log to this size when
	// it writes the log from the beginning again.
	return c.db.Exec(fmt.Sprintf("pragma journal_size_limit = %d", 2*size))
}

// openReadOnly opens a reader immediately, to check that the file has a store.
func (s *Store) openReadOnly(ctx context.Context) error {
	c, err := openConn(ctx, &s.cfg, modeReadOnly, readerPragmas)
	if err != nil {
		return s.openError(err)
	}
	<-s.readers
	s.readers <- c

	err = func() error {
		version, err := schemaVersion(c)
		if err != nil {
			return err
		}
		if err := checkVersion(s.cfg.Path, version, Latest()); err != nil {
			return err
		}

		switch {
		case version == 0:
			return fault.New(fault.NotFound, "%s holds no store", s.cfg.Path)
		case version < Latest():
			return &fault.Error{
				Kind: fault.Conflict, Text: fmt.Sprintf("%s has schema version %d, this build reads version %d", s.cfg.Path, version, Latest()),
				Hint: "run `perdure migrate`, or start the program that owns the file with this build",
			}
		}

		s.info, err = readInfo(c, &s.cfg)
		return err
	}()
	if err != nil {
		_ = s.Close()
		return s.openError(err)
	}

	return nil
}

// openError turns an error while opening into an error with a fault kind.
func (s *Store) openError(err error) error {
	var known *fault.Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	_, kind, hint := s.judge(err)
	return &fault.Error{Kind: kind, Text: "open " + s.cfg.Path, Cause: err, Hint: hint}
}

// checkPath resolves the path and detects problems early, with better errors than SQLite would give
// later.
func checkPath(cfg *Config) error {
	dir, err := filepath.EvalSymlinks(filepath.Dir(cfg.Path))
	if err != nil {
		return openFailed(filepath.Dir(cfg.Path), err)
	}
	cfg.Path = filepath.Join(dir, filepath.Base(cfg.Path))
	if real, err := filepath.EvalSymlinks(cfg.Path); err == nil {
		cfg.Path = real // two names of one file must lead to the same lock
	}

	if fi, err := os.Stat(dir); err != nil {
		return openFailed(dir, err)
	} else if !fi.IsDir() {
		return &fault.Error{Kind: fault.Invalid, Text: dir + " is not a directory", Hint: "name a file in a directory"}
	}
	if !cfg.ReadOnly {
		if err := checkPlace(cfg, dir); err != nil {
			return err
		}
		if cfg.Private {
			if err := checkPrivate(dir, cfg.Path); err != nil {
				return err
			}
		}
	}

	fi, err := os.Stat(cfg.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && cfg.ReadOnly:
		return fault.New(fault.NotFound, "%s does not exist", cfg.Path)
	case errors.Is(err, fs.ErrNotExist):
		return checkOrphan(cfg.Path)
	case err != nil:
		return openFailed(cfg.Path, err)
	case fi.IsDir():
		return &fault.Error{Kind: fault.Invalid, Text: cfg.Path + " is a directory", Hint: "name a file in it"}
	case !fi.Mode().IsRegular():
		return &fault.Error{Kind: fault.Invalid, Text: cfg.Path + " is not a regular file", Hint: "name another file"}
	case fi.Size() == 0 && cfg.ReadOnly:
		return fault.New(fault.NotFound, "%s is empty", cfg.Path)
	case fi.Mode().Perm()&0o222 == 0 && !cfg.ReadOnly: // root could write it; refuse root too
		return openFailed(cfg.Path, fs.ErrPermission)
	}
	if !cfg.ReadOnly {
		if err := checkMode(cfg.Path, fi.Mode()); err != nil {
			return err
		}
	}

	return checkFile(cfg, fi.Size())
}

// checkFile checks that the file can be used as requested and is a database.
func checkFile(cfg *Config, size int64) error {
	flags := os.O_RDWR
	if cfg.ReadOnly {
		flags = os.O_RDONLY
	}
	f, err := os.OpenFile(cfg.Path, flags, 0)
	if err != nil {
		return openFailed(cfg.Path, err)
	}

	defer f.Close()
	if size == 0 {
		return checkOrphan(cfg.Path)
	}
	// SQLite itself accepts an empty file, and notices that a file is not a database only at the
	// first statement.
	const magic = "SQLite format 3\x00"
	head := make([]byte, len(magic))
	if _, err := io.ReadFull(f, head); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return openFailed(cfg.Path, err)
	}

	if string(head) != magic {
		return &fault.Error{Kind: fault.Invalid, Text: cfg.Path + " is not an SQLite file", Hint: "name another file, or move this one away"}
	}
	return nil
}

// checkOrphan refuses an empty or missing file with a log that is not empty. SQLite would delete
// the log and start with an empty store.
func checkOrphan(path string) error {
	fi, err := os.Stat(path + "-wal")
	if err != nil || fi.Size() == 0 {
		return nil
	}
	return &fault.Error{
		Kind: fault.Corrupt, Text: fmt.Sprintf("%s is empty or missing, but its log %s-wal is not", path, path),
		Hint: "restore both from a backup, or move the log away to start with an empty store",
	}
}

// openFailed returns the error for a file or directory that the system does not let us use.
func openFailed(path string, err error) error {
	out := &fault.Error{Kind: fault.Unavailable, Text: "open " + path, Cause: err}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		out.Kind, out.Hint = fault.NotFound, "create the directory first"
	case errors.Is(err, syscall.EROFS):
		out.Kind, out.Hint = fault.Denied, "the file system is read-only: open the store read-only, or name another path"
	case errors.Is(err, fs.ErrPermission):
		out.Kind, out.Hint = fault.Denied, "make the file and its directory writable for this process, or open the store read-only"
	case errors.Is(err, syscall.ENOTDIR):
		out.Kind, out.Hint = fault.Invalid, "name a file in a directory"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		out.Hint = "free space on the disk"
	}
	return out
}

// syncDir makes the names of files in a directory durable.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil // Windows has no such call
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	// EINVAL means that the file system has nothing to sync.
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) {
		return err
	}
	return nil
}
