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
		old:   "	if w.next < t.first {\n		w.gap = true\n	}\n",
		new:   "	w.next = max(w.next, t.first)\n",
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
		file:  "internal/engine/watch.go",
		old:   "	inc.eng.feed.Miss()\n",
		new:   "",
		tests: [][]string{{"./internal/engine", "-run", "TestWatchersOfSeveralNodes$"}},
	},
	{
		name:  "a watch begins anew after its stream has broken",
		file:  "internal/remote/watch.go",
		old:   "		w.r.Cursor = page.Cursor\n",
		new:   "",
		tests: remoteTest("TestFeedIsComplete$"),
	},
}
