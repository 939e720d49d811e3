package mutants

// laneTasks runs tests of the tasks of a lane.
func laneTasks(run string) [][]string { return [][]string{{"./internal/engine/lane", "-run", run}} }

// lends runs simulations in which nodes lend each other slots.
var lends = []string{"./internal/sim", "-run", "TestSeeds$", "-seed=4", "-step=6", "-seeds=300", "-failures=1"}

// tasks are bugs of queues: which worker gets which task and when, and what happens after a failure
// in between.
var tasks = []mutant{
	{
		name:  "a report that a run has forgotten is refused when it is repeated",
		file:  "internal/engine/lane/entry.go",
		old:   "ref != nil && !e.x.HasFate(ref)",
		new:   "ref != nil && false",
		tests: [][]string{{"./internal/engine/lane", "-run", "TestRepeatedReportOfAForgottenClaim$"}},
	},
	{
		name:  "a worker whose run is on another node does not get a cancel",
		file:  "internal/engine/loan/worker.go",
		old:   "	w.n.push(now, peer.Entry{Worker: w.offer.Name, Stop: &ref, Canceled: canceled})\n",
		new:   "",
		tests: [][]string{{"./internal/e2e", "-run", "TestCancelOfAShardThatMoved$"}},
	},
	{
		name:  "a claim that a lent worker does not list is not given back",
		file:  "internal/engine/loan/neighbour.go",
		old:   "				if board.HasClaim(w.session.ID(), ref) {\n					missing = append(missing, ref)\n				}\n			}\n		}\n\n		lend",
		new:   "			}\n		}\n\n		lend",
		tests: [][]string{{"./internal/sim", "-run", "TestKnownSeedsOfLending$"}},
	},
	{
		name:  "slots stay lent when a poll is not answered",
		file:  "internal/engine/loan/poll.go",
		old:   "			x.Own.Regain(x.Count)\n",
		new:   "			if x.More {\n				x.Own.Regain(x.Count)\n			}\n",
		tests: [][]string{lends},
	},
	{
		name:  "a worker that left comes back to the board when its slot is returned",
		file:  "internal/engine/board.go",
		old:   "	} else if here && !s.hasLeft(b) {\n",
		new:   "	} else if here {\n",
		tests: [][]string{{"./internal/engine", "-run", "TestWorkerThatLeftDoesNotComeBack$"}},
	},
	{
		name:  "the end of a claim is reported again and again",
		file:  "internal/engine/loan/abroad.go",
		old:   "	delete(a.news, ref)\n	if len(a.held) == 0",
		new:   "	if len(a.held) == 0",
		tests: [][]string{lends},
	},
	{
		name:  "a report of a lent worker is lost if there is no room",
		file:  "internal/engine/tasks.go",
		old:   "			w.Redirect(ref) // its node has the report and repeats it with each poll\n",
		new:   "			_ = w\n",
		tests: [][]string{{"./internal/engine", "-run", "TestReportOfALentWorkerIsMadeAgain$"}},
	},
	{
		name:  "a report counts as sent when a heartbeat of its claim is sent",
		file:  "internal/engine/loan/abroad.go",
		old:   "		case seq == toldReport && a.reported[ref]:\n",
		new:   "		case a.reported[ref]:\n",
		tests: [][]string{{"./internal/engine/loan", "-run", "TestReportIsToldAfterAHeartbeat$"}},
	},
	{
		name:  "a node that forgets an owner numbers its polls from the start",
		file:  "internal/engine/loan/creditor.go",
		old:   "			delete(c.loans, l.node)\n",
		new:   "			delete(c.loans, l.node)\n			c.seq = 0\n",
		tests: [][]string{{"./internal/engine/loan", "-run", "TestOwnerListensToANodeThatHadForgottenIt$"}},
	},
	{
		name:  "a report is accepted while the shard is being freed",
		file:  "internal/engine/lane/claim.go",
		old:   "e != nil && !e.shard.freeing {",
		new:   "e != nil {",
		tests: laneTasks("TestDrainWithTasks$"),
	},
	{
		name:  "a report of a claim that timed out is acknowledged",
		file:  "internal/core/task.go",
		old:   "	case t.Held && byReport(e):\n",
		new:   "	case t.Held:\n",
		tests: [][]string{sim},
	},
	{
		name:  "a task is forgotten when a proposal for it comes too late",
		file:  "internal/engine/lane/post.go",
		old:   "			l.postAgain(now, e, id, queue.Neither)\n		} else",
		new:   "		} else",
		tests: laneTasks("TestDeadlineThatComesToNothing$"),
	},
	{
		name:  "a quarantine stops the worker that executes a task of the run",
		file:  "internal/engine/lane/claim.go",
		old:   "	case l.keep(e, in):\n		return\n	default:\n		in.refuse(l, ErrLater)\n",
		new:   "	default:\n		in.refuse(l, e.refusal())\n",
		tests: laneTasks("TestReportToQuarantined$"),
	},
	{
		name:  "a cancel in a refused batch does not reach the worker",
		file:  "internal/engine/lane/entryparts.go",
		old:   "		p.warned = false\n",
		new:   "",
		tests: laneTasks("TestCancelBesidePoison$"),
	},
	{
		name:  "a shard is freed before its claims are handed over",
		file:  "internal/engine/lane/shards.go",
		old:   " || e.tasks.handing > 0:\n",
		new:   ":\n",
		tests: laneTasks("TestProgressIsReadMeanwhile$"),
	},
	{
		name:  "a claim that was stored and not handed over is never handed over",
		file:  "internal/engine/lane/post.go",
		old:   "		case id != 0 && !has:\n",
		new:   "		case id != 0 && !has && false:\n",
		tests: laneTasks("TestClaimThatWasNotHandedOver$"),
	},
	{
		name:  "a claim is handed over before it is durable",
		file:  "internal/engine/lane/handover.go",
		old:   "		b.effects = append(b.effects, effect{kind: effExecute, entry: e, run: run, task: &handover{id: id, claim: claim, worker: p.worker}})\n",
		new:   "		l.execute(e, run, &handover{id: id, claim: claim, worker: p.worker})\n",
		tests: [][]string{sim},
	},
	{
		name:  "the attempt of a claim that was given back counts",
		file:  "internal/core/task.go",
		old:   "		t.Attempt--\n",
		new:   "",
		tests: [][]string{sim},
	},
	{
		name:  "a task that fails permanently does not become a dead task",
		file:  "internal/core/task.go",
		old:   "	d.Dead = append(d.Dead, DeadTask{Task: dead, Failure: f, At: e.At})\n",
		new:   "	_ = dead\n",
		tests: [][]string{sim},
	},
	{
		name:  "a claim whose worker is with another node is lost",
		file:  "internal/engine/lane/claim.go",
		old:   "task.Held && l.cfg.Board.Elsewhere(task.Worker) {",
		new:   "task.Held && false {",
		tests: [][]string{sim},
	},
	{
		name:  "a task may lose any number of workers",
		file:  "internal/core/task.go",
		old:   "		if t.lost+1 < maxLost {\n",
		new:   "		if t.lost+1 < 100*maxLost {\n",
		tests: laneTasks("TestLostWorkers$"),
	},
	{
		name:  "an owner that was fenced refuses the report of a claim of the next owner",
		file:  "internal/engine/lane/claim.go",
		old:   "	if e.hasUnknownClaim(in.fate, &in.report.Ref) {\n",
		new:   "	if false {\n",
		tests: laneTasks("TestReportOfAClaimOfTheNextOwner$"),
	},
	{
		name:  "an owner that was fenced stops the worker of a claim of the next owner",
		file:  "internal/engine/lane/claim.go",
		old:   "	if !e.hasPassed(in.run, in.claim) {\n",
		new:   "	if false {\n",
		tests: laneTasks("TestReportOfAClaimOfTheNextOwner$"),
	},
	{
		name:  "a batch that only confirms is not committed",
		file:  "internal/engine/lane/batch.go",
		old:   "	return !b.confirms && b.batch.Empty()",
		new:   "	return b.batch.Empty()",
		tests: laneTasks("TestReportOfAClaimOfTheNextOwner$"),
	},
	{
		name:  "the loss of a worker ends the claim that another worker has made again",
		file:  "internal/engine/lane/claim.go",
		old:   "	return id == p.worker\n",
		new:   "	return id < 0*p.worker\n",
		tests: laneTasks("TestLossOfAClaimThatWasMadeAgain$"),
	},
}
