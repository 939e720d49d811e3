package mutants

// clockTests run a node whose clocks jump or stop.
func clockTests(run string) [][]string { return [][]string{{"./internal/e2e", "-run", run}} }

// pureClock runs the property tests of storeclock.
var pureClock = [][]string{{"./internal/engine/storeclock"}}

// clocks are bugs in how a node estimates the time.
var clocks = []mutant{
	{
		name:  "a node that was paused fences every lease that looks expired",
		file:  "internal/cluster/sighting.go",
		old:   "max(m.lastView.Add(ttl), m.view.Now)",
		new:   "m.lastView.Add(ttl)",
		tests: [][]string{{"./internal/cluster", "-run", "TestSmallJumpWhileANodeStandsStill$"}},
	},
	{
		name:  "the store's time is anchored when the answer arrives",
		file:  "internal/engine/storeclock/clock.go",
		old:   "to: min(max(c.line.to, low), high)}",
		new:   "to: low}",
		tests: pureClock,
	},
	{
		name:  "a node steps to the store's time instead of slewing",
		file:  "internal/engine/storeclock/clock.go",
		old:   "c.line = Mapping{at: r.Got, from: ours, to: min(max(c.line.to, low), high)}",
		new:   "c.line = Mapping{at: r.Got, from: low, to: low}",
		tests: append(clockTests("TestSleepBesideSlowRenewals$"), pureClock...),
	},
	{
		name:  "a jump of the store's clock is followed at once",
		file:  "internal/engine/storeclock/clock.go",
		old:   "if got-d.since < c.cfg.Persist {",
		new:   "if false {",
		tests: append(clockTests("TestSleepBesideJumps$"), pureClock...),
	},
	{
		name:  "the first reading puts the node behind the store",
		file:  "internal/engine/storeclock/clock.go",
		old:   "c.line = Mapping{at: r.Got, from: high, to: high}",
		new:   "c.line = Mapping{at: r.Got, from: low, to: low}",
		tests: pureClock,
	},
	{
		name:  "retention continues while the store's clock is in doubt",
		file:  "internal/engine/storeclock/clock.go",
		old:   "return c.set && c.doubt == nil && own >= c.deletes",
		new:   "return c.set && own >= c.deletes",
		tests: pureClock,
	},
	{
		name:  "a process deletes old things as soon as it is opened",
		file:  "internal/engine/storeclock/clock.go",
		old:   "c.set, c.agreed, c.deletes = true, r.Got, r.Got+c.cfg.Persist",
		new:   "c.set, c.agreed, c.deletes = true, r.Got, r.Got",
		tests: clockTests("TestJumpDeletesNothing$"),
	},
	{
		name:  "a lane removes runs although it must keep them",
		file:  "internal/engine/lane/retention.go",
		old:   "	r.keep = keep\n",
		new:   "	_ = keep\n",
		tests: append(clockTests("TestJumpDeletesNothing$"), []string{"./internal/engine/lane", "-run", "TestKeepAll$"}),
	},
	{
		name:  "a timer waits until the clock has caught up with the history",
		file:  "internal/core/turn.go",
		old:   "	return min(c.Event.Due, now.Add(c.Delay))\n",
		new:   "	return c.Event.Due\n",
		tests: [][]string{{"./internal/core", "-run", "TestTimerOfAHistoryThatIsAhead$"}},
	},
	{
		name:  "a step back of the store's clock is never accepted",
		file:  "internal/engine/storeclock/clock.go",
		old:   "		v.Change = WentBack\n",
		new:   "",
		tests: pureClock,
	},
	{
		name:  "the first node that renews after a jump fences the others",
		file:  "internal/cluster/sighting.go",
		old:   "		s.odd = s.odd || wrong\n",
		new:   "",
		tests: [][]string{{"./internal/cluster", "-run", "TestJumpFencesNobody$"}},
	},
	{
		name:  "a node assumes that all leases are as long as its own",
		file:  "internal/cluster/sighting.go",
		old:   "		return n.TTL\n",
		new:   "		return m.cfg.TTL\n",
		tests: [][]string{{"./internal/cluster", "-run", "LongLease"}},
	},
	{
		name:  "a node assumes that all leases of an older release are as long as its own",
		file:  "internal/cluster/sighting.go",
		old:   "		last = min(n.Expires.Sub(m.lastView), Longest)\n",
		new:   "		last = m.cfg.TTL\n",
		tests: [][]string{{"./internal/cluster", "-run", "LongLease"}},
	},
	{
		name:  "a node expects that no lease is shorter than its own",
		file:  "internal/cluster/sighting.go",
		old:   "m.lastView.Add(ttl)",
		new:   "m.lastView.Add(m.cfg.TTL)",
		tests: [][]string{{"./internal/cluster", "-run", "TestShortLeaseIsNotProlonged$"}},
	},
	{
		name:  "a node compares a small jump only with the margin of its own lease",
		file:  "internal/cluster/sighting.go",
		old:   "wrong := off > ttl/marginShare/2",
		new:   "wrong := off > m.cfg.TTL/marginShare/2",
		tests: [][]string{{"./internal/cluster", "-run", "TestSmallJumpIsLongForAShortLease$"}},
	},
	{
		name:  "a lease that was renewed by a wrong clock, unseen, fences its node",
		file:  "internal/cluster/sighting.go",
		old:   "	off := max(m.off, m.wasOff)\n",
		new:   "	off := m.off\n",
		tests: [][]string{{"./internal/cluster", "-run", "TestSmallJumpThatEndsWhileANodeStandsStill$"}},
	},
	{
		name:  "a node with a long lease seldom reads the store's clock",
		file:  "internal/cluster/membership.go",
		old:   "min(c.TTL/5, time.Minute)",
		new:   "c.TTL / 5",
		tests: [][]string{{"./internal/cluster", "-run", "TestLongLeaseIsRenewedOften$"}, engineTest("TestClockIsPutForward$")},
	},
	{
		name:  "a late request fences a node that has renewed",
		file:  "internal/store/rows.go",
		old:   "	return expires == r.Expires && (expired || r.Abandoned)\n",
		new:   "	return expired || r.Abandoned\n",
		tests: [][]string{{"./internal/store/memory", "-run", "TestConformance$/^leases$"}},
	},
	{
		name:  "an abandoned lease counts as a proof of death",
		file:  "internal/cluster/membership.go",
		old:   "Abandoned: abandoned, Proven: proven}",
		new:   "Proven: proven || abandoned}",
		tests: [][]string{{"./internal/cluster", "-run", "TestStepBackKeepsNoDeadNode$"}},
	},
	{
		name:  "tokens start at the clock when the row of an entity is gone",
		file:  "internal/core/entity.go",
		old:   "max(n.Row.Epoch+1, n.Floor+1, int64(now))",
		new:   "max(n.Row.Epoch+1, int64(now))",
		tests: clockTests("TestTokensGrow$"),
	},
	{
		name:  "tokens are given out above the mark of their shard",
		file:  "internal/engine/lane/write.go",
		old:   "		b.reserve(e.shard, &c.Entity)\n",
		new:   "",
		tests: clockTests("TestTokensGrow$"),
	},
	{
		name:  "the mark of tokens falls",
		file:  "internal/store/memory/tables.go",
		old:   "s.tokens[row.Shard] = max(was, row.Mark)",
		new:   "s.tokens[row.Shard] = row.Mark",
		tests: [][]string{{"./internal/store/memory", "-run", "TestConformance$/^shards$"}},
	},
	{
		name:  "a lease is measured with a clock that stops in a suspend",
		file:  "internal/engine/clock.go",
		old:   "return time.Since(c.start) + c.asleep.lastTotal()",
		new:   "return time.Since(c.start)",
		tests: [][]string{{"./internal/engine", "-run", "TestSuspendEndsAnswers$"}},
	},
	{
		name:  "a node commits after a suspend before it has renewed its lease",
		file:  "internal/engine/laneshell.go",
		old:   "	s.inc.awaitLease(ctx)\n",
		new:   "",
		tests: clockTests("TestSuspend$"),
	},
}
