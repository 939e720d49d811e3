package mutants

// flovynDoor are bugs in the door for Flovyn clients.
var flovynDoor = []mutant{
	{
		name:  "what arrives while a worker has the run wakes nobody",
		file:  "internal/flovyn/journal.go",
		old:   "			j.news = j.news || isNews(j.records[i].kind)\n",
		new:   "			_ = isNews(j.records[i].kind)\n",
		tests: [][]string{{"./internal/flovyn", "-short", "-run", "TestConformance/sqlite/signals$"}},
	},
	{
		name:  "a promise has two outcomes",
		file:  "internal/flovyn/journal.go",
		old:   "	if p == nil || p.settled {\n		return\n",
		new:   "	if p == nil {\n		return\n",
		tests: [][]string{{"./internal/flovyn", "-short", "-run", "TestPromiseHasOneOutcome$"}},
	},
	{
		name:  "an activation that never reached its worker stays with it",
		file:  "internal/flovyn/flowqueue.go",
		old:   "	case since > cfg.Unconfirmed && !r.confirmed:\n",
		new:   "",
		tests: [][]string{{"./internal/flovyn", "-short", "-run", "TestWorkOfLostWorkers$"}},
	},
	{
		name:  "the submission of a first worker counts as that of the second",
		file:  "internal/flovyn/flowqueue.go",
		old:   "	if !r.owed {\n		r.claimed = r.last\n	}\n",
		new:   "	r.claimed = r.last\n",
		tests: [][]string{{"./internal/flovyn", "-short", "-run", "TestSubmissionOfFirstWorkerLosesNoNews$"}},
	},
	{
		name:  "a client that waits for the result confirms the activation of a worker",
		file:  "internal/flovyn/submit.go",
		old:   "!r.confirmed && r.client == clientOf(ctx)",
		new:   "!r.confirmed",
		tests: [][]string{{"./internal/flovyn", "-short", "-run", "TestEventsForClientConfirmNothing$"}},
	},
	{
		name:  "a task stays with a worker that has closed its connection",
		file:  "internal/flovyn/taskqueue.go",
		old:   "	if t.lostAt.IsZero() && !q.d.connected(t.client) {\n",
		new:   "	if t.lostAt.IsZero() && t.client == \"\" {\n",
		tests: [][]string{{"./internal/flovyn", "-short", "-run", "TestTasksOfLostWorkers/closed"}},
	},
	{
		name:  "the late return of an attempt ends the next one",
		file:  "internal/flovyn/taskqueue.go",
		old:   "	if q.held[t.id()] != t || t.reporting {\n",
		new:   "	if t = q.held[t.id()]; t == nil || t.reporting {\n",
		tests: [][]string{{"./internal/flovyn", "-short", "-run", "TestLateNewsOfAnAttempt$"}},
	},
	{
		name:  "a failed execution keeps its idempotency key",
		file:  "internal/flovyn/keys.go",
		old:   "	return s == model.Failed || s == model.Canceled || s == model.Terminated\n",
		new:   "	return s == model.Canceled || s == model.Terminated\n",
		tests: [][]string{{"./internal/flovyn", "-short", "-run", "TestConformance/sqlite/keys$"}},
	},
	{
		name:  "a caller names the organization of another",
		file:  "internal/flovyn/orgs.go",
		old:   "	if !who.Admin {\n		return \"\", fault.New(fault.Denied",
		new:   "	if who.Tenant == \"\" {\n		return \"\", fault.New(fault.Denied",
		tests: [][]string{{"./internal/flovyn", "-short", "-run", "TestConformance/sqlite/refusals$"}},
	},
	{
		name:  "a note ends the back-off of a step",
		file:  "internal/core/turn.go",
		old:   "		if e.Kind != model.EventSignalTaken && e.Kind != model.EventNoted {\n",
		new:   "		if e.Kind != model.EventSignalTaken {\n",
		tests: [][]string{{"./internal/core", "-run", "TestTranscripts|Property"}},
	},
}
