package scenario

import (
	"slices"
	"time"

	"github.com/perdure/perdure/internal/sim/kernel"
)

// drawLeases decides how long the leases of each process are. At least one process has the shortest
// leases. The longest are 3 s, which their nodes renew every 0.6 s. A node that reads the store's
// clock more rarely does not follow a jump that lasts, see storeclock.
func (s *Scenario) drawLeases() {
	p := &s.Plan
	for slot := range p.Ttls {
		p.Ttls[slot] = min(p.Ttl*kernel.OneOf[time.Duration](s, 1, 2, 4), 3*time.Second)
	}
	p.Ttls[s.Pick(len(p.Ttls))] = p.Ttl
}

// LongestTtl returns the length of the longest leases.
func (s *Scenario) LongestTtl() time.Duration { return slices.Max(s.Plan.Ttls[:]) }
