package mutants

import "slices"

var list = slices.Concat(
	common, histories, tasks, flow, share, starting, entities, files, load, signals, clocks, requests, damaged, bounds, hardships, recalls, commands,
	admin, connections, flovynDoor, watched,
	inputs, fullHistories, cancels, crowded, answers, edges, outlive, outliving, stale, slots, singletons, links, delayedCalls, placement, passing,
)

// histories are bugs in operations on histories, in pinned runs, and in messages between workflows.
var histories = []mutant{
	{
		name:  "a run that waits for its version is forgotten",
		file:  "internal/engine/lane/dispatch.go",
		old:   "			l.settleEntity(now, e)\n		}\n		l.dispatch(now, e)\n		l.maybeDrop(e)\n",
		new:   "			l.settleEntity(now, e)\n		}\n		if e.x == nil || e.x.Pin == \"\" {\n			l.dispatch(now, e)\n		}\n		l.maybeDrop(e)\n",
		tests: [][]string{sim},
	},
	{
		name:  "a run that has just started goes to any version",
		file:  "internal/engine/lane/dispatch.go",
		old:   "	s, ok := l.seatFor(e, e.x.Pin)\n	if !ok {\n		return\n	}\n\n	if !l.room.free() {\n",
		new:   "	s, ok := l.seatFor(e, \"\")\n	if !ok {\n		return\n	}\n\n	if !l.room.free() {\n",
		tests: [][]string{sim},
	},
	{
		name:  "a copy answers the callers of its source",
		file:  "internal/core/past.go",
		old:   "(!takesOver || !x.Open() || !contains(x.updates, e))",
		new:   "(takesOver && (!x.Open() || !contains(x.updates, e)))",
		tests: [][]string{sim},
	},
	{
		name:  "a reset answers an update a second time",
		file:  "internal/core/past.go",
		old:   "(!takesOver || !x.Open() || !contains(x.updates, e))",
		new:   "!takesOver",
		tests: [][]string{sim},
	},
	{
		name:  "a reset loses the updates after its cut",
		file:  "internal/history/cut.go",
		old:   "e.Kind == model.EventPromiseSettled || e.Kind == model.EventUpdateReceived",
		new:   "e.Kind == model.EventPromiseSettled",
		tests: [][]string{sim},
	},
	{
		name:  "a run stays paused when it is reset",
		file:  "internal/history/cut.go",
		old:   "	case model.EventPaused, model.EventResumed:\n		c.blank(i)\n",
		new:   "",
		tests: [][]string{sim},
	},
	{
		name:  "a reset run is not found by the labels of its past",
		file:  "internal/engine/lane/write.go",
		old:   "	b.relabel(store.RunKey{Shard: e.shard.id, Run: d.Start.Run}, d.Start.Carried)\n",
		new:   "",
		tests: [][]string{sim},
	},
	{
		name:  "a reset loses the callers that wait for the run",
		file:  "internal/core/past.go",
		old:   "	for _, w := range x.watchers {\n",
		new:   "	for _, w := range x.watchers[:0] {\n",
		tests: [][]string{sim},
	},
	{
		name:  "a reset keeps the result that was to be edited",
		file:  "internal/history/cut.go",
		old:   "		e.Output, e.Failure = c.r.Edits[i].Output, nil\n",
		new:   "		e.Output = c.r.Edits[i].Output\n",
		tests: [][]string{sim},
	},
	{
		name:  "an imported closed run continues",
		file:  "internal/core/past.go",
		old:   "	if p.Status.Closed() {\n",
		new:   "	if p.Status.Closed() && p.Status != model.Terminated {\n",
		tests: [][]string{sim},
	},
	{
		name:  "a fork replaces an existing run",
		file:  "internal/core/past.go",
		old:   "takesOver || x == nil || mayReplace(x, m):",
		new:   "takesOver || x == nil || !x.Open():",
		tests: [][]string{sim},
	},
	{
		name:  "a retry loses messages to the run",
		file:  "internal/history/cut.go",
		old:   "	if r.Mode == Retry || r.Mode == Reset {\n		c.addAccepted()\n",
		new:   "	if r.Mode == Reset {\n		c.addAccepted()\n",
		tests: [][]string{sim},
	},
	{
		name:  "a run that was deleted is still there",
		file:  "internal/core/past.go",
		old:   "		x = nil\n	}\n	d.Deletes = m.Runs\n",
		new:   "	}\n	d.Deletes = m.Runs\n",
		tests: [][]string{sim},
	},
	{
		name:  "a delete overtakes the run that it deletes",
		file:  "internal/engine/lane/ready.go",
		old:   "e.dirty() && (in.is(model.MessageDelete) || in.isDeadTaskOrder())",
		new:   "e.dirty() && in.isDeadTaskOrder()",
		tests: [][]string{sim},
	},
	{
		name:  "a repeated delete is done again",
		file:  "internal/engine/lane/input.go",
		old:   "m.RequestID == \"\" || m.Kind == model.MessageQuery:",
		new:   "m.RequestID == \"\" || m.Kind == model.MessageQuery || m.Kind == model.MessageDelete:",
		tests: [][]string{sim},
	},
	{
		name:  "a workflow never gets the answer to its update",
		file:  "internal/core/message.go",
		old:   "	if w := u.Waiter(); w.ID != \"\" {\n		d.Messages",
		new:   "	if w := u.Waiter(); w.ID != \"\" && a.Failure == nil {\n		d.Messages",
		tests: [][]string{sim},
	},
	{
		name:  "an update of a workflow is acknowledged before it is answered",
		file:  "internal/core/message.go",
		old:   "	if m.From.ID != \"\" && !d.Pending {\n",
		new:   "	if m.From.ID != \"\" {\n",
		tests: [][]string{sim},
	},
	{
		name:  "updates of workflows are lost when their receiver continues as new",
		file:  "internal/core/turn.go",
		old:   "		if !slices.Contains(t.Close.Begun, u.Seq) {\n			waiting",
		new:   "		if !slices.Contains(t.Close.Begun, u.Seq) && u.Waiter().ID == \"\" {\n			waiting",
		tests: [][]string{sim},
	},
	{
		name:  "a started update gets no answer when its receiver continues as new",
		file:  "internal/core/turn.go",
		old:   "o.Status != model.Continued || slices.Contains(begun, u.Seq) {",
		new:   "o.Status != model.Continued {",
		tests: [][]string{sim},
	},
	{
		name:  "time goes back in a fork",
		file:  "internal/core/execution.go",
		old:   "Last: max(s.At, s.Began),",
		new:   "Last: s.At,",
		tests: [][]string{{"./internal/core", "-run", "TestPastOfAClockThatIsAhead$"}},
	},
}
