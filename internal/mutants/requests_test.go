package mutants

// requestIDs runs the test of the public face on the store in memory.
var requestIDs = []string{"./internal/e2e", "-run", "TestRequestIDs$/^plain$/^memory$"}

// requests are bugs in what a request id stands for, and in what is stored and waited for when somebody calls.
var requests = []mutant{
	{
		name:  "a relay repeats a delivery that the engine may have forgotten",
		file:  "outbox.go",
		old:   "l.InDoubt(remembers) {\n",
		new:   "l.InDoubt(remembers) && false {\n",
		tests: [][]string{{"./internal/txtest", "-run", "TestRelayIsDownForLong$"}},
	},
	{
		name:  "a request id that was used for another request is answered as that was",
		file:  "internal/engine/lane/load.go",
		old:   "	return core.MisusedBy(in.message, &a)\n",
		new:   "	_ = core.MisusedBy(in.message, &a)\n	return nil\n",
		tests: [][]string{laneTest("TestMisusedRequestID$"), requestIDs},
	},
	{
		name:  "a remembered answer does not say what it is for",
		file:  "internal/engine/lane/mail.go",
		old:   "	kept.For = use\n",
		new:   "	_ = use\n",
		tests: [][]string{laneTest("TestMisusedRequestID$"), requestIDs},
	},
	{
		name:  "the input is no part of a request",
		file:  "internal/model/request.go",
		old:   "	return len(u.Sum) == 0 || len(other.Sum) == 0 || bytes.Equal(u.Sum, other.Sum)\n",
		new:   "	return true || bytes.Equal(u.Sum, other.Sum)\n",
		tests: [][]string{coreTest("TestMisused$"), requestIDs},
	},
	{
		name:  "an update that is not answered gives its id to another one",
		file:  "internal/core/message.go",
		old:   "			if f := Misused(m, useOf(u)); f != nil {\n",
		new:   "			if f := Misused(m, useOf(u)); f != nil && false {\n",
		tests: [][]string{laneTest("TestMisusedRequestIDOfAnUpdate$"), coreTest("TestRandomInputs$")},
	},
	{
		name:  "a call in a mailbox gives its id to another one",
		file:  "internal/core/entity.go",
		old:   "		if f := Misused(m, it.Message.Use()); f != nil {\n",
		new:   "		if f := Misused(m, it.Message.Use()); f != nil && false {\n",
		tests: [][]string{laneTest("TestMisusedRequestIDOfACall$")},
	},
	{
		name:  "the refusal of a misused id is remembered in the place of the answer",
		file:  "internal/engine/lane/mail.go",
		old:   "	case in.misused || d.Misused || !again && !query && temporary(d.Answer.Failure): // the id does not belong to this request; whoever sent it looks for its refusal as well\n",
		new:   "	case in.misused:\n",
		tests: [][]string{laneTest("TestMisusedRequestIDOfAnUpdate$")},
	},
	{
		name:  "a row of the inbox that was seen is consumed without a look at what was remembered",
		file:  "internal/engine/lane/mail.go",
		old:   "	if row.Seen && !in.once() {",
		new:   "	if row.Seen {",
		tests: [][]string{laneTest("TestMisusedRequestIDInTheInbox$")},
	},
	{
		name:  "a start with signals under the id of a start without them is acknowledged",
		file:  "internal/core/message.go",
		old:   "		if !x.cameWith(m.With) {\n",
		new:   "		if !x.cameWith(m.With) && false {\n",
		tests: [][]string{laneTest("TestSignalWithStartUnderTheIDOfAStart$")},
	},
	{
		name:  "who asks another process does not compare what is remembered",
		file:  "internal/engine/clerk.go",
		old:   "		if f := core.MisusedBy(c.asked, &a.Answer); f != nil {\n",
		new:   "		if f := core.MisusedBy(c.asked, &a.Answer); f != nil && false {\n",
		tests: [][]string{{"./internal/e2e", "-run", "TestRequestIDs$/^plain$/^postgres$"}},
	},
	{
		name:  "what is sealed under a request id has nothing to be compared by",
		file:  "host.go",
		old:   "	if requestID == \"\" {\n		return h.seal(",
		new:   "	if true || requestID == \"\" {\n		return h.seal(",
		tests: [][]string{{"./internal/e2e", "-run", "TestRequestIDs$/^sealed$/^memory$"}},
	},
	{
		name:  "a persisted call of this process is only in memory",
		file:  "internal/engine/lane/entity.go",
		old:   "	if e.address.Stateless() && !m.Brief && !remote {\n",
		new:   "	if e.address.Stateless() && !m.Brief && !remote && false {\n",
		tests: [][]string{laneTest("TestServiceCallOutlivesItsOwner$"), {"./internal/chaos", "-run", "TestPersistedCallOutlivesItsProcess$"}},
	},
	{
		name:  "a persisted call is made before its row is there",
		file:  "internal/engine/lane/entity.go",
		old:   "		a.Stored, a.Held = true, true // it is made at least once",
		new:   "		a.Stored = true // it is made at least once",
		tests: [][]string{laneTest("TestServiceCallIsStoredFirst$")},
	},
	{
		name:  "an update is called inside of a lock",
		file:  "internal/replay/child.go",
		old:   "	if msg.Kind == model.MessageUpdate && x.held() != nil && !m.foretold(x.co.path, &id) {\n",
		new:   "	if msg.Kind == model.MessageUpdate && x.held() != nil && !m.foretold(x.co.path, &id) && false {\n",
		tests: [][]string{{"./internal/replay", "-run", "TestLockRules$"}},
	},
	{
		name:  "a worker has a section wait for an update",
		file:  "internal/core/section.go",
		old:   "		if e.Section != \"\" {\n			return r.broken(\"waits for update",
		new:   "		if e.Section != \"\" && false {\n			return r.broken(\"waits for update",
		tests: [][]string{coreTest("TestSectionRefusesUpdates$")},
	},
	{
		name:  "whoever waits for an accepted update hears that the lease was lost",
		file:  "internal/engine/lane/await.go",
		old:   "			case w.reply != \"\": // its request",
		new:   "			case w.reply != \"\" && false: // its request",
		tests: [][]string{{"./internal/engine", "-run", "TestAcceptedUpdateOutlivesTheLease$", "-timeout", "60s"}},
	},
}
