package storeclock

import (
	"time"

	"github.com/perdure/perdure/internal/model"
)

// Config configures a clock. A zero field selects its default.
type Config struct {
	// if the store's clock differs from Clock by more than Jump, the store's clock is in doubt;
	// default 10 s
	Jump time.Duration
	// how long a jump must last before Clock accepts it; default 10 min. If two readings are more
	// than half of this time apart, Clock starts to measure again how long the jump lasts.
	Persist time.Duration
	// how long nothing may be deleted by age after Clock has accepted a jump; default 24 h
	Hold time.Duration
}

func (c *Config) withDefaults() {
	if c.Jump == 0 {
		c.Jump = 10 * time.Second
	}
	if c.Persist == 0 {
		c.Persist = 10 * time.Minute
	}
	if c.Hold == 0 {
		c.Hold = 24 * time.Hour
	}
}

// drift bounds how far two clocks may drift apart between readings: by 1/drift of the time in
// between.
const drift = 1000

// Reading is a reading of the store's clock. The node sent the request at Sent and got the answer
// at Got, both in the node's own time. The store's clock showed Store at some moment in between.
type Reading struct {
	Sent, Got time.Duration
	Store     model.Time
}

// Change is what a reading did to the clock.
type Change uint8

// Changes.
const (
	Agrees   Change = iota // nothing, or a small correction; also while a doubt lasts
	Adopted                // this was the first reading, and Clock follows it from now on
	Doubted                // the store's clock has jumped: the node follows its own clock
	Cleared                // the store's clock is back where it should be
	Advanced               // a forward jump has lasted and was accepted: time has stepped forward
	// a backward jump has lasted: the node must start over with a new Clock
	WentBack
)

// Verdict is the result of a reading.
type Verdict struct {
	Change Change
	// By is how far the store's clock is ahead of the node's clock: the smallest difference that
	// the reading allows. It is negative if the store's clock is behind. At the first reading, By
	// compares with the machine's clock.
	By time.Duration
}

// Clock is the store's time as a node knows it. It is not safe for concurrent use. Mapping returns
// a copy of the part that goroutines can share.
type Clock struct {
	cfg    Config
	line   Mapping
	set    bool          // there has been a reading
	agreed time.Duration // own time of the last reading that agreed
	doubt  *doubt        // nil while the store's clock is trusted

	deletes time.Duration // own time from which data may be deleted by age
}

// doubt describes where the store's clock has jumped to.
type doubt struct {
	low, high int64         // bounds of the offset
	since     time.Duration // own time of the first reading of this jump
	last      time.Duration // own time of the last reading of this jump
}

// New returns a clock that follows the machine's wall clock until the first reading, which it
// adopts.
func New(cfg Config, own time.Duration, wall model.Time) *Clock {
	cfg.withDefaults()
	offset := int64(wall) - own.Microseconds()

	return &Clock{cfg: cfg, line: Mapping{at: own, from: offset, to: offset}}
}

// Mapping returns the current mapping from the node's own time to the store's time.
func (c *Clock) Mapping() Mapping { return c.line }

// Now returns the store's time at a moment of the node's own time.
func (c *Clock) Now(own time.Duration) model.Time { return c.line.Now(own) }

// IsSet reports whether there has been a reading.
func (c *Clock) IsSet() bool { return c.set }

// InDoubt reports whether the store's clock has jumped and the jump is not accepted yet.
func (c *Clock) InDoubt() bool { return c.doubt != nil }

// MayDelete reports whether the node may delete data because of the age of the data (T5).
func (c *Clock) MayDelete(own time.Duration) bool {
	return c.set && c.doubt == nil && own >= c.deletes
}

// DeletesFrom returns the own time from which the node may delete data because of the age of the
// data. Another reading may change that time. ok is false while the time is unknown.
func (c *Clock) DeletesFrom() (own time.Duration, ok bool) { return c.deletes, c.set && c.doubt == nil }

// Read compares a reading of the store's clock with the time of c, and corrects c if necessary.
func (c *Clock) Read(r Reading) Verdict {
	// The store's clock was read between the two moments, so the offset lies between these bounds.
	low, high := int64(r.Store)-r.Got.Microseconds(), int64(r.Store)-r.Sent.Microseconds()
	ours := c.line.offset(r.Got)
	ahead := time.Duration(max(low-ours, 0)+min(high-ours, 0)) * time.Microsecond
	if !c.set {
		// Adopt the upper bound. If the adopted time were too early, a later correction would cut
		// the first sleeps short.
		c.set, c.agreed, c.deletes = true, r.Got, r.Got+c.cfg.Persist
		c.line = Mapping{at: r.Got, from: high, to: high}

		return Verdict{Change: Adopted, By: ahead}
	}

	if ahead.Abs() > c.cfg.Jump+(r.Got-c.agreed)/drift {
		return c.suspect(r.Got, low, high, ahead)
	}

	// Make the smallest correction that the reading allows, so that a slow answer changes nothing.
	c.line = Mapping{at: r.Got, from: ours, to: min(max(c.line.to, low), high)}
	c.agreed = r.Got
	if c.doubt == nil {
		return Verdict{By: ahead}
	}
	c.doubt = nil
	c.deletes = max(c.deletes, r.Got+c.cfg.Persist)

	return Verdict{Change: Cleared, By: ahead}
}

// suspect decides about a reading that is too far from the time of c.
func (c *Clock) suspect(got time.Duration, low, high int64, ahead time.Duration) Verdict {
	v := Verdict{By: ahead}
	d := c.doubt
	if d == nil {
		v.Change = Doubted
	}
	// If two readings are far apart, the store's clock may have been right for a while in between
	// and then have jumped again. So measure from this reading on how long the jump lasts.
	if d == nil || got-d.last > c.cfg.Persist/2 || !d.isConfirmedBy(got, low, high, c.cfg.Jump) {
		// Freeze the offset, because a correction in progress belongs to the time before the jump.
		ours := c.line.offset(got)
		c.line = Mapping{at: got, from: ours, to: ours}
		c.doubt = &doubt{low: low, high: high, since: got, last: got}

		return v
	}

	// This is the same jump, and it may have lasted long enough.
	d.low, d.high, d.last = low, high, got
	if got-d.since < c.cfg.Persist {
		return v
	}
	if ahead < 0 {
		v.Change = WentBack
		return v
	}
	v.Change = Advanced
	c.line = Mapping{at: got, from: low, to: low}
	c.agreed, c.doubt = got, nil
	c.deletes = got + c.cfg.Hold

	return v
}

// isConfirmedBy reports whether a reading shows the jump that was seen before.
func (d *doubt) isConfirmedBy(got time.Duration, low, high int64, jump time.Duration) bool {
	slack := (jump + (got-d.last)/drift).Microseconds()

	return low <= d.high+slack && high >= d.low-slack
}
