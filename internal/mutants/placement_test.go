package mutants

// drainSeeds runs simulations in which operators drain nodes.
var drainSeeds = []string{"./internal/sim", "-run", "TestSeeds$", "-args", "-seeds=200", "-features=drains"}

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
		old:   "self.Weight, self.Drained = e.cfg.Weight, e.drained",
		new:   "self.Weight = e.cfg.Weight",
		tests: [][]string{{"./internal/engine", "-run", "TestDrainOutlivesTheLease$"}},
	},
}
