package storeclock

import (
	"time"

	"github.com/perdure/perdure/internal/model"
)

// How fast time is corrected: forward slowly, because it shortens sleeps; backward faster, because
// that only makes them longer.
const (
	slewForward  = 200
	slewBackward = 10
)

// Line maps the node's own time to store time: a constant offset, or one that moves to another at a
// bounded rate. It is a value, so that many goroutines can read one that is never changed.
type Line struct {
	at       time.Duration // own time from which the offset moves
	from, to int64         // offsets of store time from own time, in µs
}

// Now is store time at a moment of the node's own time.
func (l *Line) Now(own time.Duration) model.Time {
	return model.Time(own.Microseconds() + l.offset(own))
}

// offset is where the offset has moved to.
func (l *Line) offset(own time.Duration) int64 {
	passed := max(own.Microseconds()-l.at.Microseconds(), 0)

	return l.from + min(max(l.to-l.from, -passed/slewBackward), passed/slewForward)
}
