package mutants

// peerTest runs a test of the connections between nodes.
func peerTest(run string) []string { return []string{"./internal/peerlink", "-run", run} }

// linkSeeds runs simulations of nodes that ask each other over connections.
var linkSeeds = []string{"./internal/sim", "-run", "TestSeeds$", "-args", "-seeds=400", "-features=links"}

// eraSeeds runs simulations of clients that draw request ids in eras.
var eraSeeds = []string{"./internal/sim", "-run", "TestSeeds$", "-args", "-seeds=2000", "-features=drawn-ids", "-failures=1"}

// links are bugs of the connections between nodes.
var links = []mutant{
	{
		name:  "a late copy of a request counts as fresh after its connection was lost",
		file:  "internal/engine/lane/arrive.go",
		old:   "l.lost.has(takeLink(m))",
		new:   "l.lost.has(takeLink(m)) && false",
		tests: [][]string{laneTest("TestLateCopyOfALostConnection$"), linkSeeds},
	},
	{
		name:  "the lane does not learn that a connection was lost",
		file:  "internal/engine/lane/mail.go",
		old:   "l.lost.add(now, takeLink(&row.Message))",
		new:   "_ = takeLink(&row.Message)",
		tests: [][]string{laneTest("TestLateCopyOfALostConnection$")},
	},
	{
		name:  "a lane believes ids that clients drew before it acquired shards",
		file:  "internal/engine/lane/shards.go",
		old:   "	l.eras.end()\n",
		new:   "",
		tests: [][]string{laneTest("TestAcquiredShardEndsEras$"), eraSeeds},
	},
	{
		name:  "a lane does not note the ids of clients that it has served",
		file:  "internal/engine/lane/mail.go",
		old:   "	l.eras.serve(id)\n",
		new:   "",
		tests: [][]string{laneTest("TestDrawnIDIsServedOnce$"), eraSeeds},
	},
	{
		name:  "a lane forgets the ids of the era before while it still believes them",
		file:  "internal/engine/lane/eras.go",
		old:   "nil, x.served\n",
		new:   "nil, nil\n",
		tests: [][]string{laneTest("TestErasHaveABound$"), eraSeeds},
	},
	{
		name:  "the lane forgets lost connections when there are many",
		file:  "internal/engine/lane/linked.go",
		old:   "ls.known, ls.forgot = nil, max(ls.forgot, now.Add(linkGrace))",
		new:   "ls.known = nil",
		tests: [][]string{laneTest("TestManyLostConnections$")},
	},
	{
		name:  "a request that arrived before shards were acquired counts as fresh",
		file:  "internal/engine/laneshell.go",
		old:   "o.tenure == s.inc.tenure.Load()",
		new:   "o.tenure <= s.inc.tenure.Load()",
		tests: [][]string{{"./internal/engine", "-run", "TestFreshRequestsOfOtherNodes$"}},
	},
	{
		name:  "a request in the store does not name the connection that was lost",
		file:  "internal/engine/clerk.go",
		old:   "	asked.Linked = tried.link\n",
		new:   "",
		tests: [][]string{{"./internal/engine", "-run", "TestStoredRequestNamesTheLostConnection$"}},
	},
	{
		name:  "an owner without a lease refuses a request of another node from memory",
		file:  "internal/engine/directserve.go",
		old:   "!serving && !a.Committed && (a.Answer.Existing || a.Answer.Failure != nil), isEnding(a.Err)",
		new:   "isEnding(a.Err)",
		tests: [][]string{{"./internal/engine", "-run", "TestAnswersWithoutALease$"}},
	},
	{
		name:  "a node without a lease asks again for an answer that was committed",
		file:  "internal/engine/lane/effects.go",
		old:   "		case effAnswer:\n			f.answer.Committed = true\n",
		new:   "		case effAnswer:\n",
		tests: [][]string{laneTest("TestDurableAnswers$")},
	},
	{
		name:  "an owner without a lease answers a query of another node",
		file:  "internal/engine/directserve.go",
		old:   "	case s.kind == askQuery && !serving:\n",
		new:   "	case s.kind == askQuery && !serving && false:\n",
		tests: [][]string{{"./internal/engine", "-run", "TestAnswersWithoutALease$"}},
	},
	{
		name:  "a node connects to a process with another certificate",
		file:  "internal/peerlink/identity.go",
		old:   "got != fingerprint {",
		new:   "got == \"\" {",
		tests: [][]string{peerTest("TestRefusals$")},
	},
	{
		name:  "a node accepts a certificate that is not that of the node",
		file:  "internal/peerlink/net.go",
		old:   "return d.peer.Fingerprint == fingerprint",
		new:   "return true",
		tests: [][]string{peerTest("TestRefusals$")},
	},
	{
		name:  "a caller believes that a lost request was not sent",
		file:  "internal/peerlink/conn.go",
		old:   "		k.err = ErrLost\n",
		new:   "		k.err = ErrUnsent\n",
		tests: [][]string{peerTest("TestBreaks$")},
	},
	{
		name:  "a node sends more than the other has room for",
		file:  "internal/peerlink/conn.go",
		old:   "return c.usedItems < creditItems && ",
		new:   "return ",
		tests: [][]string{peerTest("TestCredit$")},
	},
	{
		name:  "a lane forgets a caller of another node before it has the request",
		file:  "internal/engine/directserve.go",
		old:   "	to, awaits, awaited := m.To, q.Kind == askRun, isAwaited(m)\n",
		new:   "	to, awaits, awaited := m.To, q.Kind == askRun, isAwaited(m)\n	r.OnCancel(func() { s.forget(to, token) })\n",
		tests: [][]string{{"./internal/engine", "-run", "TestForgetsAfterTheRequest$"}},
	},
	{
		name:  "replies that are larger than announced go into one frame",
		file:  "internal/peerlink/conn.go",
		old:   "			if len(frame) > maxFrame {\n",
		new:   "			if len(frame) == 0 {\n",
		tests: [][]string{peerTest("TestRepliesThatAreLargerThanAnnounced$")},
	},
	{
		name:  "a large frame must pass the network as fast as a small one",
		file:  "internal/peerlink/conn.go",
		old:   "c.raw.Write(frame[:min(len(frame), partBytes)])",
		new:   "c.raw.Write(frame)",
		tests: [][]string{peerTest("TestSlowNetwork$")},
	},
	{
		name:  "a node does not notice that a connection is half open",
		file:  "internal/peerlink/conn.go",
		old:   "c.raw.SetReadDeadline(time.Now().Add(silence))",
		new:   "c.raw.SetReadDeadline(time.Now().Add(10 * silence))",
		tests: [][]string{peerTest("TestHalfOpen$")},
	},
	{
		name:  "a request counts as fresh that was on its way while its shard moved",
		file:  "internal/engine/directserve.go",
		old:   "tenure: int64(r.Since),",
		new:   "tenure: h.inc.tenure.Load(),",
		tests: [][]string{{"./internal/engine", "-run", "TestRequestThatIsOvertakenByItsCopy$"}},
	},
	{
		name:  "a request has the mark that came back before it was served, not before it arrived",
		file:  "internal/peerlink/conn.go",
		old:   "Since: it.since,",
		new:   "Since: c.net.lastMark(),",
		tests: [][]string{peerTest("TestMarks$")},
	},
	{
		name:  "a late copy of a first frame ends the session between two nodes",
		file:  "internal/engine/crew/owner.go",
		old:   " || f.Session.Compare(o.latest[from]) <= 0:",
		new:   ":",
		tests: [][]string{{"./internal/engine/crew", "-run", "TestForeignFrames$"}},
	},
	{
		name:  "a node adopts the clock of a slow registration",
		file:  "internal/engine/timekeeping.go",
		old:   "	if e.clock.isSet() || !e.cfg.Store.Info().Shared {",
		new:   "	if true {",
		tests: [][]string{{"./internal/engine", "-run", "TestTimerOfANodeThatStartedSlowly$"}},
	},
	{
		name:  "a server that stops counts as one that hands over",
		file:  "internal/engine/former.go",
		old:   " && !m.Draining}",
		new:   "}",
		tests: [][]string{{"./internal/engine", "-run", "TestFormerOwners$"}},
	},
	{
		name:  "a server waits for workers that cannot come",
		file:  "internal/engine/lane/reunion.go",
		old:   "	if l.reunion.asking > now {",
		new:   "	if false {",
		tests: [][]string{laneTest("TestReunionOfAShardThatWasHandedOver$")},
	},
}
