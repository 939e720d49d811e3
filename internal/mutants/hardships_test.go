package mutants

// hard runs simulations with lasting faults of one kind; see the hardships in the features of
// internal/sim/scenario.
func hard(remainder string) []string {
	return []string{"./internal/sim", "-run", "TestSeeds$", "-seed=" + remainder, "-step=11", "-seeds=250", "-failures=1"}
}

// hardships are bugs that only show while a fault lasts.
var hardships = []mutant{
	{
		name:  "a large batch that always times out is not split",
		file:  "internal/engine/lane/careful.go",
		old:   "	if len(first) == 0 || single && !passed {\n		return false\n	}\n	l.recovery.reset()\n",
		new:   "	if len(first) >= 0 || single && passed {\n		return false\n	}\n	l.recovery.reset()\n",
		tests: [][]string{hard("3")},
	},
	{
		name:  "a message for a quarantined address stops the messages behind it",
		file:  "internal/engine/lane/quarantine.go",
		old:   "	case in.origin.remote():\n		l.putOff(now, e, in)\n		return\n	default:\n		in.refuse(l, wayOut(in.origin.message, blocked))\n",
		new:   "	case in.origin.pair != nil:\n		return\n	case in.origin.remote():\n		l.putOff(now, e, in)\n		return\n	default:\n		in.refuse(l, wayOut(in.origin.message, blocked))\n",
		tests: [][]string{hard("4")},
	},
	{
		name:  "a lane is never full of bytes",
		file:  "internal/engine/lane/seal.go",
		old:   "	return l.budget.used >= l.cfg.MaxBytes || l.batchFull()",
		new:   "	return l.batchFull()",
		tests: [][]string{hard("4")},
	},
	{
		name:  "leases are judged by the store's clock alone",
		file:  "internal/cluster/sighting.go",
		old:   "(!s.odd || mono-s.since >= s.lasts)",
		new:   "(s.since >= 0 || mono > 0)",
		tests: [][]string{hard("5")},
	},
	{
		name:  "a jump of the store's clock is followed when it is seen twice",
		file:  "internal/engine/storeclock/clock.go",
		old:   "	if got-d.since < c.cfg.Persist {\n		return v\n	}\n",
		new:   "",
		tests: [][]string{hard("5")},
	},
	{
		name:  "an unreadable message stops the messages behind it",
		file:  "internal/engine/lane/mail.go",
		old:   "			l.mail.aside.pairs = append(l.mail.aside.pairs, p)\n",
		new:   "",
		tests: [][]string{hard("6")},
	},
	{
		name:  "a page with a row that cannot be read is read again",
		file:  "internal/engine/lane/load.go",
		old:   "	if !store.Whole(r.Err) && (",
		new:   "	if r.Err != nil && (",
		tests: [][]string{hard("6")},
	},
	{
		name:  "a request id accepts any request",
		file:  "internal/core/request.go",
		old:   "	if first.Same(use) {",
		new:   "	if first.Same(use) || first != nil {",
		tests: [][]string{hard("7")},
	},
	{
		name:  "a remembered answer has no age",
		file:  "internal/engine/lane/seal.go",
		old:   "		b.batch.Requests[i].At = now\n",
		new:   "		b.batch.Requests[i].At = 0\n",
		tests: [][]string{hard("7")},
	},
	{
		name:  "a node does not notice that it was fenced",
		file:  "internal/cluster/membership.go",
		old:   "	case err != nil && store.ClassOf(err) == store.Fenced:\n		m.lost = err",
		new:   "	case err != nil && store.ClassOf(err) == store.Fenced && m.lost != nil:\n		m.lost = err",
		tests: [][]string{hard("8")},
	},
}
