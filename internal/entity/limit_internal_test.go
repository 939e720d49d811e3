package entity

import (
	"testing"
	"testing/synctest"
	"time"
)

// The timer of a call may fire in the moment in which the call returns. It must not end the context
// of the next call if that call has no limit, or a limit that it has not reached.
func TestTimerOfTheLastCall(t *testing.T) {
	for _, next := range []time.Duration{0, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			l := limits{abandon: func(*Call, time.Duration) { t.Error("the call was abandoned") }}
			defer l.release()
			l.begin(t.Context(), &Call{}, time.Second)
			time.Sleep(time.Second - time.Nanosecond)
			l.end()
			time.Sleep(time.Nanosecond)
			ctx := l.begin(t.Context(), &Call{}, next)
			l.look() // the timer fired before end could stop it
			if ctx.Err() != nil || l.hasExceeded() {
				t.Errorf("limit %s: the context of the next call has ended: %v", next, ctx.Err())
			}
			if !l.interrupt(1) || ctx.Err() == nil {
				t.Error("an operator could not interrupt the call")
			}
			l.end()
		})
	}
}
