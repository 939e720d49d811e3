package engine

import (
	"sync/atomic"
	"time"

	"github.com/perdure/perdure/internal/model"
)

// clock tells store time: the node's monotonic clock, anchored to the store's clock at every renewal. It is never ahead of
// the store and never goes back.
type clock struct {
	start  time.Time    // of the process, with a monotonic reading
	offset atomic.Int64 // store time in µs at mono 0
	last   atomic.Int64
}

func newClock() *clock {
	c := &clock{start: time.Now()}
	c.offset.Store(c.start.UnixMicro())
	return c
}

// mono is the time since the process started.
func (c *clock) mono() time.Duration { return time.Since(c.start) }

// anchor sets store time as it was at most when the answer that brought it arrived.
func (c *clock) anchor(store model.Time) {
	c.offset.Store(int64(store) - c.mono().Microseconds())
}

// now is store time. A step back of the store's clock makes it stand still until the store has caught up.
func (c *clock) now() model.Time {
	t := c.offset.Load() + c.mono().Microseconds()
	for {
		last := c.last.Load()
		if t <= last {
			return model.Time(last)
		}
		if c.last.CompareAndSwap(last, t) {
			return model.Time(t)
		}
	}
}
