package mutants

// foundSeeds has the seeds that failed in a simulation of 200,000.
var foundSeeds = []string{"./internal/sim", "-run", "TestKnownSeedsOfTwoHundredThousand$"}

// found lists mutants that only a simulation of 200,000 seeds has found.
var found = []mutant{
	{
		name:  "a worker dies of calls that never left the lane",
		file:  "internal/engine/lane/loss.go",
		old:   "		if c := &l.out.Operate[i]; c.Worker == id {\n",
		new:   "		if c := &l.out.Operate[i]; c.Worker == id && false {\n",
		tests: [][]string{laneTest("TestWhatIsNoLoss$"), foundSeeds},
	},
	{
		name:  "a worker dies of calls that the server never sent",
		file:  "internal/grpcapi/session.go",
		old:   "	if s.detached == nil || s.over {\n",
		new:   "	if s.detached == nil {\n",
		tests: [][]string{{"./internal/grpcapi", "-run", "TestEndsOfEntityWorkers$"}},
	},
	{
		name:  "a worker gets a claim of a run that the lane has dropped",
		file:  "internal/engine/lane/post.go",
		old:   "		if p, _ := e.tasks.posted.get(id); p.held && p.worker != 0 {\n",
		new:   "		if p, _ := e.tasks.posted.get(id); p.held && p.worker != 0 && false {\n",
		tests: [][]string{laneTest("TestClaimOfAnUnreadableRun$"), foundSeeds},
	},
	{
		name:  "a start assumes that an address has no run although the board knows tasks of one",
		file:  "internal/engine/lane/ready.go",
		old:   " && e.tasks.posted.len() == 0\n",
		new:   "\n",
		tests: [][]string{laneTest("TestStartBesideARunThatTheLaneHasForgotten$"), foundSeeds},
	},
	{
		name:  "another worker gets a run whose holder may be in the next attempt",
		file:  "internal/engine/lane/reunion.go",
		old:   " || hasKind(events, model.EventPaused) || l.mayRetryElsewhere(l.now, e))",
		new:   " || hasKind(events, model.EventPaused))",
		tests: [][]string{laneTest("TestRunAfterABackOffBehindAnAssumedStart$"), foundSeeds},
	},
}
