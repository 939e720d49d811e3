// Package episode logs a repeated failure as one episode instead of one line per attempt.
//
// An episode starts with the first failure of any of its sources and ends when none of them fails.
// The package logs a line when the episode starts, one line per minute with a count while failures
// continue, and one line when the episode ends, with its duration and the number of failures. A
// loop that retries asks [Log.Source] for its own source: while one loop still fails, the success
// of another does not end the episode.
//
// All methods are safe for concurrent use. The package never retries. It starts no goroutine
// either: the first failure after a minute logs the line of that minute.
package episode

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure/internal/model"
)

// remindAfter is the minimum time between two lines of a continuing episode.
const remindAfter = time.Minute

// Log logs the episodes of one kind of failure.
type Log struct {
	log    *slog.Logger
	failed string // message of failures
	ended  string // message of the end

	mu       sync.Mutex
	failing  map[*Source]time.Time // failing sources, with the time of their last failure
	failures int
	worked   bool // a source has worked since the last failure
	since    time.Time
	last     time.Time // when the last line was logged
}

// New returns a log of episodes. failed is the message of the first line and of reminders,
// recovered is the message of the last line.
func New(log *slog.Logger, failed, recovered string) *Log {
	return &Log{log: log, failed: failed, ended: recovered, failing: map[*Source]time.Time{}}
}

// Source is one loop that retries. A call of OK costs one atomic load while the source does not
// fail.
type Source struct {
	log     *Log
	args    []any
	failing atomic.Bool
}

// Source returns a new source. The log adds args to the lines that the failures of the source
// cause.
func (l *Log) Source(args ...any) *Source { return &Source{log: l, args: args} }

// Fail notes a failure. If the failure causes a line, args are further attributes of that line.
func (s *Source) Fail(err error, args ...any) {
	l := s.log
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()

	if len(l.failing) == 0 {
		l.since, l.last, l.failures = now, time.Time{}, 0
	}
	s.failing.Store(true)
	l.failing[s] = now
	l.failures++
	l.worked = false
	if !l.last.IsZero() && now.Sub(l.last) < remindAfter {
		return
	}

	all := append(append([]any{"error", model.Cut(err.Error(), model.MaxLogLine)}, s.args...), args...)
	if !l.last.IsZero() {
		all = append(all, "failures", l.failures, "for", now.Sub(l.since).Round(time.Millisecond))
	}
	l.last = now
	//nolint:sloglint // a constant of the caller of New
	l.log.Log(context.Background(), slog.LevelWarn, l.failed, all...)
}

// OK notes that the source works. The episode ends when no other source fails.
func (s *Source) OK() { s.end(true) }

// Leave takes the source out of the episode without a success: its loop has ended. If another
// source has worked since the last failure, the log says that the episode has recovered.
func (s *Source) Leave() { s.end(false) }

func (s *Source) end(recovered bool) {
	if !s.failing.Load() {
		return
	}
	l := s.log
	l.mu.Lock()
	defer l.mu.Unlock()
	if !s.failing.CompareAndSwap(true, false) {
		return
	}

	l.worked = l.worked || recovered
	delete(l.failing, s)
	message := l.ended
	if !l.worked {
		message = l.failed + ": given up"
	}
	l.close(message, s.args)
}

// Forget removes from the episode the sources that have not failed for two minutes. Some loops do
// not try again for hours. The owner of such a loop calls Forget when something else has shown that
// the failing operation works.
func (l *Log) Forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for s, at := range l.failing {
		if time.Since(at) < 2*remindAfter {
			continue
		}
		s.failing.Store(false)
		delete(l.failing, s)
		l.close(l.ended, s.args)
	}
}

// close logs the end of the episode if no source fails.
func (l *Log) close(message string, args []any) {
	if len(l.failing) > 0 {
		return
	}
	l.log.Log(context.Background(), slog.LevelInfo, message, //nolint:sloglint // the same
		append(append([]any(nil), args...), "failures", l.failures, "lasted", time.Since(l.since).Round(time.Millisecond))...)
}
