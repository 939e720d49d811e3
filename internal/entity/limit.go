package entity

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/model"
)

// lateBy is how long a call may still take to return after it has reached its limit. At the limit,
// the context of the call ends, and most code notices that.
const lateBy = time.Second

// The reasons for which the context of a call ends.
var (
	errLimit = errors.New("the call has reached its time limit")
	// ErrInterrupted is the cause if an operator has interrupted the call.
	ErrInterrupted = errors.New("an operator interrupted the call")
)

// limits watches the time of the calls of a hand-over, which run one after the other. It has one
// timer and one context for all of them. After a call has exceeded its limit or was interrupted,
// the hand-over starts no further call. If the code of the call does not return, abandon takes over
// the hand-over, and the goroutine of the code must not touch the hand-over again.
type limits struct {
	// abandon is called, on its own goroutine, if the code of a call does not return.
	abandon func(c *Call, limit time.Duration)

	mu      sync.Mutex
	current *Call // the call whose code runs
	number  int   // the index of the current call in the hand-over
	limit   time.Duration
	due     time.Time // when look must check the current call; zero for never
	late    bool      // the context of the current call has ended
	why     error     // why its context has ended
	left    bool      // the call was abandoned, and abandon owns the hand-over
	timer   *time.Timer
	ctx     context.Context //nolint:containedctx // context of the calls
	cancel  context.CancelCauseFunc
}

// begin notes that the code of a call starts, and returns the context of the call. Without a limit,
// only an interruption and the end of parent end that context.
func (l *limits) begin(parent context.Context, c *Call, limit time.Duration) context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.current = c
	l.number++
	if l.ctx == nil {
		l.ctx, l.cancel = context.WithCancelCause(parent)
	}
	l.limit, l.due = limit, time.Time{}
	if limit <= 0 {
		return l.ctx // look may still run for the last call, so due stays zero
	}

	l.due = time.Now().Add(limit)
	l.lookIn(limit)
	return l.ctx
}

// lookIn sets the timer. The caller holds the lock.
func (l *limits) lookIn(d time.Duration) {
	if l.timer == nil {
		l.timer = time.AfterFunc(d, l.look)
	} else {
		l.timer.Reset(d)
	}
}

// interrupt ends the context of the running call if call is its index in the hand-over or AnyCall.
// It reports whether it ended the context.
func (l *limits) interrupt(call int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current == nil || l.late || call != model.AnyCall && call != l.number-1 {
		return false
	}
	l.cutOff(ErrInterrupted)
	return true
}

// cutOff ends the context of the current call, and gives its code a moment to return. The caller
// holds the lock.
func (l *limits) cutOff(why error) {
	l.late, l.why, l.due = true, why, time.Now().Add(lateBy)
	l.cancel(why)
	l.lookIn(lateBy)
}

// cause returns why the context of the last call has ended; nil if it has not ended.
func (l *limits) cause() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.why
}

// end notes that the code has returned. ok is false if the call was abandoned.
func (l *limits) end() (c *Call, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c, l.current = l.current, nil
	if l.timer != nil {
		l.timer.Stop()
	}
	return c, !l.left
}

// hasExceeded reports whether a call has reached its limit, or was interrupted.
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

// look runs when the timer fires. It first ends the context of the call. If the code still does not
// return, the next look abandons the call.
func (l *limits) look() {
	l.mu.Lock()
	c, limit := l.current, l.limit
	// The call that the timer was set for has returned. A later call with a limit has set the timer
	// again, and a call without a limit needs no timer.
	if c == nil || l.due.IsZero() || time.Now().Before(l.due) {
		l.mu.Unlock()
		return
	}

	if !l.late {
		l.cutOff(errLimit)
		l.mu.Unlock()
		return
	}

	l.left = true
	l.mu.Unlock()
	l.abandon(c, limit)
}
