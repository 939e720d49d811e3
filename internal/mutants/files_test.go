package mutants

// predecessor is the test that opens an SQLite file after a process that died without a word.
var predecessor = []string{"./internal/e2e", "-run", "TestSQLiteDoesNotWaitForADeadPredecessor$"}

// files are bugs in the SQLite adapter and in the proof that a process is gone.
var files = []mutant{
	{
		name:  "a sole node of an SQLite file leaves the dead registered",
		file:  "internal/store/sqlite/ownership.go",
		old:   "		if n.Sole {\n",
		new:   "		if false {\n",
		tests: [][]string{predecessor, {"./internal/store/sqlite", "-run", "TestConformance/leases"}},
	},
	{
		name:  "the engine does not register as the sole node of a store that is not shared",
		file:  "internal/engine/engine.go",
		old:   "	self.Sole = !e.cfg.Store.Info().Shared\n",
		new:   "",
		tests: [][]string{predecessor},
	},
}
