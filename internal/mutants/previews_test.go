package mutants

// previews lists mutants of events that workers get before they are committed.
var previews = []mutant{
	{
		name:  "a worker gets a preview while it runs a step",
		file:  "internal/engine/lane/preview.go",
		old:   "	p.still = !t.Running && ",
		new:   "	p.still = ",
		tests: [][]string{laneTest("TestNoPreviewBesideAStep$")},
	},
	{
		name:  "a worker gets a preview while it is about to run a step",
		file:  "internal/engine/lane/preview.go",
		old:   "len(t.Waits) > 0 && !hasCode(t.Waits, model.WaitStep)",
		new:   "len(t.Waits) > 0",
		tests: [][]string{laneTest("TestNoPreviewBesideAStep$")},
	},
	{
		name:  "a worker gets a preview while its code continues",
		file:  "internal/engine/lane/preview.go",
		old:   "	if !h.preview.still || h.preview.heard < h.preview.news ||",
		new:   "	if !h.preview.still ||",
		tests: [][]string{laneTest("TestNoPreviewBeforeTheAnswer$")},
	},
	{
		name:  "a worker that does not take previews gets one",
		file:  "internal/engine/lane/preview.go",
		old:   "!l.workers.previews[h.worker] || ",
		new:   "",
		tests: [][]string{laneTest("TestNoPreviewsForWorkersThatDoNotTakeThem$")},
	},
	{
		name:  "a worker keeps a run of which it knows events that do not exist",
		file:  "internal/engine/lane/careful.go",
		old:   "			e.hold.preview.spoiled = true\n",
		new:   "			e.hold.preview.spoiled = false\n",
		tests: [][]string{laneTest("TestBatchWithAPreviewFails$")},
	},
	{
		name:  "a turn that depends on refused events is recorded",
		file:  "internal/engine/lane/preview.go",
		old:   "return h.preview.spoiled && t.Seen > h.preview.sure",
		new:   "return false && t.Seen > h.preview.sure",
		tests: [][]string{laneTest("TestBatchWithAPreviewFails$|TestPoisonBehindAPreview$")},
	},
	{
		name:  "a turn before a refused preview is dropped, with the outcome of a step",
		file:  "internal/engine/lane/preview.go",
		old:   "return h.preview.spoiled && t.Seen > h.preview.sure",
		new:   "return h.preview.spoiled",
		tests: [][]string{laneTest("TestBatchWithAPreviewFails$")},
	},
	{
		name:  "a paused run is told that its preview is durable",
		file:  "internal/engine/lane/dispatch.go",
		old:   "e.hold.busy && !e.hold.hasPreview() && (e.hold.withheld || l.mustLeave(e)):\n		// The run stops here",
		new:   "e.hold.busy && (e.hold.withheld || l.mustLeave(e)):\n		// The run stops here",
		tests: [][]string{laneTest("TestPauseBehindAPreview$")},
	},
	{
		name:  "no worker hears that its preview is durable",
		file:  "internal/engine/lane/effects.go",
		old:   "		l.confirmPreview(e)\n",
		new:   "",
		tests: [][]string{laneTest("TestBatchDoesNotWaitForSlowCode$")},
	},
	{
		name:  "a batch does not wait for a worker with a preview",
		file:  "internal/engine/lane/preview.go",
		old:   "		l.open.previews = append(l.open.previews, e)\n",
		new:   "",
		tests: [][]string{laneTest("TestSectionInOneCommit$|TestBatchDoesNotWaitForSlowCode$")},
	},
	{
		name:  "a batch waits again and again for workers that are slow with previews",
		file:  "internal/engine/lane/ahead.go",
		old:   "		l.noteSlow(now, e, e.hold.preview.since)\n",
		new:   "		_ = e\n",
		tests: [][]string{laneTest("TestBatchDoesNotWaitForSlowCode$")},
	},
	{
		name:  "a worker starts a step because of a preview",
		file:  "internal/replay/preview.go",
		old:   "return len(m.ahead) == 0 && int64(m.fed) <= m.r.durable",
		new:   "return len(m.ahead) == 0",
		tests: [][]string{{"./internal/replay", "-run", "TestPreview$"}},
	},
}
