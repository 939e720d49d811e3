package sqlite

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/ncruces/go-sqlite3"
)

// The store moves the write-ahead log into the file (a checkpoint) in two steps, so that a commit
// never waits for more than a few pages. First it moves everything that is in the log, while
// commits continue. Then it holds the writer, so that no commit runs, and moves what commits have
// added since. After that the next commit restarts the log: it writes to the beginning of the log
// file again. So the size of the log file stays the same, which also makes its sync cheaper.
//
// If commits are faster than the moves, the log grows. When its size reaches the limit times the
// constant late, the writer moves the log itself. So the log is bounded even on a busy machine. A
// reader that holds an old snapshot prevents the restart of the log. In that case the log grows
// until the reader ends, and is truncated afterwards.

// late is the factor by which the log may exceed its limit before the writer moves the log itself.
const late = 4

// logState is what the writer knows about the log.
type logState struct {
	pages int // pages in the log after the last commit
	limit int // number of pages at which the log is to be moved
	next  int // number of pages at which to ask for a move; above limit if a move did not help

	tried   bool      // the writer itself has moved the log since the restart
	largest int       // largest size of the log while it was too large; 0 otherwise
	commits int       // commits in the log since the restart
	since   time.Time // time of the restart
}

// note records the size of the log after a commit and reports whether to ask for a move.
func (l *logState) note(pages int) bool {
	if pages < l.pages || l.commits == 0 { // the log was restarted
		l.next = l.limit
		l.commits, l.since, l.tried = 0, time.Now(), false
	}
	l.pages = pages
	l.commits++
	if pages < l.next {
		return false
	}
	// If the move does not help, ask again after a quarter of the limit, not after every commit.
	l.next = pages + l.limit/4
	return true
}

// tooLarge reports whether the log has more pages than commits alone can cause. It is true if the
// log keeps growing although the writer has moved it. A single large commit does not make it true.
func (l *logState) tooLarge() bool { return l.tried && l.pages > (late+1)*l.limit }

// updateLog updates the log state. The writer calls it after a commit.
func (s *Store) updateLog(w *writer) {
	ask := w.log.note(w.walPages)
	s.reportGrowth(w)
	if !ask {
		return
	}

	// The background move does not keep up. Moving here slows this one commit down and bounds the
	// log.
	if w.log.pages >= late*w.log.limit {
		s.handleMove(s.moveStep(w.conn))
		w.log.tried = true
		return
	}

	select {
	case s.move <- struct{}{}:
	default: // a request is pending already
	}
}

// reportGrowth logs one line when a reader makes the log grow, and one line when the log was
// restarted.
func (s *Store) reportGrowth(w *writer) {
	l := &w.log
	switch {
	case l.tooLarge() && l.largest == 0:
		s.cfg.Logger.Warn("the write-ahead log grows, because a program has an open transaction on the file; end that transaction",
			"path", s.cfg.Path, "bytes", l.pages*w.pageSize, "normal_bytes", l.limit*w.pageSize, "own_readers", cap(s.readers)-len(s.readers))
		l.largest = l.pages
	case l.tooLarge():
		l.largest = max(l.largest, l.pages)
	case l.largest > 0:
		s.cfg.Logger.Info("the write-ahead log has started again", "path", s.cfg.Path, "largest_bytes", l.largest*w.pageSize)
		l.largest = 0
	}
}

// LogSize returns the size of the write-ahead log on disk. normal is the size that the log should
// not exceed while no reader holds an old snapshot.
func (s *Store) LogSize() (bytes, normal int64, err error) {
	fi, err := os.Stat(s.cfg.Path + "-wal")
	switch {
	case err == nil:
		bytes = fi.Size()
	case errors.Is(err, fs.ErrNotExist): // closed in an orderly way
		err = nil
	}
	return bytes, (late + 1) * s.cfg.WALSize, err
}

// moveLog moves the log when asked, until the store is closed.
func (s *Store) moveLog(c *conn) {
	defer func() {
		if err := s.closeConn(c); err != nil {
			s.cfg.Logger.Warn("close of a connection", "error", err)
		}
	}()
	for {
		select {
		case <-s.done:
			return
		case <-s.move:
		}
		s.handleMove(s.moveOnce(c))
	}
}

// handleMove handles the result of a move.
func (s *Store) handleMove(err error) {
	if err == nil {
		s.moves.OK()
		return
	}
	// After a failed sync the store does not know what the file contains, so it stops accepting
	// writes.
	if syncFailed(err) || isDamaged(err) {
		s.breakDown(err)
	}
	s.moves.Fail(err)
}

// moveOnce moves the log in the two steps that the comment above describes.
func (s *Store) moveOnce(c *conn) error {
	if s.broken.Load() != nil {
		return nil
	}
	if err := s.moveStep(c); err != nil {
		return err
	}
	w, err := take(context.Background(), s, "move", s.writer)
	if err != nil {
		return nil // the store is closed, which moves the log too
	}
	defer func() { s.writer <- w }()
	return s.moveStep(c)
}

// moveStep moves as much as it can without waiting for another program or for a reader.
func (s *Store) moveStep(c *conn) error {
	s.moving.Lock() // SQLite would refuse the second of two moves as "busy"
	defer s.moving.Unlock()
	_, _, err := c.db.WALCheckpoint("main", sqlite3.CHECKPOINT_PASSIVE)
	if errors.Is(err, sqlite3.BUSY) {
		return nil // another program moves the log
	}
	return err
}
