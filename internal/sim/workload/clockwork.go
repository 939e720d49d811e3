package workload

import (
	"slices"
	"time"

	"github.com/perdure/perdure/internal/sim/cluster"
	"github.com/perdure/perdure/internal/sim/kernel"
	"github.com/perdure/perdure/internal/sim/scenario"
)

// jump lets the store's clock jump.
func (s *Workload) jump() {
	if s.Now < s.Jumping || s.Now > s.Plan.FaultsUntil*9/10 {
		return
	}

	// a process that reads the clock for the first time would take the shifted time for the real
	// time
	if slices.ContainsFunc(s.Procs[:], func(p *cluster.Proc) bool { return p != nil && !p.Timed }) {
		s.After(20*kernel.Millisecond, nil, s.jump)
		return
	}

	by, lasts := int64(0), int64(0)
	switch s.Pick(5) {
	case 0, 1: // a long jump that lasts a short time: no node may follow it
		by, lasts = kernel.OneOf(s, s.Between(2, 60)*kernel.Second, 24*3600*kernel.Second, 31*24*3600*kernel.Second), s.Between(20, s.Plan.Clock.Persist.Milliseconds()/2)*kernel.Millisecond
	case 2:
		by, lasts = -s.Between(2, 60)*kernel.Second, s.Between(20, s.Plan.Clock.Persist.Milliseconds()/2)*kernel.Millisecond
	case 3: // permanent
		by = kernel.OneOf(s, s.Between(2, 20), 3600) * kernel.Second
	case 4:
		by = -s.Between(2, 10) * kernel.Second
	}

	if s.Chance(0.2) { // a jump that nodes follow slowly
		by, s.Slewed = s.Between(-800, 800)*kernel.Millisecond, true
	}
	s.Shift, s.Jumped = s.Shift+by, append(s.Jumped, s.Now)
	if s.Shift != 0 && kernel.Microseconds(s.Shift).Abs() <= s.Plan.Clock.Jump {
		s.Slewed = true // two jumps have nearly canceled each other
	}
	if s.Tracing {
		s.Logf("store    its clock JUMPS by %s", time.Duration(by*1000))
	}
	s.Hurt(scenario.FaultJump)

	if lasts == 0 {
		s.Lasting, s.Stepped = max(s.Lasting, s.Shift), s.Now
		return
	}

	if s.Stepped > 0 && s.Now < s.Stepped+2*s.Plan.Clock.Persist.Microseconds() && kernel.Microseconds(by).Abs() < s.Plan.Clock.Jump {
		// A node may still be following the last permanent jump. It cannot distinguish this small
		// jump from that one, so it may follow this jump too, and then corrects its clock slowly.
		s.Lasting = max(s.Lasting, s.Shift)
	}
	s.Jumping = min(s.Now+lasts, s.Plan.FaultsUntil-1)

	s.At(s.Jumping, nil, func() {
		s.Shift, s.Jumped = s.Shift-by, append(s.Jumped, s.Now)
		if s.Tracing {
			s.Logf("store    its clock jumps BACK by %s", time.Duration(by*1000))
		}
		s.Hurt(scenario.FaultJumpBack)
	})
}
