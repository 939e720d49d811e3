package mutants

// load are bugs that show when there are many bytes, or when a part of the store is slow or sick.
var load = []mutant{
	{
		name:  "a batch has any number of bytes",
		file:  "internal/engine/lane/seal.go",
		old:   " || l.open.bytes >= l.budget.batch\n",
		new:   "\n",
		tests: [][]string{laneTest("TestBatchIsCutByBytes$")},
	},
	{
		name:  "only what comes in counts for a batch",
		file:  "internal/engine/lane/size.go",
		old:   "			n += s.Carried[i].Size()\n",
		new:   "			_ = i\n",
		tests: [][]string{laneTest("TestRowsCountAndNotOnlyInputs$")},
	},
	{
		name:  "a batch that is never done in time is sent again as it is",
		file:  "internal/engine/lane/careful.go",
		old:   "	if len(first) < 2 {\n		return false\n",
		new:   "	if true {\n		return false\n",
		tests: [][]string{laneTest("TestBatchesGrowAgainAfterASlowPath$")},
	},
	{
		name:  "a split forgets the batch that fills",
		file:  "internal/engine/lane/careful.go",
		old:   "	half := halfOf(first)\n	l.applyAgain([]chunk{first[:half:half], first[half:]}, rest)\n",
		new:   "	halfOf := halfOf(first)\n	_ = rest\n	l.applyAgain([]chunk{first[:halfOf:halfOf], first[halfOf:]}, nil)\n",
		tests: [][]string{laneTest("TestBatchThatIsNeverDoneInTime$|TestRandomLife$")},
	},
	{
		name:  "a batch is split before the fence has moved",
		file:  "internal/engine/lane/commit.go",
		old:   "	case store.Unknown:\n		r.stage, r.at = stageRefence, 0\n",
		new:   "	case store.Unknown:\n		if r.lost++; r.lost >= lostTries && l.split(now) {\n			return\n		}\n		r.stage, r.at = stageRefence, 0\n",
		tests: [][]string{laneTest("TestLateBatchThatLanded$")},
	},
	{
		name:  "an input that is late has no more time the next time",
		file:  "internal/engine/lane/commit.go",
		old:   "		l.flight.batch.Lane, l.flight.batch.Patience = l.cfg.Ref, r.patience\n",
		new:   "		l.flight.batch.Lane = l.cfg.Ref\n",
		tests: [][]string{laneTest("TestInputThatIsNotDoneInTime$")},
	},
	{
		name:  "a commit has the same time whatever its size",
		file:  "internal/store/batch.go",
		old:   "(base + time.Duration(b.Bytes)*time.Second/slowestPath)",
		new:   "(base + 0*slowestPath)",
		tests: [][]string{{"./internal/store/postgres", "-run", "TestCommitHasTimeForItsBytes$"}},
	},
	{
		name:  "reports for a quarantined run fill the lane",
		file:  "internal/engine/lane/kept.go",
		old:   "		l.budget.keep(&in.inputBase)\n",
		new:   "",
		tests: [][]string{laneTest("TestReportsToQuarantinedLeaveRoom$")},
	},
	{
		name:  "reports for a quarantined run are kept without limit",
		file:  "internal/engine/lane/kept.go",
		old:   "			return false\n",
		new:   "			_ = mine\n",
		tests: [][]string{laneTest("TestKeptReportsAreShared$")},
	},
	{
		name:  "a report that the lane has no room for is dropped",
		file:  "internal/engine/tasks.go",
		old:   "			s.reportLater(r)\n",
		new:   "",
		tests: [][]string{{"./internal/engine", "-run", "TestReportLater$"}},
	},
	{
		name:  "a line is refused by its length alone",
		file:  "internal/engine/lane/crowd.go",
		old:   "age >= l.cfg.MaxWait && !in.isWrite()",
		new:   "false",
		tests: [][]string{laneTest("TestLineIsRefusedByAge$")},
	},
}
