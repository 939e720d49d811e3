package mutants

// answers are bugs in the texts that explain why an execution does not continue.
var answers = []mutant{
	{
		name:  "a run without code in any process is reported as ready",
		file:  "internal/diagnosis/run.go",
		old:   "		return o.Code == model.WaitTurn || o.Code == why.Code && o.Name == why.Name\n",
		new:   "		return o.Code == why.Code && o.Name == why.Name\n",
		tests: [][]string{{"./internal/diagnosis", "-run", "TestJudge$"}},
	},
	{
		name:  "code of any node counts as code of the owner",
		file:  "internal/diagnosis/world.go",
		old:   "	if owner == nil || has(owner, a, pin) {\n",
		new:   "	if _, none := w.WhyNoProcess(a, nil); owner == nil || !none {\n",
		tests: [][]string{{"./internal/diagnosis", "-run", "TestJudge$"}},
	},
	{
		name:  "a node whose lease has ended counts as alive",
		file:  "internal/diagnosis/world.go",
		old:   "m.Expires >= view.Now {",
		new:   "m.Expires >= 0 {",
		tests: [][]string{{"./internal/diagnosis", "-run", "TestJudge$|TestAlive$"}},
	},
	{
		name:  "any version of pinned code counts",
		file:  "internal/diagnosis/world.go",
		old:   "canRun(&s, a) && (!s.Pinned || pin == \"\" || s.Version == pin)",
		new:   "canRun(&s, a) && pin == pin",
		tests: [][]string{{"./internal/diagnosis", "-run", "TestJudge$"}},
	},
}
