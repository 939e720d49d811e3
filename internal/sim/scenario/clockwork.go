package scenario

import (
	"time"

	"github.com/perdure/perdure/internal/engine/storeclock"
)

// Nodes estimate the store's time with storeclock, the production code. In some simulations the
// store's clock jumps. It jumps forward by up to a month and back again after a while, or it jumps
// forward or back permanently. Some jumps are so small that nodes cannot distinguish them from a
// slow answer. Machines are also suspended: a process does nothing for a while, and its own clock
// stops too. The rules are: a jump that does not last fires no timer early and deletes nothing
// early. No timer stops. No node is fenced while its lease is valid. No node answers from memory
// about data that another node owns.

// jumpPlan is the plan of a simulation for its clocks.
type jumpPlan struct {
	Clock    storeclock.Config
	Jumps    int
	Suspends int
}

func (s *Scenario) drawClock() {
	s.Plan.Clock = storeclock.Config{Jump: time.Second, Persist: 1500 * time.Millisecond, Hold: 2 * time.Second}
	s.Plan.Jumps, s.Plan.Suspends = s.Pick(3), s.Pick(3)
}
