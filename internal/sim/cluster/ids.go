package cluster

import (
	"context"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/disk"
	"github.com/perdure/perdure/internal/sim/oracle"
	"github.com/perdure/perdure/internal/sim/scenario"
	"github.com/perdure/perdure/internal/store"
)

// In some seeds users are clients of servers. Such clients draw their request ids at random, as
// internal/remote does. Each id names an era, which is the time during which one lane owns the
// address. A lane does not look for a stored answer to an id that is new in its era. The rule is
// the same as for all request ids: a request takes effect once, no matter how often and through
// which nodes the user sends it. In some of these seeds users also send receipts, and the server
// removes an answer after its receipt. In the other seeds the server forgets answers only by their
// age.

// Era returns the era in which clients of the process draw request ids for an address, as
// Engine.eraOf does; empty if no lane of the process owns the address.
func (p *Proc) Era(a model.Address) string {
	shard := p.Cluster.ShardOf(a)
	if p.Inc == nil || !p.Inc.Owner[shard] {
		return ""
	}
	sh := p.Inc.Shells[int(shard)%len(p.Inc.Shells)]
	if sh.dead {
		return ""
	}
	return sh.Lane.Era()
}

// noteEra counts requests under ids of the current era.
func (p *Proc) noteEra(m *model.Message) {
	if era := model.EraOf(m.RequestID); era != "" && era == p.Era(m.To) {
		p.Cluster.Did(scenario.OpDrawn)
	}
}

// fillReceipt remembers, for a request whose id a client has drawn, how to remove the answer.
// Engine.fillReceipt does the same. sole says that there is an answer, and that no other copy of
// the request can arrive.
func (p *Proc) fillReceipt(m *model.Message, sole bool) {
	s := p.Cluster
	if s.Has(scenario.Receipts) && sole && model.IsDrawnID(m.RequestID) {
		p.forgets[m.RequestID] = store.RequestKey{Shard: s.ShardOf(m.To), Address: m.To, ID: m.RequestID}
	}
}

// TakeReceipt handles a receipt of a client. The receipt says that the client has the answer to a
// request, and that it sent the request only once.
func (p *Proc) TakeReceipt(id string) {
	key, ok := p.forgets[id]
	if !ok {
		return
	}
	delete(p.forgets, id)
	p.Cluster.Did(scenario.OpReceipt)
	p.Cluster.Ledger.RecordReceipt(id)
	p.clerk.acked = append(p.clerk.acked, key)
	p.clerk.tidy()
}

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
