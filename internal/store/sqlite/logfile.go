package sqlite

import (
	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/vfs"
)

// logFile is the write-ahead log as the writer sees it. SQLite writes the log in pieces, with two
// system calls per page. logFile collects the pieces of a commit and writes them in one call when
// SQLite syncs the log. That is safe: the writer uses synchronous = full, so SQLite syncs the log
// at every commit, and other connections look at the frames of a commit only after that sync.
type logFile struct {
	*file
	pending []byte
	at      int64 // the offset of pending
}

// mostPending bounds the collected bytes. A large transaction is written in several pieces.
const mostPending = 1 << 20

// WriteAt collects data. If the data does not directly follow the collected data, WriteAt first
// writes the collected data.
func (f *logFile) WriteAt(p []byte, off int64) (int, error) {
	// Frames of a commit follow each other. Any other write, such as a new header, ends the
	// collection.
	if len(f.pending) > 0 && off != f.at+int64(len(f.pending)) || len(f.pending)+len(p) > mostPending {
		if err := f.flush(); err != nil {
			return 0, err
		}
	}
	if len(f.pending) == 0 {
		f.at = off
	}
	f.pending = append(f.pending, p...)
	return len(p), nil
}

// flush writes the collected data. If that fails, flush drops the data. SQLite rolls the
// transaction back, and writes the data again if the transaction is repeated.
func (f *logFile) flush() error {
	if len(f.pending) == 0 {
		return nil
	}
	// Forget the data before the write: a failed write must not be repeated with later data.
	p := f.pending
	f.pending = p[:0]
	_, err := f.file.WriteAt(p, f.at)
	return err
}

// ReadAt reads written and collected data.
func (f *logFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.flush(); err != nil {
		return 0, err
	}
	return f.file.ReadAt(p, off)
}

// Size includes collected data.
func (f *logFile) Size() (int64, error) {
	if err := f.flush(); err != nil {
		return 0, err
	}
	return f.file.Size()
}

// Truncate cuts the log.
func (f *logFile) Truncate(size int64) error {
	if err := f.flush(); err != nil {
		return err
	}
	return f.file.Truncate(size)
}

// Sync writes the collected data and waits until the disk has it.
func (f *logFile) Sync(flags vfs.SyncFlag) error {
	if err := f.flush(); err != nil {
		return err
	}
	return f.file.Sync(flags)
}

// Close closes the file. Data that was not synced belongs to no commit.
func (f *logFile) Close() error {
	f.pending = nil
	return f.file.Close()
}

// discardLog drops the collected data of a transaction that was rolled back. Otherwise this
// connection would write the data later, possibly over a commit of another connection. The caller
// holds the writer.
func (w *writer) discardLog() {
	if f, err := w.db.FileControl("main", sqlite3.FCNTL_JOURNAL_POINTER); err == nil {
		if l, ok := f.(*logFile); ok {
			l.pending = l.pending[:0]
		}
	}
}
