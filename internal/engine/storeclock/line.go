package storeclock

import (
	"time"

	"github.com/perdure/perdure/internal/model"
)

// These constants say how fast Mapping corrects time. Mapping raises its offset slowly, because
// that shortens sleeps. It lowers the offset faster, because that only makes sleeps longer.
const (
	slewForward  = 200
	slewBackward = 10
)

// Mapping maps the node's own time to the store's time. It adds an offset, which is constant or
// moves towards another offset at a bounded rate. A Mapping never changes, so many goroutines can
// read it.
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
