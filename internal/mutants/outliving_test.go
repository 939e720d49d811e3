package mutants

// outlives runs simulations in which workers outlive their servers.
var outlives = []string{"./internal/sim", "-run", "TestSeeds$", "-features=outliving", "-seeds=1500", "-failures=1"}

func engineTest(run string) []string { return []string{"./internal/engine", "-run", run} }

// stale are bugs in answers of nodes whose lease may have ended.
var stale = []mutant{
	{
		name:  "a worker with an invalid turn keeps its run when the batch is refused",
		file:  "internal/engine/lane/turn.go",
		old:   "		b.effects[len(b.effects)-1].moot = true\n",
		new:   "		_ = b\n",
		tests: [][]string{{"./internal/engine/lane", "-run", "TestInvalidTurnBeforeARefusal$"}},
	},
	{
		name:  "a late report is answered before the batch that took the run is durable",
		file:  "internal/engine/lane/arrive.go",
		old:   "				f.moot = true\n				return\n",
		new:   "				f.moot = true\n",
		tests: [][]string{{"./internal/engine/lane", "-run", "TestStaleWorkerBeforeARefusal$"}},
	},
	{
		name:  "a run whose back-off is over goes to any worker",
		file:  "internal/engine/lane/dispatch.go",
		old:   "	if l.mayRetryElsewhere(now, e) && l.keepForHolder(e, e.run()) {",
		new:   "	if false {",
		tests: [][]string{laneTest("TestReunionKeepsRunsAfterABackOff$")},
	},
	{
		name:  "a shard whose acquisition got no answer counts as served",
		file:  "internal/engine/incarnation.go",
		old:   "	orphaned, foreign = inc.eng.foreign[s]\n",
		new:   "	orphaned, foreign = false, false\n",
		tests: [][]string{{"./internal/engine", "-run", "TestForeignShardsAfterALostAnswer$"}},
	},
	{
		name:  "a node whose acquisition got no answer pardons the calls of a dead owner",
		file:  "internal/engine/incarnation.go",
		old:   "orphaned = !last.IsZero()",
		new:   "orphaned = false",
		tests: [][]string{{"./internal/engine", "-run", "TestForeignShardsAfterALostAnswer$"}},
	},
	{
		name:  "a node without a lease says from memory that an execution exists",
		file:  "internal/engine/route.go",
		old:   "		stale := e.mayBeStale(inc, &a)\n",
		new:   "		stale := e.mayBeStale(inc, &a) && inc == nil\n",
		tests: [][]string{{"./internal/engine", "-run", "TestStartWithoutALease$"}},
	},
	{
		name:  "a message whose effect is committed is sent again without a lease",
		file:  "internal/engine/route.go",
		old:   "	return known && !a.Committed && ",
		new:   "	return known && ",
		tests: [][]string{{"./internal/engine", "-run", "TestStartWithoutALease$"}},
	},
	{
		name:  "an answer does not say that its batch is committed",
		file:  "internal/engine/lane/effects.go",
		old:   "			f.answer.Committed = true\n			l.reply(",
		new:   "			l.reply(",
		tests: [][]string{{"./internal/engine/lane", "-run", "TestRepeatedRequest$"}},
	},
}

// outliving are bugs in how a server keeps runs and calls for the workers of the last owner.
var outliving = []mutant{
	{
		name:  "a run is not kept for the worker that held it",
		file:  "internal/engine/lane/reunion.go",
		old:   "	r.waiting[e.address] = run\n	return true\n",
		new:   "	return false\n",
		tests: [][]string{laneTest("TestRunIsKeptForItsWorker$"), outlives},
	},
	{
		name:  "another worker gets a run than the one that holds it",
		file:  "internal/engine/lane/reunion.go",
		old:   "	case held && l.workers.canServe(id, e.kind(), e.x.Pin) && !l.workers.isRefused(id, e, e.x.Pin):\n",
		new:   "	case held && id < 0:\n",
		tests: [][]string{outlives},
	},
	{
		name:  "a run is not kept if a start finds it",
		file:  "internal/engine/lane/load.go",
		old:   "					l.keepForHolder(e, h.Run)\n",
		new:   "					e.wait.overlooked = true\n",
		tests: [][]string{laneTest("TestRunIsKeptForItsWorker$")},
	},
	{
		name:  "a lane forgets a run that is to be given out when it reads the run for a message",
		file:  "internal/engine/lane/reunion.go",
		old:   "	e.listed = true\n	if !l.keeps",
		new:   "	e.listed = true\n	delete(r.early, e.address)\n	if !l.keeps",
		tests: [][]string{laneTest("TestReunionForgetsNoBlockedRunOfItsOwn$")},
	},
	{
		name:  "a reunion ends while workers still come back",
		file:  "internal/engine/lane/reunion.go",
		old:   "	l.reunion.Extend(now, l.cfg.Reunion)\n",
		new:   "",
		tests: [][]string{laneTest("TestReunionLastsWhileWorkersComeBack$")},
	},
	{
		name:  "a reunion ends before the lane has read what is left",
		file:  "internal/engine/lane/reunion.go",
		old:   "	if !asked && !over || !l.hasReadForeign() {",
		new:   "	if !asked && !over {",
		tests: [][]string{laneTest("TestReunionLastsWhileWorkersComeBack$")},
	},
	{
		name:  "a reunion lasts as long as workers join",
		file:  "internal/engine/lane/reuniontime.go",
		old:   "min(now.Add(d), t.latest))",
		new:   "now.Add(d))",
		tests: [][]string{laneTest("TestReunionLastsWhileWorkersComeBack$")},
	},
	{
		name:  "claims are lost while workers still come back",
		file:  "internal/engine/board.go",
		old:   "			b.reunion.Extend(b.inc.eng.clock.now(), b.inc.eng.cfg.Lane.Reunion)\n",
		new:   "",
		tests: [][]string{{"./internal/engine", "-run", "TestBoardWaitsWhileRemoteWorkersJoin$"}},
	},
	{
		name:  "a worker forgets a run whose history it does not get whole",
		file:  "internal/remote/role_workflows.go",
		old:   "	} else {\n		delete(r.left, a.Start.Run)\n	}\n",
		new:   "	}\n	delete(r.left, a.Start.Run)\n",
		tests: [][]string{{"./internal/remote", "-run", "TestRunsAreNamedUntilTheirHistoryIsWhole$"}},
	},
	{
		name:  "the lane forgets who holds a run before it gives the run out",
		file:  "internal/engine/lane/reunion.go",
		old:   "	id, held := l.reunion.holders[model.HeldRun{Address: e.address, Run: e.run()}]\n",
		new:   "	id, held := l.reunion.holders[model.HeldRun{Address: e.address, Run: e.run()}]\n	delete(l.reunion.holders, model.HeldRun{Address: e.address, Run: e.run()})\n",
		tests: [][]string{laneTest("TestReunionKeepsRunsForTheirWorker$")},
	},
	{
		name:  "a worker gets work before its name is stored",
		file:  "internal/engine/names.go",
		old:   "	if r.Name == \"\" || e.cfg.Lane.Reunion == 0 {\n",
		new:   "	if r.Name == \"\" || e.cfg.Lane.Reunion >= 0 {\n",
		tests: [][]string{engineTest("TestReunionEndsWhenAllWorkersAreBack$")},
	},
	{
		name:  "a server does not ask the other nodes when all workers are back",
		file:  "internal/engine/reunion.go",
		old:   "len(missing) == 0 && inc.askOthers(ctx)",
		new:   "len(missing) == 0",
		tests: [][]string{engineTest("TestReunionWithAWorkerAtAnotherServer$")},
	},
	{
		name:  "a node does not tell others what its workers held when they joined",
		file:  "internal/engine/crew/hands.go",
		old:   "	for _, r := range o.Held {",
		new:   "	for _, r := range o.Held[:0] {",
		tests: [][]string{engineTest("TestReunionWithAWorkerAtAnotherServer$")},
	},
	{
		name:  "a server waits although all workers are back",
		file:  "internal/engine/lane/reunion.go",
		old:   "	if l.reunion.until > now {\n		l.reunion.until = now\n	}\n	l.EndReunion(now)\n",
		new:   "	l.EndReunion(now)\n",
		tests: [][]string{laneTest("TestReunionFinishes$"), engineTest("TestReunionEndsWhenAllWorkersAreBack$")},
	},
	{
		name:  "a server that stops forgets a worker that runs a body",
		file:  "internal/engine/names.go",
		old:   " || holds && e.isStopping() {",
		new:   " {",
		tests: [][]string{engineTest("TestReunionAfterAnOrderlyStop$")},
	},
	{
		name:  "workers that never come back stay in the store",
		file:  "internal/engine/reunion.go",
		old:   "				inc.eng.names.drop(away)\n",
		new:   "				_ = away\n",
		tests: [][]string{engineTest("TestReunionWithAWorkerThatStaysAway$")},
	},
	{
		name:  "a worker gets a run that it held before the server owned the shard",
		file:  "internal/engine/lane/shards.go",
		old:   "			l.reunion.forgetHolders(s.Shard, l.cfg.Layout)\n",
		new:   "",
		tests: [][]string{laneTest("TestReunionForgetsWhatWorkersSaidBefore$")},
	},
	{
		name:  "a server with new shards does not ask its own workers what they hold",
		file:  "internal/engine/reunion.go",
		old:   "			inc.meet(s.id, s.hands.Left())\n",
		new:   "",
		tests: [][]string{engineTest("TestReunionWithAWorkerAtAnotherServer$")},
	},
	{
		name:  "a run that is being read when the reunion ends goes to any worker",
		file:  "internal/engine/lane/reunion.go",
		old:   "(l.keeps(e.shard) || e.claimed || e.shard.handed",
		new:   "(l.keeps(e.shard) || e.shard.handed",
		tests: [][]string{laneTest("TestReunionFinishesDuringReads$")},
	},
	{
		name:  "calls that are being read when the reunion ends go to any worker",
		file:  "internal/engine/lane/reunion.go",
		old:   "held && (l.keeps(e.shard) || e.claimed) && ",
		new:   "held && l.keeps(e.shard) && ",
		tests: [][]string{laneTest("TestReunionFinishesDuringReads$")},
	},
	{
		name:  "a shard that was handed over while workers are missing is given out at once",
		file:  "internal/engine/incarnation.go",
		old:   " && !a.awaits && ",
		new:   " && ",
		tests: [][]string{engineTest("TestReunionOfAShardThatMovesOn$")},
	},
	{
		name:  "a server that has lost its lease does not wait again for the workers of another server",
		file:  "internal/engine/incarnation.go",
		old:   "		if last == inc.self.ID {\n			continue\n		}\n",
		new:   "		if inc.eng.lives[last] {\n			continue\n		}\n",
		tests: [][]string{engineTest("TestReunionOfAServerThatLosesItsLease$")},
	},
}
