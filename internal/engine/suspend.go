package engine

import (
	"sync/atomic"
	"time"

	"github.com/perdure/perdure/internal/cluster/host"
)

// suspension measures how long the machine has been suspended. On most systems Go's monotonic clock
// stops during a suspension, so code that measures durations with that clock must add the suspended
// time.
type suspension struct {
	source func() time.Duration // the total suspension of the machine, which never decreases
	cheap  bool                 // the source costs nothing, so look asks it every time
	start  time.Time
	before time.Duration // the source's value at the start
	// gap is how far the wall clock was ahead of the monotonic clock at the last look, in ns.
	gap   atomic.Int64
	total atomic.Int64 // ns since the start, at the last look
}

// newSuspension measures from now on. A nil source asks the operating system.
func newSuspension(start time.Time, source func() time.Duration) *suspension {
	s := &suspension{source: source, cheap: source != nil, start: start}
	if source == nil {
		s.source = host.Suspended
	}
	// The source returns too little if the process is interrupted between its reads of the two
	// clocks.
	for range 5 {
		s.before = max(s.before, s.source())
	}

	return s
}

// suspicious is how far the wall clock must move against the monotonic clock before look asks the
// operating system. The node also ignores shorter suspensions.
const suspicious = 20 * time.Millisecond

// look finds out whether the machine has been suspended. To ask the operating system takes two
// system calls. So look asks only if the wall clock has moved against the monotonic clock, as it
// does during a suspension.
func (s *suspension) look() time.Duration {
	if !s.cheap {
		now := time.Now()
		gap := now.Round(0).Sub(s.start.Round(0)) - now.Sub(s.start)
		if (gap - time.Duration(s.gap.Load())).Abs() < suspicious {
			return s.lastTotal()
		}
		// Store the gap after the answer. Otherwise another caller could skip the question before
		// there is an answer.
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

// lastTotal returns what the last look has found.
func (s *suspension) lastTotal() time.Duration { return time.Duration(s.total.Load()) }
