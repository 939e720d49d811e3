package mutants

// mutant is a bug and the tests that must notice it.
type mutant struct {
	name string
	// file, relative to the module, in which old is replaced by new; old must be there exactly once.
	file     string
	old, new string
	// tests are the arguments of go test; at least one run must fail.
	tests [][]string
}

// sim is the simulator, until the first seed that fails.
var sim = []string{"./internal/sim", "-run", "TestSeeds$", "-seeds=4000", "-failures=1"}

// conformance of the stores that need no server.
var (
	memory = []string{"./internal/store/memory"}
	sqlite = []string{"./internal/store/sqlite"}
	replay = []string{"./internal/replay"}
)

var list = []mutant{
	{
		name: "no fence",
		file: "internal/store/memory/commit.go",
		old: `	case f == nil:
		return store.Committed{}, store.Errorf(store.Fenced, "commit", "lane %d of %s does not stand at epoch %d", b.Lane.Lane, b.Lane.Node, b.Lane.Epoch)
`,
		new: `	case f == nil:
		f = &fence{batch: b.Number - 1}
`,
		tests: [][]string{sim, memory},
	},
	{
		name: "a fence that matches nothing does not stop the pipeline",
		file: "internal/store/memory/commit.go",
		old: `	case f == nil:
		return store.Committed{}, store.Errorf(store.Fenced, "commit", "lane %d of %s does not stand at epoch %d", b.Lane.Lane, b.Lane.Node, b.Lane.Epoch)
`,
		new: `	case f == nil:
		return store.Committed{}, nil
`,
		tests: [][]string{sim, memory},
	},
	{
		name:  "a fenced lane goes on",
		file:  "internal/engine/lane/commit.go",
		old:   "	case store.Fenced:\n		l.die(err)\n",
		new:   "	case store.Fenced:\n		l.landed(now, res)\n",
		tests: [][]string{sim},
	},
	{
		name:  "an unknown commit is repeated blindly",
		file:  "internal/engine/lane/commit.go",
		old:   "		r.stage, r.at = stageRefence, 0\n	case store.Refused:",
		new:   "		r.stage, r.at = stageResend, 0\n	case store.Refused:",
		tests: [][]string{sim},
	},
	{
		name:  "an unknown commit is taken for done",
		file:  "internal/engine/lane/commit.go",
		old:   "		r.stage, r.at = stageRefence, 0\n	case store.Refused:",
		new:   "		l.landed(now, res)\n	case store.Refused:",
		tests: [][]string{sim},
	},
	{
		name:  "an unknown commit is read back at once, without a new fence",
		file:  "internal/store/memory/nodes.go",
		old:   "	s.epoch++\n	f.epoch = s.epoch\n	return f.epoch, f.batch, nil",
		new:   "	return f.epoch, f.batch, nil",
		tests: [][]string{sim, memory},
	},
	{
		name:  "two nodes own a shard",
		file:  "internal/store/memory/nodes.go",
		old:   "if !ours && !o.Node.IsZero() && s.node(o.Node, o.Epoch) != nil {",
		new:   "if false && !ours {",
		tests: [][]string{sim, memory},
	},
	{
		name:  "a live node is fenced",
		file:  "internal/store/memory/nodes.go",
		old:   "if m.Epoch != epoch || (!proven && m.Expires > s.time()) {",
		new:   "if m.Epoch != epoch {",
		tests: [][]string{sim, memory},
	},
	{
		name:  "a node takes shards of others",
		file:  "internal/cluster/membership.go",
		old:   "		expired := n.Expires < m.view.Now\n",
		new:   "		expired := n.Expires < m.view.Now || n.Epoch < m.epoch\n",
		tests: [][]string{sim},
	},
	{
		name:  "batch n+1 without n: the store",
		file:  "internal/store/memory/commit.go",
		old:   "	case f.batch+1 != b.Number:\n",
		new:   "	case f.batch >= b.Number:\n",
		tests: [][]string{memory},
	},
	{
		name:  "batch n+1 without n: the lane",
		file:  "internal/engine/lane/careful.go",
		old:   "	l.rollback(l.open)\n	l.rollback(l.flight)\n	l.flight, l.open = nil, l.newBuilding()\n",
		new:   "	l.rollback(l.flight)\n	l.flight, rest = nil, nil\n",
		tests: [][]string{sim},
	},
	{
		name:  "a batch is sealed while one is in flight",
		file:  "internal/engine/lane/batch.go",
		old:   "	if l.flight != nil || l.recovery.busy() {\n		return\n	}\n",
		new:   "	if l.recovery.busy() {\n		return\n	}\n",
		tests: [][]string{sim},
	},
	{
		name:  "poison harms its neighbours",
		file:  "internal/engine/lane/careful.go",
		old:   "		half := len(first) / 2\n		chunks = []chunk{first[:half:half], first[half:]}\n",
		new:   "		for _, in := range first {\n			chunks = append(chunks, l.isolate(now, in, err)...)\n		}\n",
		tests: [][]string{sim},
	},
	{
		name:  "an answer before the commit",
		file:  "internal/engine/lane/input.go",
		old:   "		if b == nil {\n			l.answer(a)\n",
		new:   "		if b != nil || b == nil {\n			l.answer(a)\n",
		tests: [][]string{sim},
	},
	{
		name:  "events are delivered before the commit",
		file:  "internal/engine/lane/input.go",
		old:   "		b.effects = append(b.effects, effect{kind: effDeliver, entry: e, run: key.Run, events: d.Events})\n",
		new:   "		l.deliver(b.batch.At, e, key.Run, d.Events)\n",
		tests: [][]string{sim},
	},
	{
		name:  "a timer is lost during a refill: the bound",
		file:  "internal/engine/lane/timers.go",
		old:   "return max(w.horizon.Due, w.asked)",
		new:   "return w.horizon.Due",
		tests: [][]string{sim},
	},
	{
		name:  "a timer is lost during a refill: the window shrinks",
		file:  "internal/engine/lane/timers.go",
		old:   "	w.stale = w.asked != 0\n}",
		new:   "	w.stale = false\n}",
		tests: [][]string{sim},
	},
	{
		name:  "a timer that is started again is lost",
		file:  "internal/engine/lane/timers.go",
		old:   "		if due, ok := w.known[k]; ok && due == t.Due {\n",
		new:   "		if _, ok := w.known[k]; ok {\n",
		tests: [][]string{sim},
	},
	{
		name:  "a paused owner answers",
		file:  "internal/cluster/membership.go",
		old:   "return m.lost == nil && mono < m.validUntil",
		new:   "return m.lost == nil",
		tests: [][]string{sim},
	},
	{
		name:  "a renewal counts from its answer",
		file:  "internal/cluster/membership.go",
		old:   "	m.validUntil = max(m.validUntil, m.sentAt+m.cfg.TTL-m.cfg.Margin)\n",
		new:   "	m.validUntil = max(m.validUntil, mono+m.cfg.TTL-m.cfg.Margin)\n",
		tests: [][]string{sim},
	},
}
