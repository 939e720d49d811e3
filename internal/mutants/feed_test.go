package mutants

func feedTest(run string) [][]string { return [][]string{{"./internal/engine/feed", "-run", run}} }

// watched are bugs of the feed: a watcher misses changes without a notice, or sees changes that it
// should not see.
var watched = []mutant{
	{
		name:  "a watch that begins during a commit misses its changes",
		file:  "internal/engine/lane/write.go",
		old:   "	b.noteWritten(place, e, key.Run, d)\n",
		new:   "	if l.cfg.WantsChanges != nil && l.cfg.WantsChanges() {\n		b.noteWritten(place, e, key.Run, d)\n	}\n",
		tests: [][]string{{"./internal/engine/lane", "-run", "TestWatchBeginsDuringACommit$"}},
	},
	{
		name:  "a start that met an existing run is a change",
		file:  "internal/engine/lane/changes.go",
		old:   "		n.skip(b.batch.Starts[x.Index].Start.Run)\n",
		new:   "		_ = x\n",
		tests: [][]string{{"./internal/engine/lane", "-run", "TestChangesAreToldOnce$"}},
	},
	{
		name:  "a slow watcher continues behind the gap without a notice",
		file:  "internal/engine/feed/watcher.go",
		old:   "		w.gap = !w.fresh || !w.begins\n		w.next = t.next\n",
		new:   "		w.next = t.first\n",
		tests: feedTest("TestSlowReader$"),
	},
	{
		name:  "the bytes of the feed are not bounded",
		file:  "internal/engine/feed/topic.go",
		old:   " || t.bytes > bytes)",
		new:   " || t.bytes > bytes && false)",
		tests: feedTest("TestSlowReader$"),
	},
	{
		name:  "the cursor of another tenant is good",
		file:  "internal/engine/feed/hub.go",
		old:   "	case at.topic == t.id && at.next <= t.next:",
		new:   "	case at.next <= t.next:",
		tests: feedTest("TestUnknownCursors$"),
	},
	{
		name:  "the changes are dropped as soon as the last watcher leaves",
		file:  "internal/engine/feed/hub.go",
		old:   "		if t.watchers == 0 && now-t.since >= h.cfg.Linger {",
		new:   "		if t.watchers == 0 {",
		tests: feedTest("TestLinger$"),
	},
	{
		name:  "watchers do not learn that shards have moved here",
		file:  "internal/engine/feed/hubnodes.go",
		old:   "	h.miss(true)\n	h.ringAll()\n	ready := h.report(Piece{Kind: PieceClaim",
		new:   "	h.ringAll()\n	ready := h.report(Piece{Kind: PieceClaim",
		tests: feedTest("TestMovesBetweenNodes$"),
	},
	{
		name:  "watchers sleep on after a portion that ends with a late change",
		file:  "internal/engine/feed/inlet.go",
		old:   "	if last != nil {\n		last.ring()\n	}\n",
		new:   "",
		tests: feedTest("TestPortionThatEndsWithALateChange$"),
	},
	{
		name:  "a broken connection does not make a node look for a dead process",
		file:  "internal/engine/directnotes.go",
		old:   "	h.inc.suspect(node)\n",
		new:   "",
		tests: [][]string{{"./internal/engine", "-run", "TestDeathIsNoticedWhenTheConnectionBreaks$"}},
	},
	{
		name:  "a node does not tell its own lane about a request that it has stored",
		file:  "internal/engine/incarnation.go",
		old:   "	if inc := e.current(); inc != nil && inc.lane(s) != nil {\n		inc.handleHint(h)\n",
		new:   "	if inc := e.current(); inc != nil && inc.lane(s) != nil {\n",
		tests: [][]string{{"./internal/engine", "-run", "TestRequestsThatArriveAfterTheTakeover$"}},
	},
	{
		name:  "shards that become free during an acquire wait for the next renewal",
		file:  "internal/cluster/membership.go",
		old:   "	if m.missed && err == nil {\n",
		new:   "	if m.missed && err == nil && false {\n",
		tests: [][]string{{"./internal/cluster", "-run", "TestAcquiresFreeShards$"}},
	},
	{
		name:  "a stopping server gives the calls of its remote workers to other workers",
		file:  "internal/engine/lane/entity.go",
		old:   "e.callsOutlived = e.callsOutlived || l.outlive()",
		new:   "e.callsOutlived = e.callsOutlived || false && l.outlive()",
		tests: [][]string{laneTest("TestEntityWorkersOfAStoppingServerLeave$")},
	},
	{
		name:  "a watch begins anew after its stream has broken",
		file:  "internal/remote/watch.go",
		old:   "		w.r.Cursor = page.Cursor\n",
		new:   "",
		tests: remoteTest("TestFeedIsComplete$"),
	},
}
