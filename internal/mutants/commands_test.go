package mutants

func cliTest(run string) [][]string { return [][]string{{"./internal/cli", "-run", run}} }

// commands are bugs that make a command of an operator act on the wrong object. Either the command
// line completes an abbreviated id to the wrong execution, or the service accepts the name of a
// breaker that does not exist.
var commands = []mutant{
	{
		name:  "the command line accepts a prefix of a key that a user chose",
		file:  "internal/cli/abbreviation.go",
		old:   "return (short.marked || machineMade.MatchString(key)) && short.add(",
		new:   "return short.add(",
		tests: cliTest("TestKeysThatLookLikeHashes$"),
	},
	{
		name:  "a key that exists is completed to another",
		file:  "internal/cli/abbreviation.go",
		old:   "if _, err := b.Describe(ctx, api.Target{Address: a}); !fault.Is(err, fault.NotFound) {",
		new:   "if false {",
		tests: cliTest("TestKeysThatLookLikeHashes$"),
	},
	{
		name:  "an ambiguous id names the first execution that fits",
		file:  "internal/cli/abbreviation.go",
		old:   "case len(s.found) == 1:",
		new:   "case true:",
		tests: cliTest("TestAbbreviations$"),
	},
	{
		name:  "an operator trips a breaker that does not exist",
		file:  "internal/service/flow.go",
		old:   "	if err := s.checkBreaker(ctx, \"trip breaker\", tenant, name); err != nil {\n",
		new:   "	if err := s.checkBreaker(ctx, \"trip breaker\", tenant, name); err != nil && name == \"\" {\n",
		tests: [][]string{{".", "-run", "TestOperateBreakersAndQueues$"}},
	},
}
