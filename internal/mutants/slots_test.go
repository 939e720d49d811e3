package mutants

// slotted runs simulations in which workers take a limited number of runs or calls at a time.
var slotted = []string{"./internal/sim", "-run", "TestSeeds$", "-features=slots", "-seeds=1500", "-failures=1"}

// slots are bugs in how many runs and calls workers get at a time.
var slots = []mutant{
	{
		name:  "a run that waits keeps its slot, so its child never runs",
		file:  "internal/engine/lane/turn.go",
		old:   "	if !e.hold.busy && !continues {\n",
		new:   "	if !e.hold.busy && e.gone {\n",
		tests: [][]string{laneTest("TestSlotsForRuns$")},
	},
	{
		name:  "news goes to a worker that has no free slot",
		file:  "internal/engine/lane/dispatch.go",
		old:   "	case !e.hold.free() && e.hold.wakes(events) && !l.wake(e):\n",
		new:   "	case !e.hold.free() && e.gone:\n",
		tests: [][]string{laneTest("TestSlotsForRuns$"), slotted},
	},
	{
		name:  "a step is tried again on a worker that has no free slot",
		file:  "internal/engine/lane/dispatch.go",
		old:   "	case !e.hold.free() && !l.wake(e):\n",
		new:   "	case !e.hold.free() && e.gone:\n",
		tests: [][]string{laneTest("TestSlotForRetry$")},
	},
	{
		name:  "a run that overtakes others gets the slot that they wait for",
		file:  "internal/engine/lane/slots.go",
		old:   "	if n := w.lineOf(k, pin); n != nil && len(n.waiting) > 0 {\n",
		new:   "	if n := w.lineOf(k, pin); n != nil && w.lane < 0 {\n",
		tests: [][]string{laneTest("TestSlotsAreGivenInOrder$")},
	},
	{
		name:  "a slot is free before the worker learns that it loses the run",
		file:  "internal/engine/lane/dispatch.go",
		old:   "e.eviction.begin(e.hold.run, e.hold.seat.move())",
		new:   "e.eviction.begin(e.hold.run, seat{})",
		tests: [][]string{slotted},
	},
	{
		name:  "the slot of a read is lost with the read",
		file:  "internal/engine/lane/entryparts.go",
		old:   "	r.history, r.tail, r.events = false, nil, nil\n	r.seat.leave()\n",
		new:   "	r.history, r.tail, r.events = false, nil, nil\n",
		tests: [][]string{slotted},
	},
	{
		name:  "what waits for the last worker of a tenant never reaches a worker of every tenant",
		file:  "internal/engine/lane/dispatch.go",
		old:   "	if len(l.workers.lines) == 0 {\n		return\n	}\n",
		new:   "	if l.dead == nil {\n		return\n	}\n",
		tests: [][]string{laneTest("TestSlotsOfTheLastWorkerOfATenant$")},
	},
	{
		name:  "what waits for a slot is forgotten when its worker leaves",
		file:  "internal/engine/lane/dispatch.go",
		old:   "	l.dropRecalls(id)\n	l.leaveLines(now)\n",
		new:   "	l.dropRecalls(id)\n",
		tests: [][]string{laneTest("TestSlotsOfWorkersThatLeave$")},
	},
	{
		name:  "calls go to a worker that has no free slot",
		file:  "internal/engine/lane/reunion.go",
		old:   "	return l.seatFor(e, pin)\n",
		new:   "	return l.workers.keepSeat(l.workers.pick(e.kind(), \"\")), true\n",
		tests: [][]string{laneTest("TestSlotsForCalls$")},
	},
	{
		name:  "the slot of calls that are given up is free before the worker reports them",
		file:  "internal/engine/lane/entityresult.go",
		old:   "		l.forgotten[j.gen] = s\n",
		new:   "		s.leave()\n",
		tests: [][]string{{"./internal/sim", "-run", "TestSeeds$", "-features=slots,entities", "-seeds=1500", "-failures=1"}},
	},
	{
		name:  "a turn that stores something and records no event is not answered",
		file:  "internal/engine/lane/effects.go",
		old:   "			l.answerTurn(f.call.Worker, f.call.Run, f.call.Generation)\n",
		new:   "",
		tests: [][]string{{"./internal/grpcapi", "-run", "TestEveryTurnIsAnswered$", "-timeout", "90s"}},
	},
	{
		name:  "a lane is not told that a slot is free",
		file:  "internal/engine/slots.go",
		old:   "			s.wake(i)\n",
		new:   "			s.waiting[i] = i < 0\n",
		tests: [][]string{{"./internal/e2e", "-run", "TestSlotsOfAProcess$", "-timeout", "60s"}},
	},
}
