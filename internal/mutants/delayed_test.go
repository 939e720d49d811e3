package mutants

// delayedCalls are bugs in calls that are made later.
var delayedCalls = []mutant{
	{
		name:  "a call that finds a full mailbox is dropped",
		file:  "internal/delayed/delayed.go",
		old:   "		if !isFull(err) {\n",
		new:   "		if err == nil || isFull(err) {\n",
		tests: [][]string{{".", "-run", "TestSendLaterToAFullMailbox$"}},
	},
	{
		name:  "the value of a call that is made later is stored as it is",
		file:  "seal.go",
		old:   "		return h.sealLater(ctx, pt, p)\n",
		new:   "		return p, nil\n",
		tests: [][]string{{".", "-run", "TestDelayedCallIsSealed$"}},
	},
}
