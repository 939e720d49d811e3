package mutants

// edges are bugs at the start and the end of a node.
var edges = []mutant{
	{
		name:  "Close waits for a store that accepts no writes",
		file:  "internal/engine/lane/farewell.go",
		old:   "	l.hurried = true\n",
		new:   "	l.hurried = false\n",
		tests: [][]string{{"./internal/e2e", "-run", "TestCloseOnAFullDisk$"}},
	},
	{
		name:  "Close does not report what is not stored",
		file:  "internal/engine/incarnation.go",
		old:   "	unstored := inc.gaveUpOnStore(cause)\n",
		new:   "	unstored := inc.gaveUpOnStore(nil)\n",
		tests: [][]string{{"./internal/e2e", "-run", "TestCloseOnAFullDisk$"}},
	},
	{
		name:  "bodies that outlive the lease of their node do not count against limits",
		file:  "internal/engine/engine.go",
		old:   "		inc.board.adopt()\n",
		new:   "",
		tests: [][]string{{"./internal/e2e", "-run", "TestInlinePermitsAfterLeaseLoss$"}},
	},
	{
		name:  "the permit of an inline attempt is free before its body has ended",
		file:  "internal/replay/body.go",
		old:   "	if p != nil {\n		defer p.leaveOnExit()\n	}\n",
		new:   "	if p != nil {\n		p.leave(true, nil)\n	}\n",
		tests: [][]string{sdkTest("TestInlineLimits$")},
	},
	{
		name:  "Close waits for steps that could not start",
		file:  "internal/replay/body.go",
		old:   "	r.giveBackLocked()\n",
		new:   "	r.mu.Unlock()\n",
		tests: [][]string{sdkTest("TestCloseWhileStepsWait$")},
	},
	{
		name:  "a refused signal leaves no mark on its run",
		file:  "internal/engine/lane/careful.go",
		old:   "	return e.run()\n}\n\n// isStarting",
		new:   "	return model.RunID{}\n}\n\n// isStarting",
		tests: [][]string{laneTest("TestRefusedSignalMarksItsRun$")},
	},
	{
		name:  "requests of other processes wait for the end of a quarantine",
		file:  "internal/engine/lane/input.go",
		old:   "(m.Order() || in.isRequest())",
		new:   "m.Order()",
		tests: [][]string{laneTest("TestRequestsForWhatIsQuarantined$")},
	},
	{
		name:  "the refusal of a request to a quarantined address is remembered under its id",
		file:  "internal/engine/lane/mail.go",
		old:   "sent.isRequest() && e.quarantine.why != nil",
		new:   "sent.isRequest() && e.quarantine.why != nil && false",
		tests: [][]string{laneTest("TestRequestsForWhatIsQuarantined$")},
	},
}
