package scenario

import (
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/kernel"
)

// extraGroup is the additional shard group, in the simulations that have one.
const extraGroup = "gpu"

// groupedWorkflows are the types of workflows in simulations with a shard group. The second type
// belongs to the group. The third type names a group that the store does not have, so it belongs to
// the default group. The last two types are for children that only one run uses.
var groupedWorkflows = [...]string{
	Workflows[0], Workflows[1] + model.GroupEnding(extraGroup), Workflows[2] + model.GroupEnding("unknown"), Workflows[1], Workflows[2],
}

// drawGroups decides how many shards the group has, and which processes serve it. At least one
// process serves each group, so everything can end while all processes are up.
func (s *Scenario) drawGroups() {
	p := &s.Plan
	p.Groups = []model.Group{{Name: extraGroup, Shards: kernel.OneOf(s, 1, 2, 4)}}
	p.Shards += p.Groups[0].Shards

	both, base, extra := []string{model.DefaultGroup, extraGroup}, []string{model.DefaultGroup}, []string{extraGroup}
	serves := kernel.OneOf(s,
		[3][]string{both, base, extra}, [3][]string{base, base, extra}, [3][]string{base, extra, extra},
		[3][]string{both, both, base}, [3][]string{both, both, extra}, [3][]string{both, nil, extra},
	)
	first := s.Pick(len(serves))
	for slot := range serves {
		p.Serves[slot] = serves[(slot+first)%len(serves)]
	}
}

// ShardOf returns the shard of an address.
func (s *Scenario) ShardOf(a model.Address) model.ShardID { return s.Plan.Layout.Shard(a) }

// WorkflowTypes returns the types of all workflows. The first types have most executions.
func (s *Scenario) WorkflowTypes() []string {
	if s.Has(ShardGroups) {
		return groupedWorkflows[:]
	}
	return Workflows[:]
}

// workflow returns the type of the executions with a number.
func (s *Scenario) workflow(i int) string { return s.WorkflowTypes()[i%len(Workflows)] }
