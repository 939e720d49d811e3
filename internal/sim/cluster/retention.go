package cluster

import (
	"context"
	"slices"

	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/disk"
	"github.com/perdure/perdure/internal/sim/kernel"
	"github.com/perdure/perdure/internal/sim/scenario"
	"github.com/perdure/perdure/internal/store"
)

// AwaitOwners waits until live nodes own all shards, in simulations in which owners remove old
// rows. A node may have died at the end of the faults. In that case its shards wait until its lease
// has ended.
func (s *Cluster) AwaitOwners() {
	if s.Plan.Lane.Retention == 0 {
		return
	}
	ownerless := func() int {
		return slices.IndexFunc(s.Ledger.Owner, func(id model.NodeID) bool { return !s.living(id) })
	}
	s.RunUntil(s.Now+4*s.LongestTtl().Microseconds()+kernel.Second+8*s.Plan.Slow, func() bool { return ownerless() < 0 || s.Staying() == "" })
	if shard := ownerless(); shard >= 0 && s.Staying() != "" {
		s.Fail("R2: everything has ended, and no live node owns shard %d", shard)
	}
}

// sweepDead purges dead tasks whose retention is over, as incarnation.sweepDead does, and schedules
// the next sweep.
func (inc *incarnation) sweepDead() {
	s, p := inc.p.Cluster, inc.p
	if inc.ended {
		return
	}
	s.After(s.Plan.Lane.RetainEvery.Microseconds(), p.Process, inc.sweepDead)
	if !p.clock.MayDelete(p.mono()) {
		return
	}

	var mine []model.ShardID
	for i := range inc.Owner {
		if inc.Owner[i] {
			mine = append(mine, model.ShardID(i))
		}
	}

	const page = 3
	now := p.Now()
	var rows []store.DeadRow
	var going []store.DeadRow

	s.Disk.Call(&disk.Request{
		Process: p.Process, Name: "load dead", Fate: s.Disk.Draw(scenario.FaultRepliesFails, scenario.FaultRepliesFails, false),
		Exec: func(done func()) {
			rows, _ = s.Disk.Mem.LoadDeadBefore(context.Background(), mine, now.Add(-s.Plan.KeepDead), inc.swept, page)
			for _, row := range rows {
				if s.IsDeadDamaged(row.DeadKey) {
					continue // an unreadable dead task is kept for operators
				}
				q := row.Body.Requeued
				run, _ := s.Disk.Mem.LoadExecution(context.Background(), s.ShardOf(q.Address), q.Address, q.Run)
				if engine.Purgeable(&row, run, now) {
					going = append(going, row)
				}
			}
			done()
		},
		OK: func() {
			for _, row := range going {
				o := &model.DeadTaskOrder{Do: model.DeadTaskPurge, Ref: model.TaskRef{Address: row.Body.Address, Run: row.Run, ID: row.Task}, Count: row.Requeued, Run: row.Body.Requeued.Run}
				p.Deliver(&model.Message{Kind: model.MessageRequeue, To: o.Ref.Address, DeadTask: o}, false, func(*lane.Answer) {})
			}
			inc.swept = store.DeadPlace{}
			if len(rows) == page {
				inc.swept = rows[page-1].Place()
			}
		},
		Bad: func(error) {},
	})
}
