package mutants

// edges are bugs at the edges of a node's life.
var edges = []mutant{
	{
		name:  "Close waits for a store that takes nothing",
		file:  "internal/engine/lane/farewell.go",
		old:   "	l.hurried = true\n",
		new:   "	l.hurried = false\n",
		tests: [][]string{{"./internal/e2e", "-run", "TestCloseOnAFullDisk$"}},
	},
	{
		name:  "Close does not tell what is not stored",
		file:  "internal/engine/incarnation.go",
		old:   "	unstored := inc.gaveUpOnStore(cause)\n",
		new:   "	unstored := inc.gaveUpOnStore(nil)\n",
		tests: [][]string{{"./internal/e2e", "-run", "TestCloseOnAFullDisk$"}},
	},
	{
		name:  "bodies that outlive the lease of their node count for no limit",
		file:  "internal/engine/engine.go",
		old:   "		inc.board.adopt()\n",
		new:   "",
		tests: [][]string{{"./internal/e2e", "-run", "TestInlinePermitsAfterLeaseLoss$"}},
	},
	{
		name:  "the permit of an inline attempt is free before its body has ended",
		file:  "internal/replay/body.go",
		old:   "	if p != nil {\n		defer p.exited()\n	}\n",
		new:   "	if p != nil {\n		p.leave(true, nil)\n	}\n",
		tests: [][]string{sdkTest("TestInlineLimits$")},
	},
	{
		name:  "Close waits for steps that could not begin",
		file:  "internal/replay/body.go",
		old:   "		r.giveBackLocked()\n		return\n",
		new:   "		r.mu.Unlock()\n		return\n",
		tests: [][]string{sdkTest("TestCloseWhileStepsWait$")},
	},
	{
		name:  "requests of other processes wait for the end of a quarantine",
		file:  "internal/engine/lane/remove.go",
		old:   "(in.message.Order() || in.requests())",
		new:   "in.message.Order()",
		tests: [][]string{laneTest("TestRequestsForWhatIsQuarantined$")},
	},
	{
		name:  "the refusal of a request for what is quarantined is remembered under its id",
		file:  "internal/engine/lane/mail.go",
		old:   "in.told && in.requests() || ",
		new:   "",
		tests: [][]string{laneTest("TestRequestsForWhatIsQuarantined$")},
	},
}
