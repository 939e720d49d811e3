package mutants

// share are bugs of limits and breakers that nodes share.
var share = []mutant{
	{
		name:  "what a node tells a breaker twice counts twice",
		file:  "internal/core/breaker/owner.go",
		old:   "		if seq <= b.heard[i].Seq {\n",
		new:   "		if false && seq <= b.heard[i].Seq {\n",
		tests: [][]string{shared},
	},
	{
		name:  "a probe passes a breaker that its node knows to be open again",
		file:  "internal/core/breaker/view.go",
		old:   "	if n.Probe.Generation != n.Generation {\n",
		new:   "	if false && n.Probe.Generation != n.Generation {\n",
		tests: [][]string{shared, {"./internal/core/breaker", "-run", "TestProbeThatIsOutOfDate$"}},
	},
	{
		name:  "a probe passes a breaker that is paused",
		file:  "internal/core/breaker/view.go",
		old:   " && v.news.Held <= now\n",
		new:   "\n",
		tests: [][]string{{"./internal/core/breaker", "-run", "TestProbeThatIsOutOfDate$"}},
	},
	{
		name:  "a view takes a probe by itself",
		file:  "internal/core/breaker/view.go",
		old:   "	case n.State == Closed:\n",
		new:   "	case n.State == Closed || n.State == HalfOpen:\n",
		tests: [][]string{shared},
	},
	{
		name:  "that there is no probe is told to nobody",
		file:  "internal/engine/gate/message.go",
		old:   "	c.view.Receive(now, n)\n	g.wakeCircuit(c) //",
		new:   "	if !c.view.Receive(now, n) {\n		return\n	}\n	g.wakeCircuit(c) //",
		tests: [][]string{shared, {"./internal/engine/gate", "-run", "TestNoProbeIsAnAnswer$"}},
	},
	{
		name:  "a permit that is given back is free twice",
		file:  "internal/core/limit/owner.go",
		old:   "	o.leased -= returned\n",
		new:   "	o.leased -= 2 * returned\n",
		tests: [][]string{shared},
	},
	{
		name:  "a page does not tell what it was told",
		file:  "internal/engine/ledger/book.go",
		old:   "	p.seen[b.place] = s.seq\n",
		new:   "	p.seen[b.place] = 0\n",
		tests: [][]string{shared},
	},
	{
		name:  "a page is handed over without what others have told it",
		file:  "internal/engine/ledger/book.go",
		old:   "owners: p.owners, letters: instead.letters, seen",
		new:   "owners: p.owners, seen",
		tests: [][]string{shared},
	},
	{
		name:  "a want that crosses a grant stays on the page",
		file:  "internal/engine/ledger/book.go",
		old:   "			b.Gate.Believed(now, id, want, tokens, over)\n",
		new:   "			_ = b\n",
		tests: [][]string{shared, {"./internal/engine/ledger", "-run", "TestWantThatCrossesAGrant$"}},
	},
	{
		name:  "who leaves keeps its permits",
		file:  "internal/engine/ledger/book.go",
		old:   "	b.Gate.Rest(now)\n	b.Post()\n	for i := range b.sheets {\n",
		new:   "	b.Post()\n	for i := range b.sheets {\n",
		tests: [][]string{shared},
	},
	{
		name:  "a claim is made that is not proposed any more",
		file:  "internal/engine/lane/task.go",
		old:   "		if !l.cfg.Board.Proposed(t.worker,",
		new:   "		if false && !l.cfg.Board.Proposed(t.worker,",
		tests: append(laneTasks("TestProposalOfATaskThatCameBack$|TestClaimBesidePoison$"), shared),
	},
	{
		name:  "a claim that nobody has is waited for as long as its node lives",
		file:  "internal/engine/lane/task.go",
		old:   "task.Claim == t.claim && l.cfg.Board.Dropped(task.Worker, ref) {",
		new:   "task.Claim == t.claim && false {",
		tests: [][]string{{"./internal/sim", "-run", "TestKnownSeeds$"}},
	},
}
