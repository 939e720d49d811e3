package mutants

// sdkTest runs a test of the public API in virtual time.
func sdkTest(name string) []string { return []string{".", "-run", name} }

// optioned runs simulations in which starts have options; see start-options in the table of
// features.
var optioned = []string{"./internal/sim", "-run", "TestSeeds$", "-seed=6", "-step=13", "-seeds=300", "-failures=1"}

// delayed runs simulations in which all starts may have options.
var delayed = []string{"./internal/sim", "-run", "TestSeeds$", "-features=start-options", "-seeds=400", "-failures=1"}

// starting are bugs in the times at which executions start, end and are repeated.
var starting = []mutant{
	{
		name:  "a worker gets a run before its start time",
		file:  "internal/core/terms.go",
		old:   "return x.Start.Begins != 0 && x.timer(beginTimer) >= 0 }",
		new:   "return x.Start.Begins < 0 && x.timer(beginTimer) >= 0 }",
		tests: [][]string{optioned},
	},
	{
		name:  "the next run of an execution has no time-out",
		file:  "internal/core/turn.go",
		old:   "Terms: x.Start.Terms, Expires: x.Start.Expires,\n",
		new:   "Terms: x.Start.Terms,\n",
		tests: [][]string{optioned},
	},
	{
		name:  "another attempt of an execution is not counted",
		file:  "internal/core/terms.go",
		old:   "x.Start.Input, x.Start.Tries()+1, t.Close",
		new:   "x.Start.Input, x.Start.Tries(), t.Close",
		tests: [][]string{optioned},
	},
	{
		name:  "another attempt of an execution begins without a pause",
		file:  "internal/core/terms.go",
		old:   "	s.Begins = max(begins, at+1)\n",
		new:   "	s.Begins = min(begins, 0)\n",
		tests: [][]string{optioned},
	},
	{
		name:  "an execution times out before its time",
		file:  "internal/core/terms.go",
		old:   "	return max(s.At, s.Begins).Add(s.Terms.Timeout)\n",
		new:   "	return s.At.Add(s.Terms.Timeout)\n",
		tests: [][]string{optioned},
	},
	{
		name:  "a signal wakes an execution that waits for its start time",
		file:  "internal/core/decision.go",
		old:   "	if x.Parked && x.Withheld() == nil {\n",
		new:   "	if x.Parked && x.Paused == nil {\n",
		tests: [][]string{coreTest("TestWaitingRun$"), coreTest("TestRandomInputs$")},
	},
	{
		name:  "the timers of a new run are not stored",
		file:  "internal/engine/lane/write.go",
		old:   "	for _, t := range core.BirthTimers(s) {\n",
		new:   "	for _, t := range core.BirthTimers(s)[:0] {\n",
		tests: [][]string{sdkTest("TestStartDelay$"), sdkTest("TestExecutionTimeout$")},
	},
	{
		name:  "the time-out of an execution starts again with every run",
		file:  "internal/core/turn.go",
		old:   "Terms: x.Start.Terms, Expires: x.Start.Expires,\n",
		new:   "Terms: x.Start.Terms, Expires: expiry(&model.Start{At: at, Terms: x.Start.Terms}),\n",
		tests: [][]string{sdkTest("TestExecutionTimeout$"), coreTest("TestRandomInputs$")},
	},
	{
		name:  "a canceled run is repeated",
		file:  "internal/core/terms.go",
		old:   "p == nil || x.Canceling != 0 {\n",
		new:   "p == nil {\n",
		tests: [][]string{coreTest("TestFailedRunIsRepeated$")},
	},
	{
		name:  "a failed run is repeated although its execution times out before",
		file:  "internal/core/terms.go",
		old:   "	return begins, x.Start.Expires == 0 || begins < x.Start.Expires\n",
		new:   "	return begins, true\n",
		tests: [][]string{sdkTest("TestWorkflowRetry$"), coreTest("TestFailedRunIsRepeated$")},
	},
	{
		name:  "the worker asks the policy of the activity although the submission brought one",
		file:  "internal/pool/task.go",
		old:   "t.run.Worth == nil || t.claim.Spec.Retry.Given {\n",
		new:   "t.run.Worth == nil {\n",
		tests: [][]string{sdkTest("TestPolicyOfASubmission$")},
	},
	{
		name:  "a start with times is written without a look whether its key is taken",
		file:  "internal/engine/lane/ready.go",
		old:   "		in.origin.message.Terms == nil &&",
		new:   "		true &&",
		tests: [][]string{laneTest("TestDelayedStartOfATakenKey$")},
	},
	{
		name:  "a worker gets a run before it is stored that its start time has come",
		file:  "internal/engine/lane/timers.go",
		old:   "		e.pending.resuming++\n",
		new:   "",
		tests: [][]string{laneTest("TestDelayedStartIsStoredFirst$"), delayed},
	},
	{
		name:  "a run waits for its start time although its code has begun in its past",
		file:  "internal/core/terms.go",
		old:   "	if s.Begins > s.At && !slices.ContainsFunc(s.Carried, func(e model.Event) bool { return e.ID != \"\" }) {\n",
		new:   "	if s.Begins > s.At && !slices.ContainsFunc(s.Carried, func(e model.Event) bool { return e.Seq < 0 }) {\n",
		tests: [][]string{coreTest("TestPastOfADelayedRun$")},
	},
}
