package engine

import (
	"sync/atomic"
	"time"

	"github.com/perdure/perdure/internal/cluster/host"
)

// suspension measures how long the machine has been suspended. Go's monotonic clock stops meanwhile
// on most systems, so everything that is measured with it has to add this.
type suspension struct {
	source func() time.Duration // total of the machine; it never decreases
	cheap  bool                 // the source costs nothing: it is asked every time
	start  time.Time
	before time.Duration // what the source said at the start
	// by how much the wall clock was ahead of the monotonic one at the last look, in ns
	gap   atomic.Int64
	total atomic.Int64 // ns since the start, as of the last look
}

// newSuspension measures from now on; source is the system when it is nil.
func newSuspension(start time.Time, source func() time.Duration) *suspension {
	s := &suspension{source: source, cheap: source != nil, start: start}
	if source == nil {
		s.source = host.Suspended
	}
	// it says too little when the process is interrupted while it reads the two clocks
	for range 5 {
		s.before = max(s.before, s.source())
	}

	return s
}

// suspicious is by how much the wall clock must gain on the monotonic one before the system is
// asked.
const suspicious = 20 * time.Millisecond

// look finds out whether the machine has been suspended. To ask the system takes two system calls,
// so that is only done when the wall clock has moved against the monotonic one, as it does in a
// suspend.
func (s *suspension) look() time.Duration {
	if !s.cheap {
		now := time.Now()
		gap := now.Round(0).Sub(s.start.Round(0)) - now.Sub(s.start)
		if (gap - time.Duration(s.gap.Load())).Abs() < suspicious {
			return s.passed()
		}
		// afterwards, so that nobody else skips the question before it is answered
		defer s.gap.Store(int64(gap))
	}

	for asleep := int64(s.source() - s.before); ; {
		last := s.total.Load()
		if asleep <= last {
			return time.Duration(last)
		}
		if s.total.CompareAndSwap(last, asleep) {
			return time.Duration(asleep)
		}
	}
}

// passed is what the last look has found.
func (s *suspension) passed() time.Duration { return time.Duration(s.total.Load()) }
