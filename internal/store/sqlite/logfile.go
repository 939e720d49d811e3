package sqlite

import (
	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/vfs"
)

// logFile is the write-ahead log as the writer sees it. SQLite writes it piece by piece, two system
// calls for each page; here the pieces of a commit are collected, and written at once when it syncs
// the log. That is the moment that counts: others look at what a commit added to the log only after
// its sync, which the setting of synchronous = full demands for every commit.
type logFile struct {
	*file
	pending []byte
	at      int64 // where pending belongs
}

// mostPending bounds what is collected; a large transaction is written in several pieces.
const mostPending = 1 << 20

// WriteAt collects what follows on what was written before.
func (f *logFile) WriteAt(p []byte, off int64) (int, error) {
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

// flush writes what was collected. When that fails it is gone: SQLite rolls the transaction back
// and writes it anew, if at all.
func (f *logFile) flush() error {
	if len(f.pending) == 0 {
		return nil
	}
	p := f.pending
	f.pending = p[:0]
	_, err := f.file.WriteAt(p, f.at)
	return err
}

// ReadAt reads what has been written, collected or not.
func (f *logFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.flush(); err != nil {
		return 0, err
	}
	return f.file.ReadAt(p, off)
}

// Size counts what was collected too.
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

// Sync writes what was collected and waits until the disk has it.
func (f *logFile) Sync(flags vfs.SyncFlag) error {
	if err := f.flush(); err != nil {
		return err
	}
	return f.file.Sync(flags)
}

// Close gives the file up. What was not synced belongs to no commit.
func (f *logFile) Close() error {
	f.pending = nil
	return f.file.Close()
}

// discardLog forgets what a transaction that was rolled back has left to be written: by the next
// time this connection comes to write it, the place may hold a commit of another connection. The
// caller holds the writer.
func (w *writer) discardLog() {
	if f, err := w.db.FileControl("main", sqlite3.FCNTL_JOURNAL_POINTER); err == nil {
		if l, ok := f.(*logFile); ok {
			l.pending = l.pending[:0]
		}
	}
}
