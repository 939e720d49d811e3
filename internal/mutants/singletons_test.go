package mutants

func singletonTest(run string) []string { return []string{"./internal/singleton", "-run", run} }

// singletons are bugs in the competition for singletons.
var singletons = []mutant{
	{
		name:  "a register is claimed although its holder has renewed it",
		file:  "internal/singleton/register.go",
		old:   "		if c.Epoch != s.Epoch || c.Beat != s.Beat {\n",
		new:   "		if c.Epoch != s.Epoch {\n",
		tests: [][]string{singletonTest("TestCandidatesNeverOverlap|TestDecide")},
	},
	{
		name:  "an earlier holder saves its position",
		file:  "internal/singleton/register.go",
		old:   "	if c.Epoch != s.Epoch || c.Candidate != s.Holder {\n",
		new:   "	if c.Epoch != s.Epoch && c.Verb != VerbSave {\n",
		tests: [][]string{singletonTest("TestDecide")},
	},
	{
		name:  "a late save undoes a later one",
		file:  "internal/singleton/register.go",
		old:   "		if c.Saved > s.Saved {\n",
		new:   "		if c.Saved != s.Saved {\n",
		tests: [][]string{singletonTest("TestCandidatesNeverOverlap|TestDecide")},
	},
	{
		name:  "a candidate does not wait for a whole lease",
		file:  "internal/singleton/watch.go",
		old:   "		return now.Sub(w.since) >= s.Lease\n",
		new:   "		return now.Sub(w.since) >= s.Lease/2\n",
		tests: [][]string{singletonTest("TestCandidatesNeverOverlap|TestHandOver")},
	},
	{
		name:  "the renewal of a singleton counts from its answer",
		file:  "internal/singleton/tenure.go",
		old:   "	if sent.After(t.renewed) {\n		t.renewed = sent\n	}\n",
		new:   "	t.renewed = time.Now()\n	_ = sent\n",
		tests: [][]string{singletonTest("TestContextEndsBeforeTheLease")},
	},
	{
		name:  "the context of the code lasts as long as the lease",
		file:  "internal/singleton/tenure.go",
		old:   "	return t.candidate.cfg.Lease - t.candidate.cfg.Lease/marginShare - passed\n",
		new:   "	return t.candidate.cfg.Lease - passed\n",
		tests: [][]string{singletonTest("TestContextEndsBeforeTheLease")},
	},
	{
		name:  "a process that closes does not release its singletons",
		file:  "internal/singleton/candidate.go",
		old:   "	c.release(ctx, t)\n",
		new:   "",
		tests: [][]string{singletonTest("TestHandOver")},
	},
}
