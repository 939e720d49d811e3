package engine

import (
	"encoding/binary"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/perdure/perdure/internal/engine/storeclock"
	"github.com/perdure/perdure/internal/model"
)

// clock tells the store's time: the node's own time, corrected by the store's clock at each
// renewal. Package storeclock describes how it treats differences. The clock never goes back within
// an incarnation.
type clock struct {
	start  time.Time // start of the process, with a monotonic reading
	asleep *suspension
	face   atomic.Pointer[face]
	drawn  atomic.Int64 // time of the last id, in 4096ths of a millisecond

	cfg    storeclock.Config
	mu     sync.Mutex // protects keeper
	keeper *storeclock.Clock
}

// face is what readers see of the clock. Time never goes back on one face. It may go back when a
// new face starts: after a reset, and at the first reading, because the clock follows the machine
// before that. Slow readers may still use the old face.
type face struct {
	line atomic.Pointer[storeclock.Mapping]
	last atomic.Int64
}

func newClock(cfg storeclock.Config, suspended func() time.Duration) *clock {
	c := &clock{start: time.Now(), cfg: cfg}
	c.asleep = newSuspension(c.start, suspended)
	c.reset()

	return c
}

// reset forgets what is known about the store's clock. The clock adopts the next reading, even if
// time goes back.
func (c *clock) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	own := c.mono()
	c.keeper = storeclock.New(c.cfg, own, model.TimeOf(time.Now()))
	c.publish(new(face))
}

// publish makes the time that the keeper has computed visible to the readers of a face.
func (c *clock) publish(f *face) {
	line := c.keeper.Mapping()
	f.line.Store(&line)
	c.face.Store(f)
}

// mono returns the node's own time: the time since the process started, including the time for
// which the machine was suspended, as far as notice has found that out.
func (c *clock) mono() time.Duration { return time.Since(c.start) + c.asleep.lastTotal() }

// notice checks whether the machine was suspended. It returns how long the machine was suspended in
// total since the process started.
func (c *clock) notice() time.Duration { return c.asleep.look() }

// read handles a reading of the store's clock. The parameter at is the time that the store's clock
// showed. The other parameters are moments in the node's own time: the node sent its question at
// the moment sent, and had the answer at the moment got.
func (c *clock) read(sent, got time.Duration, at model.Time) storeclock.Verdict {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.keeper.Read(storeclock.Reading{Sent: sent, Got: got, Store: at})
	if v.Change == storeclock.Adopted {
		c.publish(new(face))
	} else {
		c.publish(c.face.Load())
	}

	return v
}

// isSet reports whether the store's clock has been read.
func (c *clock) isSet() bool {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.keeper.IsSet()
}

// doubt reports whether the store's clock has jumped and this clock does not follow it. mayDelete
// says whether the node may delete data because of its age.
func (c *clock) doubt() (doubted, mayDelete bool) {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.keeper.InDoubt(), c.keeper.MayDelete(c.mono())
}

// deletesFrom returns the node's own time from which the node may delete data because of its age.
// ok is false while the store's clock is in doubt.
func (c *clock) deletesFrom() (own time.Duration, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.keeper.DeletesFrom()
}

// now returns the store's time.
func (c *clock) now() model.Time {
	f := c.face.Load()
	t := int64(f.line.Load().Now(c.mono()))
	for {
		last := f.last.Load()
		if t <= last {
			return model.Time(last)
		}
		if f.last.CompareAndSwap(last, t) {
			return model.Time(t)
		}
	}
}

// newRun draws the id of a run: a UUIDv7 at the store's time, greater than all ids that this clock
// has drawn before. The sweep finds old runs by their ids (store.OldestID). So ids must follow the
// clock that decides about the age of runs, and not the clock of the machine, which may be wrong by
// years.
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
