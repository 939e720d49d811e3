package sqlite

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/ncruces/go-sqlite3"
)

// The write-ahead log is moved into the file (a checkpoint) in two steps, so that a commit never
// waits for more than a few pages: first everything that is in the log by now, while commits go on;
// then, with the writer held, what they have added in the meantime. After that the next commit
// begins the log anew, in place: the log neither grows nor shrinks, which also makes its sync
// cheaper. Commits that come faster than the log is moved wait for the move once it has got late
// times as long as it should be, so that the log is bounded also on a busy machine. A reader that
// holds an old state keeps the log from beginning anew; it grows until that reader ends, and is cut
// back then.

// late is how many times its limit the log may have when the writer moves it himself.
const late = 4

// logState is what the writer knows about the log.
type logState struct {
	pages int // in the log after the last commit
	limit int // at which the log is to be moved
	next  int // at which to ask for it; above limit when asking did not help

	tried   bool      // the writer has moved it himself since it began anew
	largest int       // pages that it had while it was too large; 0 when it is not
	commits int       // in the log since it began anew
	since   time.Time // when it did
}

// note takes the size of the log after a commit and tells whether to ask for a move.
func (l *logState) note(pages int) bool {
	if pages < l.pages || l.commits == 0 { // it began anew
		l.next = l.limit
		l.commits, l.since, l.tried = 0, time.Now(), false
	}
	l.pages = pages
	l.commits++
	if pages < l.next {
		return false
	}
	l.next = pages + l.limit/4
	return true
}

// tooLarge tells whether the log has more pages than commits alone can give it: it goes on growing
// although the writer has moved it. One large commit is no reason to worry.
func (l *logState) tooLarge() bool { return l.tried && l.pages > (late+1)*l.limit }

// committed is called by the writer after a commit.
func (s *Store) committed(w *writer) {
	ask := w.log.note(w.walPages)
	s.reportGrowth(w)
	if !ask {
		return
	}
	if w.log.pages >= late*w.log.limit {
		s.moved(s.moveStep(w.conn))
		w.log.tried = true
		return
	}
	select {
	case s.move <- struct{}{}:
	default: // asked for already
	}
}

// reportGrowth says once that a reader makes the log grow, and once that it is over.
func (s *Store) reportGrowth(w *writer) {
	l := &w.log
	switch {
	case l.tooLarge() && l.largest == 0:
		s.cfg.Logger.Warn("the write-ahead log grows: a program with an open transaction on the file keeps it from beginning anew; end that transaction",
			"path", s.cfg.Path, "bytes", l.pages*w.pageSize, "normal_bytes", l.limit*w.pageSize, "own_readers", cap(s.readers)-len(s.readers))
		l.largest = l.pages
	case l.tooLarge():
		l.largest = max(l.largest, l.pages)
	case l.largest > 0:
		s.cfg.Logger.Info("the write-ahead log has begun anew", "path", s.cfg.Path, "largest_bytes", l.largest*w.pageSize)
		l.largest = 0
	}
}

// LogSize is the size of the write-ahead log on disk, and the largest one that it has while no
// reader keeps an old state.
func (s *Store) LogSize() (bytes, normal int64, err error) {
	fi, err := os.Stat(s.cfg.Path + "-wal")
	switch {
	case err == nil:
		bytes = fi.Size()
	case errors.Is(err, fs.ErrNotExist): // closed in good order
		err = nil
	}
	return bytes, (late + 1) * s.cfg.WALSize, err
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
		s.moved(s.moveOnce(c))
	}
}

// moved takes the outcome of a move.
func (s *Store) moved(err error) {
	if err == nil {
		s.moves.OK()
		return
	}
	if syncFailed(err) || damaged(err) {
		s.breakDown(err)
	}
	s.moves.Failed(err)
}

func (s *Store) moveOnce(c *conn) error {
	if s.broken.Load() != nil {
		return nil
	}
	if err := s.moveStep(c); err != nil {
		return err
	}
	w, err := take(context.Background(), s, "move", s.writer)
	if err != nil {
		return nil // closed, which moves the log too
	}
	defer func() { s.writer <- w }()
	return s.moveStep(c)
}

// moveStep moves as much as it can without waiting for another program or for a reader.
func (s *Store) moveStep(c *conn) error {
	s.moving.Lock() // SQLite would answer "busy" at once to the second of two
	defer s.moving.Unlock()
	_, _, err := c.db.WALCheckpoint("main", sqlite3.CHECKPOINT_PASSIVE)
	if errors.Is(err, sqlite3.BUSY) {
		return nil // another program moves it
	}
	return err
}
