package sqlite

import (
	"context"
	"errors"

	"github.com/ncruces/go-sqlite3"
)

// The write-ahead log is moved into the file (a checkpoint) in two steps, so that a commit never waits for more than a few
// pages: first everything that is in the log by now, while commits go on; then, with the writer held, what they have
// added in the meantime. After that the next commit begins the log anew, in place: the log neither grows nor shrinks, which
// also makes its sync cheaper. A reader that holds an old state keeps the log from beginning anew; it grows until that
// reader ends, and is cut back then.

// logState is what the writer knows about the log.
type logState struct {
	pages int // in the log after the last commit
	limit int // at which the log is to be moved
	next  int // at which to ask for it; above limit when asking did not help
}

// note takes the size of the log after a commit and tells whether to ask for a move.
func (l *logState) note(pages int) bool {
	if pages < l.pages { // it began anew
		l.next = l.limit
	}
	l.pages = pages
	if pages < l.next {
		return false
	}
	l.next = pages + l.limit/4
	return true
}

// committed is called by the writer after a commit.
func (s *Store) committed(w *writer) {
	if w.log.note(w.walPages) {
		select {
		case s.move <- struct{}{}:
		default: // asked for already
		}
	}
}

// moveLog moves the log when asked to, until the store is closed.
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
		if err := s.moveOnce(c); err != nil {
			if syncFailed(err) || damaged(err) {
				s.breakDown(err)
			}
			s.cfg.Logger.Warn("write-ahead log was not moved into the file", "path", s.cfg.Path, "error", err)
		}
	}
}

func (s *Store) moveOnce(c *conn) error {
	if s.broken.Load() != nil {
		return nil
	}
	if err := moveStep(c); err != nil {
		return err
	}
	w, err := take(context.Background(), s, "move", s.writer)
	if err != nil {
		return nil // closed, which moves the log too
	}
	defer func() { s.writer <- w }()
	return moveStep(c)
}

// moveStep moves as much as it can without waiting for anybody.
func moveStep(c *conn) error {
	_, _, err := c.db.WALCheckpoint("main", sqlite3.CHECKPOINT_PASSIVE)
	if errors.Is(err, sqlite3.BUSY) {
		return nil // another program moves it
	}
	return err
}
