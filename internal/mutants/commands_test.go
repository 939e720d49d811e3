package mutants

func cliTest(run string) [][]string { return [][]string{{"./internal/cli", "-run", run}} }

// commands are bugs in what the command line takes for the id that was meant: it would act on
// another execution.
var commands = []mutant{
	{
		name:  "the beginning of a key that people chose names an execution",
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
		name:  "an operator trips a breaker that nothing has",
		file:  "internal/cli/known.go",
		old:   "	if anything {\n",
		new:   "	if true {\n",
		tests: cliTest("TestUnknownNames$"),
	},
}
