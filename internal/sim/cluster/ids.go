package cluster

import (
	"context"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/disk"
	"github.com/perdure/perdure/internal/sim/oracle"
	"github.com/perdure/perdure/internal/sim/scenario"
	"github.com/perdure/perdure/internal/store"
)

// sweepIDs forgets old request ids, as incarnation.sweepOnce of the engine does, and schedules the
// next sweep.
func (inc *incarnation) sweepIDs() {
	s, p := inc.p.Cluster, inc.p
	if inc.ended {
		return
	}
	s.After(oracle.SweepEvery, p.Process, inc.sweepIDs)
	if !p.clock.MayDelete(p.mono()) {
		return
	}

	var mine []model.ShardID
	for i := range inc.Owner {
		if inc.Owner[i] {
			mine = append(mine, model.ShardID(i))
		}
	}

	before := p.Now().Add(-s.KeepIDs())
	s.Disk.Call(&disk.Request{
		Process: p.Process, Name: "sweep", Fate: s.Disk.Draw(scenario.FaultRepliesFails, scenario.FaultRepliesFails, false),
		Exec: func(done func()) {
			if n, err := s.Disk.Mem.Sweep(context.Background(), store.SweepRequest{Shards: mine, RequestsBefore: before, Limit: 100}); err != nil {
				s.Fail("sweep: %v", err)
			} else if n > 0 {
				s.Did(scenario.OpSwept)
				s.Ledger.Forget(mine)
			}
			done()
		},
		OK: func() {}, Bad: func(error) {},
	})
}
