package storeclock

import (
	"time"

	"github.com/perdure/perdure/internal/model"
)

// How fast time is corrected: forward slowly, because that shortens sleeps; backward faster,
// because that only makes them longer.
const (
	slewForward  = 200
	slewBackward = 10
)

// Mapping maps the node's own time to the store's time: a constant offset, or one that moves to
// another at a bounded rate. It is a value, so that many goroutines can read one that never
// changes.
type Mapping struct {
	at       time.Duration // own time from which the offset moves
	from, to int64         // offsets of the store's time from own time, in µs
}

// Now returns the store's time at a moment of the node's own time.
func (l *Mapping) Now(own time.Duration) model.Time {
	return model.Time(own.Microseconds() + l.offset(own))
}

// offset returns the current offset.
func (l *Mapping) offset(own time.Duration) int64 {
	passed := max(own.Microseconds()-l.at.Microseconds(), 0)

	return l.from + min(max(l.to-l.from, -passed/slewBackward), passed/slewForward)
}
