package mutants

// inputs are bugs in how the engine and the SDK handle values of the wrong type.
var inputs = []mutant{
	{
		name:  "a started run fails when a build cannot read its input",
		file:  "workflow.go",
		old:   "	case ctx.x.HasBegun():\n",
		new:   "	case false:\n",
		tests: [][]string{{".", "-run", "TestWrongTypeOfAnotherBuild$"}},
	},
	{
		name:  "a sleeping run does not count as started",
		file:  "internal/engine/lane/dispatch.go",
		old:   ", Begun: e.x.Parked || len(e.x.Timers()) > 0,",
		new:   ",",
		tests: [][]string{{".", "-run", "TestWrongTypeOfAnotherBuild$"}},
	},
	{
		name:  "a one-way call of the wrong type is dropped",
		file:  "internal/entity/handover.go",
		old:   "		made = !not\n",
		new:   "		_ = not\n",
		tests: [][]string{{".", "-run", "TestWrongType$"}},
	},
}

// cancels are bugs in how workers learn that a task was canceled.
var cancels = []mutant{
	{
		name:  "the next owner does not tell a worker that its task was canceled",
		file:  "internal/engine/lane/post.go",
		old:   "		case id != 0:\n			// This warns the worker if its task is canceled, which the last owner may not have\n			// done.\n			l.postTask(now, e, t)",
		new:   "		case id != 0 && false:\n			l.postTask(now, e, t)",
		tests: [][]string{laneTest("TestCancelUnderAnotherOwner$")},
	},
	{
		name:  "a claim that is handed over late does not say that it was canceled",
		file:  "internal/engine/lane/handover.go",
		old:   "Canceled: e.x.Alone() && e.x.Canceling != 0,\n",
		new:   "Canceled: false,\n",
		tests: [][]string{laneTest("TestCanceledClaimIsHandedOver$")},
	},
}

// crowded are bugs that let the waiting calls of one entity harm other entities.
var crowded = []mutant{
	{
		name:  "stored calls of one entity take room from others",
		file:  "internal/engine/lane/budget.go",
		old:   "n = a.entity.Loose()\n",
		new:   "n = a.entity.Size()\n",
		tests: [][]string{laneTest("TestNeighboursOfAFullEntityGoOn$")},
	},
	{
		name:  "calls of one entity take all the room in memory",
		file:  "internal/engine/lane/makeroom.go",
		old:   "own > 0 && own+m.Size() > most",
		new:   "own < 0 && own+m.Size() > most",
		tests: [][]string{laneTest("TestNeighboursOfAFullEntityGoOn$")},
	},
}

// fullHistories are bugs in the warnings about histories that are too long.
var fullHistories = []mutant{
	{
		name:  "code gets the hint to continue as new during replay",
		file:  "internal/replay/size.go",
		old:   "past || !near(m.length(), lim.Events)",
		new:   "!near(m.length(), lim.Events)",
		tests: [][]string{{".", "-run", "TestSuggestionIsNotMadeInThePast$"}},
	},
	{
		name:  "a run that reaches its limit is not reported",
		file:  "internal/engine/lane/await.go",
		old:   "	b.effects = append(b.effects, effect{kind: effLimit, entry: e, err: err})\n",
		new:   "",
		tests: [][]string{{".", "-run", "TestWaitersOfAFullHistoryFail$", "-timeout", "30s"}},
	},
}
