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
		old:   ", Begun: e.x.Parked || len(e.x.Timers()) > 0},",
		new:   "},",
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
