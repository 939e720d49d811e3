package scenario

import (
	"github.com/perdure/perdure/internal/sim/kernel"
)

// narrow is the plan of a simulation in which large commits fail.
type narrow struct {
	Most    int   // the largest size that passes, in bytes
	Refuses bool  // the store refuses larger commits; otherwise they time out
	From    int64 // when large commits start to fail
	Until   int64 // when they succeed again; 0 for never
}

func (s *Scenario) drawSize() {
	n := &s.Plan.Narrow
	n.Most = kernel.OneOf(s, 300, 800, 2000)
	n.Refuses = s.Chance(0.3)
	n.From = s.Between(0, s.Plan.FaultsUntil/2)
	if s.Chance(0.4) {
		n.Until = s.Between(n.From, 2*s.Plan.FaultsUntil)
	}
}
