package mutants

// recalls are bugs in queries about closed runs.
var recalls = []mutant{
	{
		name:  "the history of a run is read before its end is stored",
		file:  "internal/engine/lane/ready.go",
		old:   "the store.\n		return !e.dirty()\n",
		new:   "the store.\n		return true\n",
		tests: [][]string{laneTest("TestQueryOfClosedRun$")},
	},
	{
		name:  "an address is forgotten while a query about its end waits",
		file:  "internal/engine/lane/entries.go",
		old:   " || e.hasRecall() ||",
		new:   " ||",
		tests: [][]string{laneTest("TestQueryOfClosedRun$")},
	},
	{
		name:  "a query waits for a worker that has left",
		file:  "internal/engine/lane/dispatch.go",
		old:   "	l.dropRecalls(id)\n",
		new:   "",
		tests: [][]string{laneTest("TestQueryOfClosedRun$")},
	},
	{
		name:  "code that does not fit the history answers queries",
		file:  "internal/replay/recall.go",
		old:   "		err = v.compare(h, cfg.Plain)\n",
		new:   "		err = nil\n",
		tests: [][]string{{"./internal/e2e", "-run", "TestQueryOfClosedRuns$/sqlite"}},
	},
}
