package mutants

// drainSeeds runs simulations in which operators drain nodes.
var drainSeeds = []string{"./internal/sim", "-run", "TestSeeds$", "-args", "-seeds=200", "-features=drains"}

// groupSeeds runs simulations in which nodes serve different shard groups.
var groupSeeds = []string{"./internal/sim", "-run", "TestSeeds$", "-args", "-seeds=50", "-features=shard-groups", "-failures=1"}

// placement are bugs in the assignment of shards to nodes.
var placement = []mutant{
	{
		name:  "a drained node keeps its shards",
		file:  "internal/cluster/placement.go",
		old:   "return n.Drained })\n	if len(left) == 0",
		new:   "return false })\n	if len(left) == 0",
		tests: [][]string{{"./internal/cluster", "-run", "TestDrainedNode$"}, {"./internal/engine", "-run", "TestDrainedNodeHandsOver$"}},
	},
	{
		name:  "no node keeps the shards when all are drained",
		file:  "internal/cluster/placement.go",
		old:   "	if len(left) == 0 {\n		return capable\n	}\n",
		new:   "",
		tests: [][]string{{"./internal/cluster", "-run", "TestAllNodesDrained$"}, drainSeeds},
	},
	{
		name:  "weights count although an older node does not know them",
		file:  "internal/cluster/propose.go",
		old:   "if weighted && !hasOlder(nodes) {",
		new:   "if weighted {",
		tests: [][]string{{"./internal/cluster", "-run", "TestEqualWeightsChangeNothing$"}},
	},
	{
		name:  "a node that lost its lease forgets that it is drained",
		file:  "internal/engine/engine.go",
		old:   "self.Weight, self.Drained, self.Groups = e.cfg.Weight, e.drained, e.cfg.Groups",
		new:   "self.Weight, self.Groups = e.cfg.Weight, e.cfg.Groups",
		tests: [][]string{{"./internal/engine", "-run", "TestDrainOutlivesTheLease$"}},
	},
	{
		name:  "shards go to nodes that do not serve their group",
		file:  "internal/cluster/placement.go",
		old:   "takers(takersOf(live, r.Group))",
		new:   "takers(slices.Clone(live))",
		tests: [][]string{{"./internal/cluster", "-run", "TestNodeTakesShardsOfItsGroups$"}, groupSeeds},
	},
	{
		name:  "a group that is added moves the names of another one",
		file:  "internal/model/layout.go",
		old:   "	return GroupRange{DefaultGroup, 0, l.base}\n}\n",
		new:   "	return GroupRange{DefaultGroup, 0, l.base + len(l.groups)}\n}\n",
		tests: [][]string{{"./internal/model", "-run", "TestLayoutKeepsAddressesInTheirGroup$"}},
	},
	{
		name:  "a process that does not know a new group may register",
		file:  "internal/store/postgres/ownership.go",
		old:   "where id = 1 and groups = $15",
		new:   "where id = 1 and groups is distinct from $15 || 'x'",
		tests: [][]string{{"./internal/store/postgres", "-run", "TestProcessWithOtherGroups$"}},
	},
}
