package scenario

import (
	"time"

	"github.com/perdure/perdure/internal/sim/kernel"
)

// forever is the retention of rows that never leave.
const forever = time.Duration(1<<63 - 1)

// drawRetention decides the retention times.
func (s *Scenario) drawRetention() {
	p := &s.Plan
	if !s.Chance(0.6) {
		return
	}
	p.Lane.Retention = kernel.OneOf(s, 100*time.Millisecond, 400*time.Millisecond, 1500*time.Millisecond)
	p.Lane.RetainEvery = kernel.OneOf(s, 50*time.Millisecond, 200*time.Millisecond, 500*time.Millisecond)
	p.KeepDead = kernel.OneOf(s, 0, 150*time.Millisecond, 600*time.Millisecond)
}

// drawRetain draws the retention that the runs of a program state themselves.
func (s *Scenario) drawRetain() time.Duration {
	if s.Plan.Lane.Retention == 0 {
		return 0
	}
	return kernel.OneOf(s, 0, 0, 0, kernel.Microseconds(s.Between(10, 900)*kernel.Millisecond), forever)
}
