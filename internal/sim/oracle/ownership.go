package oracle

import (
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/scenario"
	"github.com/perdure/perdure/internal/store"
)

// Fenced records that a node is no longer a member. It returns false if that was known before.
// After an orderly end the node's shards are free.
func (l *ledger) Fenced(id model.NodeID, unregistered bool) bool {
	m := l.Nodes[id]
	if m == nil || !m.Alive {
		return false
	}
	m.Alive = false
	if unregistered {
		for i := range l.Owner {
			if l.Owner[i] == id {
				l.Owner[i] = model.NodeID{}
			}
		}
	}
	return true
}

// CheckAcquired checks that no live node owns the shards that a node gets (I1).
func (l *ledger) CheckAcquired(id model.NodeID, got []store.AcquiredShard) {
	for _, g := range got {
		old := l.Owner[g.Shard]
		if old == id {
			continue
		}
		if m := l.Nodes[old]; m != nil && m.Alive {
			l.Fail("I1: %s takes shard %d, which belongs to %s", l.Name(id), g.Shard, l.Name(old))
		}

		l.Owner[g.Shard] = id
		l.tenure[g.Shard]++
		l.custody[g.Shard].pass(g.Crashed)
		l.s.Did(scenario.OpAcquire)
	}
}
