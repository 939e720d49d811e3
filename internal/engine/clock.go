package engine

import (
	"encoding/binary"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/perdure/perdure/internal/model"
)

// clock tells store time: the node's monotonic clock, anchored to the store's clock at every renewal. It is never ahead of
// the store and never goes back.
type clock struct {
	start  time.Time    // of the process, with a monotonic reading
	offset atomic.Int64 // store time in µs at mono 0
	last   atomic.Int64
	drawn  atomic.Int64 // time of the last id, in 4096ths of a millisecond
}

func newClock() *clock {
	c := &clock{start: time.Now()}
	c.offset.Store(c.start.UnixMicro())
	return c
}

// mono is the time since the process started.
func (c *clock) mono() time.Duration { return time.Since(c.start) }

// anchor sets store time as it was at most when the answer that brought it arrived. It returns by how much that is later than it would have been; less than nothing when it is earlier.
func (c *clock) anchor(store model.Time) (forward time.Duration) {
	offset := int64(store) - c.mono().Microseconds()
	return time.Duration(offset-c.offset.Swap(offset)) * time.Microsecond
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

// newRun draws the id of a run: a UUIDv7 at store time, later than all before. Old runs are found by it (store.OldestID), so it goes by the clock
// that tells how old they are, and not by that of the machine, which may be wrong by years.
func (c *clock) newRun() model.RunID {
	now := int64(c.now())
	tick := now/1000<<12 | now%1000<<12/1000
	for {
		last := c.drawn.Load()
		tick = max(tick, last+1)
		if c.drawn.CompareAndSwap(last, tick) {
			break
		}
	}
	id := model.RunID(uuid.New())
	binary.BigEndian.PutUint64(id[:8], uint64(tick)>>12<<16|0x7000|uint64(tick)&0xfff)
	return id
}
