package workload

import (
	"slices"

	"github.com/perdure/perdure/internal/sim/cluster"
	"github.com/perdure/perdure/internal/sim/kernel"
	"github.com/perdure/perdure/internal/sim/scenario"
)

// deploy chooses a version. It takes the workers of all other versions out of all processes, and
// adds a worker of the chosen version to each process. After a while it adds a worker of the other
// pinned version to each process.
func (s *Workload) deploy() {
	old, next := scenario.Versions[0], scenario.Versions[1]
	if s.Chance(0.5) {
		old, next = next, old
	}
	s.Hurt(scenario.FaultDeploy)

	each := func(do func(p *cluster.Proc)) {
		for _, p := range s.Procs {
			if p != nil {
				s.At(s.Now, p.Process, func() { do(p) })
			}
		}
	}

	each(func(p *cluster.Proc) {
		for _, w := range slices.Clone(p.Workers) {
			if w.Offer.Version != next {
				w.Leave()
			}
		}
		p.Join(false, next)
	})

	s.After(s.Between(5, 150)*kernel.Millisecond, nil, s.lookForStranded)
	s.After(s.Between(20, 800)*kernel.Millisecond, nil, func() { each(func(p *cluster.Proc) { p.Join(false, old) }) })
}

// lookForStranded asks the owners of pinned runs why the runs wait.
func (s *Workload) lookForStranded() {
	for _, r := range s.Ledger.Order {
		if !r.Open() || r.Pin == "" {
			continue
		}
		for _, p := range s.Procs {
			if p != nil && p.Inc != nil && p.Inc.Owner[r.Address.Shard] {
				reasons, _ := p.Inc.Shells[int(r.Address.Shard)%len(p.Inc.Shells)].Lane.Explain(r.Address.Name)
				for _, why := range reasons {
					s.RecordExplanation(r.Address, why)
				}
			}
		}
	}
}
