package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/ncruces/go-sqlite3"
)

// nameCheck detects that another program has moved or deleted the files of an open store. If the
// store continued, later commits would go to files without a name, and would be lost when the
// process ends. nameCheck looks at the names at most once per second.
type nameCheck struct {
	path  string
	files map[string]os.FileInfo
	next  time.Time
}

// newNameCheck remembers the identity of the open files.
func newNameCheck(path string) (nameCheck, error) {
	n := nameCheck{path: path, files: map[string]os.FileInfo{}}
	for _, name := range []string{path, path + "-wal"} {
		fi, err := os.Stat(name)
		if err != nil {
			return n, err
		}
		n.files[name] = fi
	}
	return n, nil
}

// check returns an error if a name does not lead to the open file.
func (n *nameCheck) check() *nameError {
	now := time.Now()
	// Two system calls per commit would be too slow. With one check per second, at most the commits
	// of one second are lost.
	if now.Before(n.next) {
		return nil
	}
	n.next = now.Add(time.Second)
	// Check the file before its log, because the file matters more.
	for _, name := range []string{n.path, n.path + "-wal"} {
		fi, err := os.Stat(name)
		if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(n.files[name], fi) {
			// A connection that is opened after the log was deleted creates an empty log. The store
			// treats an empty log like a missing log.
			return &nameError{path: n.path, name: name, free: err != nil || fi.Size() == 0}
		}
	}
	return nil
}

// nameError means that a file of an open store no longer has its name. It also says what happened
// to the commits.
type nameError struct {
	path, name string
	free       bool // the name is unused, or belongs to an empty file
	// saved means that the open file has every commit.
	saved bool
	// problem is why the open file does not have every commit. commits is how many commits may be
	// missing, and the first missing commit was made after the time since.
	problem error
	commits int
	since   time.Time
}

func (e *nameError) Error() string {
	text := e.name + " was replaced while the store was open"
	if e.free {
		text = e.name + " was moved or deleted while the store was open"
	}
	switch {
	case !e.saved:
		return fmt.Sprintf("%s; up to %d commits since %s could not be saved (%v) and are lost when the process ends",
			text, e.commits, e.since.UTC().Format(time.RFC3339), e.problem)
	case e.name == e.path:
		return text + "; the open file has every commit; if that file was deleted, the commits are lost when the process ends"
	}
	return fmt.Sprintf("%s; every commit was saved in %s", text, e.path)
}

func (e *nameError) Unwrap() error { return e.problem }

// hint says what to do.
func (e *nameError) hint() string {
	switch {
	case !e.saved && errors.Is(e.problem, errReaders):
		return "end the programs that read the file, then close the store: Close tries once more to save the commits"
	case !e.saved:
		return "restore a backup"
	case e.name == e.path:
		return "put the file back, then restart the process"
	case !e.free:
		return "move " + e.name + " away, then restart the process"
	}
	return "restart the process"
}

// errReaders means that the whole log cannot be moved, because of a reader.
var errReaders = errors.New("a program that reads the file still uses an old snapshot")

// rescue stops all writing when a file has lost its name, and saves the contents of the open log.
// The caller holds the writer.
func (s *Store) rescue(w *writer, lost *nameError) {
	lost.commits, lost.since = w.log.commits, w.log.since
	// The open file descriptors still lead to the old files. Moving the log into the file saves all
	// commits, as long as that file has a name.
	before := s.broken.Load()
	if before == nil {
		lost.problem = s.moveAll(w)
		lost.saved = lost.problem == nil
	} else {
		if _, known := errors.AsType[*nameError](*before); known {
			return
		}
		// A sync has failed, so the log that the kernel returns may differ from the log on disk.
		lost.problem = *before
	}
	var err error = lost
	s.broken.Store(&err)
}

// rescueAgain tries once more to save the log, if a reader prevented that before. Close calls it.
// rescueAgain returns an error if commits are lost.
func (s *Store) rescueAgain(w *writer) error {
	var lost *nameError
	if broken := s.broken.Load(); broken == nil || !errors.As(*broken, &lost) || lost.saved {
		return nil
	}
	if errors.Is(lost.problem, errReaders) {
		if err := s.moveAll(w); err == nil {
			return nil
		}
	}
	return s.refuseBroken("close")
}

// moveAll moves the whole log into the file and syncs it. It waits a moment for readers.
func (s *Store) moveAll(w *writer) error {
	s.moving.Lock()
	defer s.moving.Unlock()
	// A full checkpoint waits for readers, up to the busy time-out.
	pages, moved, err := w.db.WALCheckpoint("main", sqlite3.CHECKPOINT_FULL)
	switch {
	case errors.Is(err, sqlite3.BUSY), err == nil && moved < pages:
		return errReaders
	default:
		return err
	}
}
