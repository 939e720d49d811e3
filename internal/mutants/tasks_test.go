package mutants

// laneTasks are tests of what a lane does with tasks.
func laneTasks(run string) [][]string { return [][]string{{"./internal/engine/lane", "-run", run}} }

// lends is the simulator where nodes lend each other slots.
var lends = []string{"./internal/sim", "-run", "TestSeeds$", "-seed=4", "-step=6", "-seeds=300", "-failures=1"}

// tasks are bugs of queues: of who gets what when, and of what becomes of it when something goes wrong in between.
var tasks = []mutant{
	{
		name:  "a report that a run has forgotten is refused when it is repeated",
		file:  "internal/engine/lane/fate.go",
		old:   "in.fate == nil && !e.x.Knows(ref)",
		new:   "in.fate == nil && false",
		tests: [][]string{{"./internal/engine/lane", "-run", "TestRepeatedReportOfAForgottenClaim$"}},
	},
	{
		name:  "a worker whose run is with another node is not told of a cancel",
		file:  "internal/engine/loan/worker.go",
		old:   "	w.n.push(now, peer.Entry{Worker: w.offer.Name, Stop: &ref, Canceled: canceled})\n",
		new:   "",
		tests: [][]string{{"./internal/e2e", "-run", "TestCancelOfAShardThatMoved$"}},
	},
	{
		name:  "a claim that a lent worker does not list is not given back",
		file:  "internal/engine/loan/neighbour.go",
		old:   "				if board.Holds(w.session.ID(), ref) {\n					missing = append(missing, ref)\n				}\n			}\n		}\n\n		lend",
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
		name:  "news of a claim that has ended is told for ever",
		file:  "internal/engine/loan/abroad.go",
		old:   "	delete(a.news, ref)\n	if len(a.held) == 0",
		new:   "	if len(a.held) == 0",
		tests: [][]string{lends},
	},
	{
		name:  "a report of a lent worker for which there is no room is forgotten",
		file:  "internal/engine/tasks.go",
		old:   "			w.Unsettled(ref) // its node has the report, and tells it with every poll\n",
		new:   "			_ = w\n",
		tests: [][]string{{"./internal/engine", "-run", "TestReportOfALentWorkerIsMadeAgain$"}},
	},
	{
		name:  "a report counts as told when a heartbeat of its claim is",
		file:  "internal/engine/loan/abroad.go",
		old:   "		case seq == toldReport && a.reported[ref]:\n",
		new:   "		case a.reported[ref]:\n",
		tests: [][]string{{"./internal/engine/loan", "-run", "TestReportIsToldAfterAHeartbeat$"}},
	},
	{
		name:  "a node that forgets an owner numbers its polls anew",
		file:  "internal/engine/loan/creditor.go",
		old:   "			delete(c.loans, l.node)\n",
		new:   "			delete(c.loans, l.node)\n			c.seq = 0\n",
		tests: [][]string{{"./internal/engine/loan", "-run", "TestOwnerListensToANodeThatHadForgottenIt$"}},
	},
	{
		name:  "a report is taken while the shard is being freed",
		file:  "internal/engine/lane/task.go",
		old:   "	if e == nil || e.shard.freeing {",
		new:   "	if e == nil {",
		tests: laneTasks("TestDrainWithTasks$"),
	},
	{
		name:  "a report of a claim that timed out is told that it counts",
		file:  "internal/core/task.go",
		old:   "	case t.Held && byReport(e):\n",
		new:   "	case t.Held:\n",
		tests: [][]string{sim},
	},
	{
		name:  "a task is forgotten when a proposal for it comes too late",
		file:  "internal/engine/lane/task.go",
		old:   "			l.postAgain(now, e, id, queue.Neither) // at once: an entry without tasks on the board may be dropped\n",
		new:   "",
		tests: laneTasks("TestDeadlineThatComesToNothing$"),
	},
	{
		name:  "a quarantine stops whoever executes a task of the run",
		file:  "internal/engine/lane/careful.go",
		old:   "		if l.keep(e, in) {\n			return\n		}\n		l.settled(in.task.worker, in.task.report.Ref, ErrLater)\n",
		new:   "		l.settled(in.task.worker, in.task.report.Ref, blocked)\n",
		tests: laneTasks("TestReportToQuarantined$"),
	},
	{
		name:  "a cancel in a refused batch is not told to the worker",
		file:  "internal/engine/lane/careful.go",
		old:   "			p.warned = false // that a task was canceled has not been told\n",
		new:   "",
		tests: laneTasks("TestCancelBesidePoison$"),
	},
	{
		name:  "a shard is freed before its claims are handed over",
		file:  "internal/engine/lane/shard.go",
		old:   " || e.handing > 0: // nobody else",
		new:   ": // nobody else",
		tests: laneTasks("TestProgressIsReadMeanwhile$"),
	},
	{
		name:  "a claim that was stored and not told is told to nobody",
		file:  "internal/engine/lane/task.go",
		old:   "		case id != 0 && !has: //",
		new:   "		case id != 0 && !has && false: //",
		tests: laneTasks("TestClaimThatWasNotHandedOver$"),
	},
	{
		name:  "a claim is handed over before it is durable",
		file:  "internal/engine/lane/task.go",
		old:   "		b.effects = append(b.effects, effect{kind: effExecute, entry: e, run: run, task: &taskInput{id: id, claim: claim, worker: p.worker}})\n",
		new:   "		l.execute(e, run, &taskInput{id: id, claim: claim, worker: p.worker})\n",
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
		name:  "a task that fails for good leaves no dead letter",
		file:  "internal/core/task.go",
		old:   "	d.Dead = append(d.Dead, DeadTask{Task: dead, Failure: f, At: e.At})\n",
		new:   "	_ = dead\n",
		tests: [][]string{sim},
	},
	{
		name:  "a claim whose worker is with another node is lost",
		file:  "internal/engine/lane/task.go",
		old:   "task.Held && l.cfg.Board.Elsewhere(task.Worker) {",
		new:   "task.Held && false {",
		tests: [][]string{sim},
	},
	{
		name:  "workers go away with a task without end",
		file:  "internal/core/task.go",
		old:   "		if t.lost+1 < maxLost {\n",
		new:   "		if t.lost+1 < 100*maxLost {\n",
		tests: laneTasks("TestLostWorkers$"),
	},
}
