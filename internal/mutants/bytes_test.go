package mutants

// heap is a process that is flooded and measured.
var heap = []string{"./internal/e2e", "-run", "TestHeapUnderHostileInput$"}

// bounds are bugs in how much memory and disk one address may take.
var bounds = []mutant{
	{
		name:  "histories are not bounded in bytes",
		file:  "internal/core/room.go",
		old:   "return lim.Bytes > 0 && x.bytes+size > lim.Bytes",
		new:   "return false",
		tests: [][]string{coreTest("TestHistoryBytesAreBounded$|TestOutcomesWithoutRoomAreDropped$"), heap},
	},
	{
		name:  "what nobody has read is not bounded in bytes",
		file:  "internal/core/room.go",
		old:   "if lim.Unread == 0 || x.unread == 0 || x.unread+size <= lim.Unread {",
		new:   "if true {",
		tests: [][]string{coreTest("TestUnreadBytesAreBounded$")},
	},
	{
		name:  "a signal that was taken still counts as unread",
		file:  "internal/core/execution.go",
		old:   "			x.unread -= x.signals[i].Size()\n",
		new:   "",
		tests: [][]string{coreTest("TestUnreadBytesAreBounded$")},
	},
	{
		name:  "signals with a start are not bounded in bytes",
		file:  "internal/core/message.go",
		old:   "lim.Unread > 0 && size > lim.Unread && len(m.With) > 1",
		new:   "lim.Unread > 0 && size > lim.Unread && false",
		tests: [][]string{coreTest("TestStartsWithSignalsAreBounded$")},
	},
	{
		name:  "the state of a run that nobody serves stays in memory",
		file:  "internal/engine/lane/entry.go",
		old:   "		l.slim(e)\n",
		new:   "",
		tests: [][]string{laneTest("TestStrandedRunsLeaveMemory$"), heap},
	},
	{
		name:  "runs are read for workers without end",
		file:  "internal/engine/lane/room.go",
		old:   "return l.room.used < l.cfg.MaxHeld || l.room.used == 0",
		new:   "return true",
		tests: [][]string{laneTest("TestRoomForHistories$|TestRoomForOneLargeRun$")},
	},
	{
		name:  "a run that waits makes no room for others",
		file:  "internal/engine/lane/room.go",
		old:   "		l.letGoNow(e, \"its history makes room for others\")\n",
		new:   "",
		tests: [][]string{laneTest("TestRoomForHistories$|TestRoomForOneLargeRun$"), sim},
	},
	{
		name:  "calls that wait in memory are not bounded",
		file:  "internal/engine/lane/room.go",
		old:   "l.calls == 0 || l.calls+m.Size() <= l.cfg.MaxBytes",
		new:   "true",
		tests: [][]string{laneTest("TestCallsInMemoryAreBounded$")},
	},
	{
		name:  "the text of an error is cut by the engine only",
		file:  "internal/replay/failure.go",
		old:   "	return f.Bounded()\n",
		new:   "	return f\n",
		tests: [][]string{{"./internal/replay", "-run", "TestTextsAreCutBeforeTheCodeSeesThem$"}},
	},
	{
		name:  "the text of an error is cut by the SDK only",
		file:  "internal/core/turn.go",
		old:   "	e.Failure = e.Failure.Bounded()\n",
		new:   "",
		tests: [][]string{coreTest("TestTextsOfForeignWorkersAreCut$")},
	},
}
