package workload

import (
	"github.com/perdure/perdure/internal/sim/scenario"
)

// In some seeds nodes have different weights, and operators drain nodes and withdraw these orders.
// The orders are durable, so some of them last after the faults have ended. Even if all nodes are
// drained, everything has to end, because the nodes keep their shards in that case.

// drain lets an operator drain a node, or withdraw the order.
func (s *Workload) drain() {
	p := s.Procs[s.Pick(3)]
	if p == nil || p.Inc == nil || s.Healed {
		return
	}
	drained := s.Chance(0.6)
	if s.SetDrained(p, drained) {
		if drained {
			s.Hurt(scenario.FaultDrain)
		} else {
			s.Did(scenario.OpUndrained)
		}
	}
}
