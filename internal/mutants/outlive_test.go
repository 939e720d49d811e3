package mutants

var (
	lossTest    = []string{"./internal/replay", "-run", "TestNoBodyRepeatsAfterALoss$|TestOutcomesOfLostAttempts$|TestActivationsWait"}
	toldTest    = []string{"./internal/replay", "-run", "TestStepWaitsForABody|TestFailureOfABodyThatWasToldToEnd$|TestCloseWhileAStepWaitsForABody$"}
	reunionTest = []string{"./internal/engine/lane", "-run", "TestReunion|TestKeptRunsChange$|TestClaimsOfReturningWorkers$"}
	diesTest    = []string{"./internal/remote", "-run", "TestServerDiesUnderLoad$|TestWorkersOutliveTheirServer$"}
	closingTest = []string{"./internal/remote", "-run", "TestNewsAtTheEndOfARun$|TestEndedRunsLeaveTheWorker$"}
)

// outlive are bugs in the code that lets work continue while a server restarts.
var outlive = []mutant{
	{
		name:  "a kept attempt has no number",
		file:  "internal/replay/adopt.go",
		old:   "attemptKey{r.start.Run, c.Event.ID, c.Event.Attempt}, nil,",
		new:   "attemptKey{r.start.Run, c.Event.ID, 1}, nil,",
		tests: [][]string{lossTest},
	},
	{
		name:  "outcomes that were reported and not stored are dropped with the run",
		file:  "internal/replay/adopt.go",
		old:   "			r.sent = append(r.sent, &commands[i])\n",
		new:   "",
		tests: [][]string{lossTest},
	},
	{
		name:  "an activation that waits for a body lets the next one begin",
		file:  "internal/replay/adopt.go",
		old:   "if r.unloaded || !r.lost && r.inline == nil && r.bodies.Load() == 0 && r.predecessor.Load() == nil {",
		new:   "if r.unloaded || !r.lost && r.inline == nil && r.bodies.Load() == 0 {",
		tests: [][]string{lossTest},
	},
	{
		name:  "a step that the engine takes back runs again beside its body",
		file:  "internal/replay/adopt.go",
		old:   "			a.kept = r.w.kept.add(attemptKey{r.start.Run, a.id, a.attempt + 1}, a.body, !r.lost)\n",
		new:   "			if r.lost {\n				a.kept = r.w.kept.add(attemptKey{r.start.Run, a.id, a.attempt + 1}, a.body, !r.lost)\n			}\n",
		tests: [][]string{toldTest},
	},
	{
		name:  "an inline step that the engine takes back runs again beside its body",
		file:  "internal/replay/adopt.go",
		old:   "!r.lost && r.inline == nil && r.bodies.Load() == 0 && r.pred",
		new:   "!r.lost && r.bodies.Load() == 0 && r.pred",
		tests: [][]string{toldTest},
	},
	{
		name:  "an activation begins before the one before it has handed over its bodies",
		file:  "internal/replay/adopt.go",
		old:   "!r.lost && r.inline == nil && r.bodies.Load() == 0 && r.pred",
		new:   "!r.lost && r.inline == nil && r.pred",
		tests: [][]string{toldTest},
	},
	{
		name:  "a step fails because the engine took its run back",
		file:  "internal/replay/adopt.go",
		old:   "return !k.told || k.outcome.Event.Kind == model.EventStepCompleted",
		new:   "return true",
		tests: [][]string{toldTest},
	},
	{
		name:  "a worker that closes runs a body again",
		file:  "internal/replay/adopt.go",
		old:   "if r.w.draining.Load() && a.kept == nil {",
		new:   "if false {",
		tests: [][]string{toldTest},
	},
	{
		name:  "a server that lost its lease forgets what its workers run",
		file:  "internal/engine/workers.go",
		old:   "own := dead && c.Runs && ",
		new:   "own := false && ",
		tests: [][]string{engineTest("TestServerWithARunningBodyLosesItsLease$")},
	},
	{
		name:  "a kept run is read for any worker",
		file:  "internal/engine/lane/reading.go",
		old:   " && !l.reunion.awaits(e.address) && !l.isEarly(e)",
		new:   "",
		tests: [][]string{reunionTest},
	},
	{
		name:  "a kept run is given to any worker when there is news",
		file:  "internal/engine/lane/dispatch.go",
		old:   " || l.reunion.awaits(e.address) {",
		new:   " {",
		tests: [][]string{reunionTest},
	},
	{
		name:  "a claim that never reached its worker is not handed over again",
		file:  "internal/engine/lane/claim.go",
		old:   "		if !in.has {\n			l.handOver(",
		new:   "		if false {\n			l.handOver(",
		tests: [][]string{reunionTest},
	},
	{
		name:  "any worker may say that it has a claim",
		file:  "internal/engine/lane/claim.go",
		old:   "task.Claim != in.claim || !model.SpeaksFor(in.by, task.Worker):",
		new:   "task.Claim != in.claim:",
		tests: [][]string{reunionTest},
	},
	{
		name:  "a remote worker that is not back yet is gone",
		file:  "internal/engine/board.go",
		old:   "	return returns || b.livesElsewhere(node)\n",
		new:   "	return b.livesElsewhere(node)\n",
		tests: [][]string{diesTest},
	},
	{
		name:  "reports of tasks are not repeated to the next server",
		file:  "internal/remote/role_tasks.go",
		old:   "	for _, report := range reports {\n		r.post(report)\n	}\n",
		new:   "	_ = reports\n",
		tests: [][]string{diesTest},
	},
	{
		name:  "a worker forgets a run when it reports the end",
		file:  "internal/remote/role_workflows.go",
		old:   "	if t.Blocked != nil {\n		r.drop(",
		new:   "	if t.Blocked != nil || t.Close != nil {\n		r.drop(",
		tests: [][]string{closingTest},
	},
	{
		name:  "any worker may report a claim that it says it has",
		file:  "internal/core/task.go",
		old:   "	case !model.SpeaksFor(r.By, t.Worker):\n",
		new:   "	case r.By == t.Worker && r.By != \"\":\n",
		tests: [][]string{reunionTest},
	},
	{
		name:  "any worker may write under a claim that it says it has",
		file:  "internal/engine/lane/taskdata.go",
		old:   "!e.isClaimOf(ref, write.By) || w == nil:",
		new:   "!e.hasClaim(ref) || w == nil:",
		tests: [][]string{reunionTest},
	},
	{
		name:  "any worker may replace the progress of a claim",
		file:  "internal/engine/lane/claim.go",
		old:   "	if !e.isClaimOf(&ref, in.by) {\n",
		new:   "	if !e.hasClaim(&ref) {\n",
		tests: [][]string{reunionTest},
	},
	{
		name:  "the session of a remote worker does not say who reports",
		file:  "internal/engine/tasks.go",
		old:   "	r.By = s.speaker()\n",
		new:   "",
		tests: [][]string{{"./internal/grpcapi", "-run", "TestWorkersSpeakForTheirOwnClaims$"}},
	},
	{
		name:  "a heartbeat takes a claim that another worker has",
		file:  "internal/engine/board.go",
		old:   "	if model.IsRemoteWorker(b.names[id]) && !b.b.IsAssigned(ref) {\n",
		new:   "	if false {\n",
		tests: [][]string{{"./internal/engine", "-run", "TestHeartbeatsTakeNoClaims$"}},
	},
}
