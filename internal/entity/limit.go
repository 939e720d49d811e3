package entity

import (
	"context"
	"errors"
	"sync"
	"time"
)

// lateBy is how long a call that has reached its limit may still take to return. Its context has
// ended, and most code notices that.
const lateBy = time.Second

// errLimit is why the context of a call has ended.
var errLimit = errors.New("the call has reached its time limit")

// limits watches the time of the calls of a hand-over, which are made one after the other. It has
// one timer and one context for all of them. After a call has exceeded its limit, the hand-over
// makes no further call. If its code does not return, the watcher owns the hand-over, and the
// goroutine of the code must not touch it again.
type limits struct {
	// abandon is called, on its own goroutine, when the code of a call does not return.
	abandon func(c *Call, limit time.Duration)

	mu      sync.Mutex
	current *Call // the call whose code runs
	limit   time.Duration
	due     time.Time // when to look at the current call
	late    bool      // its context has ended
	left    bool      // it was abandoned: abandon owns the hand-over
	timer   *time.Timer
	ctx     context.Context //nolint:containedctx // context of the calls
	cancel  context.CancelCauseFunc
}

// begin notes that the code of a call begins, and returns its context.
func (l *limits) begin(parent context.Context, c *Call, limit time.Duration) context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.current = c
	if limit <= 0 {
		return parent
	}
	l.limit, l.due = limit, time.Now().Add(limit)
	if l.timer == nil {
		l.ctx, l.cancel = context.WithCancelCause(parent)
		l.timer = time.AfterFunc(limit, l.look)
	} else {
		l.timer.Reset(limit)
	}
	return l.ctx
}

// end notes that the code has returned. It reports false when the call was abandoned.
func (l *limits) end() (c *Call, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c, l.current = l.current, nil
	if l.timer != nil {
		l.timer.Stop()
	}
	return c, !l.left
}

// hasExceeded reports whether a call has reached its limit.
func (l *limits) hasExceeded() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.late
}

// runState reports whether the code of a call runs, and whether the call was abandoned.
func (l *limits) runState() (running, left bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.current != nil, l.left
}

// release frees the resources of the context.
func (l *limits) release() {
	if l.cancel != nil {
		l.cancel(nil)
	}
}

// look runs when the timer fires. It ends the context of the call. If the code still does not
// return, the next look abandons the call.
func (l *limits) look() {
	l.mu.Lock()
	c, limit := l.current, l.limit
	// The call has returned. If another one has begun, it has set the timer.
	if c == nil || time.Now().Before(l.due) {
		l.mu.Unlock()
		return
	}

	if !l.late {
		l.late, l.due = true, time.Now().Add(lateBy)
		l.cancel(errLimit)
		l.timer.Reset(lateBy)
		l.mu.Unlock()
		return
	}

	l.left = true
	l.mu.Unlock()
	l.abandon(c, limit)
}
