package cluster

import (
	"context"
	"fmt"

	"github.com/perdure/perdure/internal/cluster"
	"github.com/perdure/perdure/internal/sim/scenario"
	"github.com/perdure/perdure/internal/store"
)

// SetDrained stores the order of an operator. If drained is true, the node of the process must hand
// its shards over. Otherwise the node may take shards again. It returns false if the order changes
// nothing.
func (s *Cluster) SetDrained(p *Proc, drained bool) bool {
	inc := p.Inc
	if inc == nil || inc.ended {
		return false
	}
	v, err := s.Disk.Mem.Members(context.Background())
	if err != nil {
		s.Fail("members: %v", err)
	}
	for i := range v.Members {
		if m := &v.Members[i]; m.ID == inc.self.ID && m.Drained == drained {
			return false
		}
	}
	found, err := s.Disk.Mem.SetDrained(context.Background(), inc.self.ID, drained)
	if err != nil {
		s.Fail("set drained: %v", err)
	}
	if !found {
		return false // another node has fenced this one
	}

	if s.Tracing {
		s.Logf("%s is drained: %v", inc.name(), drained)
	}
	s.announceMembership(nil)
	return true
}

// noteDrain does what incarnation.noteDrain does in production: it notes whether a view says that
// the node is drained.
func (inc *incarnation) noteDrain(v *store.View) {
	for i := range v.Members {
		if m := &v.Members[i]; m.ID == inc.self.ID {
			inc.p.drained = m.Drained
		}
	}
	if inc.p.drained && len(inc.member.OwnedShards()) == 0 {
		inc.p.Cluster.Did(scenario.OpEmptied)
	}
}

// Misplaced returns a shard that another node should own; empty if there is none.
func (s *Cluster) Misplaced() string {
	if !s.Has(scenario.Drains | scenario.ShardGroups) {
		return ""
	}
	v, err := s.Disk.Mem.Members(context.Background())
	if err != nil {
		s.Fail("members: %v", err)
	}
	moves := cluster.Plan(&v)
	if len(moves) == 0 {
		return ""
	}
	return fmt.Sprintf("shard %d belongs to %s, and should belong to %s", moves[0].Shard, s.Ledger.Name(moves[0].From), s.Ledger.Name(moves[0].To))
}
