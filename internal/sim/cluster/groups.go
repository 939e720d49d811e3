package cluster

import (
	"context"
	"slices"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/scenario"
	"github.com/perdure/perdure/internal/store"
)

// In some seeds the store has a shard group in addition to the default one, and processes serve one
// of the groups or both. Executions, calls, locks, messages and permits go from one group to the
// other. In addition to all other rules, the simulator checks that a node gets only shards of
// groups that it takes (E47). A group without a live node waits for one, and in the end every
// execution ends.

// checkGroups checks that a node takes the groups of the shards that it gets (E47).
func (inc *incarnation) checkGroups(got []store.AcquiredShard) {
	s := inc.p.Cluster
	if !s.Has(scenario.ShardGroups) {
		return
	}
	for _, g := range got {
		group := s.Plan.Layout.GroupOf(g.Shard)
		if !inc.self.TakesGroup(group) {
			s.Fail("E47: %s gets shard %d of group %s, and takes %v", inc.name(), g.Shard, group, inc.self.Groups)
		}
		if group != model.DefaultGroup {
			s.Did(scenario.OpGroupShard)
		}
	}
}

// noteGroups counts the views in which no live node takes the shards of a group.
func (s *Cluster) noteGroups(v *store.View) {
	if !s.Has(scenario.ShardGroups) {
		return
	}
	for _, r := range s.Plan.Layout.Ranges() {
		if !slices.ContainsFunc(v.Members, func(m store.Member) bool { return m.TakesGroup(r.Group) }) {
			s.Did(scenario.OpGroupAlone)
		}
	}
}

// CheckGroups checks that no shard belongs to a node that does not take its group (E47), once
// everything has ended.
func (s *Cluster) CheckGroups() {
	if !s.Has(scenario.ShardGroups) {
		return
	}
	v, err := s.Disk.Mem.Members(context.Background())
	if err != nil {
		s.Fail("members: %v", err)
	}
	for _, o := range v.Owners {
		group := s.Plan.Layout.GroupOf(o.Shard)
		i := slices.IndexFunc(v.Members, func(m store.Member) bool { return m.ID == o.Node })
		if i >= 0 && !v.Members[i].TakesGroup(group) {
			s.Fail("E47: shard %d of group %s belongs to %s, which does not take it", o.Shard, group, s.Ledger.Name(o.Node))
		}
	}
}
