package mutants

// ordered runs simulations in which operators drop and skip signals; see signal-orders in the table
// of features.
var ordered = []string{"./internal/sim", "-run", "TestSeeds$", "-seed=12", "-step=13", "-seeds=500", "-failures=1"}

// signals are bugs in the orders of operators about signals.
var signals = []mutant{
	{
		name:  "a dropped signal stays",
		file:  "internal/core/execution.go",
		old:   "	case model.EventSignalTaken, model.EventSignalDropped:\n",
		new:   "	case model.EventSignalTaken:\n",
		tests: [][]string{ordered},
	},
	{
		name:  "a skipped signal does not come again",
		file:  "internal/core/managesignals.go",
		old:   "		x.append(d, now, again)\n		left = model.SignalOf(len(x.signals), x.Start.Run, &x.signals[len(x.signals)-1])\n",
		new:   "		left = model.SignalOf(0, x.Start.Run, &again)\n",
		tests: [][]string{ordered},
	},
	{
		name:  "a signal is dropped while a worker is about to get it with a new run",
		file:  "internal/engine/lane/input.go",
		old:   " && e.isPaused() || in.is(model.MessageMailbox))\n",
		new:   " && e.isPaused())\n",
		tests: [][]string{laneTest("TestDropOfASignalOfAFreshRun$")},
	},
}
