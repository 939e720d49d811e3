package mutants

// inputs are bugs in how values of the wrong type are answered.
var inputs = []mutant{
	{
		name:  "a run that has begun fails when a build cannot read its input",
		file:  "workflow.go",
		old:   "	case ctx.x.Begun():\n",
		new:   "	case false:\n",
		tests: [][]string{{".", "-run", "TestWrongTypeOfAnotherBuild$"}},
	},
	{
		name:  "nobody knows that a run which sleeps has begun",
		file:  "internal/engine/lane/dispatch.go",
		old:   ", Begun: e.x.Parked || len(e.x.Timers()) > 0,",
		new:   ",",
		tests: [][]string{{".", "-run", "TestWrongTypeOfAnotherBuild$"}},
	},
	{
		name:  "a call of the wrong type that nobody waits for is dropped",
		file:  "internal/entity/handover.go",
		old:   "		made = !not\n",
		new:   "		_ = not\n",
		tests: [][]string{{".", "-run", "TestWrongType$"}},
	},
}

// cancels are bugs in what workers hear of tasks that were canceled.
var cancels = []mutant{
	{
		name:  "the next owner does not tell a worker that its task was canceled",
		file:  "internal/engine/lane/task.go",
		old:   "		case id != 0:\n			l.postTask(now, e, t)",
		new:   "		case id != 0 && false:\n			l.postTask(now, e, t)",
		tests: [][]string{laneTest("TestCancelUnderAnotherOwner$")},
	},
	{
		name:  "a claim that is handed over late does not say that it was canceled",
		file:  "internal/engine/lane/task.go",
		old:   "Canceled: e.x.Alone() && e.x.Canceling != 0,\n",
		new:   "Canceled: false,\n",
		tests: [][]string{laneTest("TestCanceledClaimIsHandedOver$")},
	},
}

// fullHistories are bugs in what people hear of histories that are too long.
var fullHistories = []mutant{
	{
		name:  "code is told in its past to continue as new",
		file:  "internal/replay/size.go",
		old:   "past || !near(m.length(), lim.Events)",
		new:   "!near(m.length(), lim.Events)",
		tests: [][]string{{".", "-run", "TestSuggestionIsNotMadeInThePast$"}},
	},
	{
		name:  "nobody hears that a run has reached its limit",
		file:  "internal/engine/lane/await.go",
		old:   "	g.effects = append(g.effects, effect{kind: effLimit, entry: e, err: err})\n",
		new:   "",
		tests: [][]string{{".", "-run", "TestWaitersOfAFullHistoryFail$", "-timeout", "30s"}},
	},
}
