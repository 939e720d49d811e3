package mutants

// accounts is the simulator where there are entities and locks.
var accounts = []string{"./internal/sim", "-run", "TestSeeds$", "-seed=6", "-step=6", "-seeds=1500", "-failures=1"}

// laneTest and coreTest are single tests.
func laneTest(run string) []string { return []string{"./internal/engine/lane", "-run", run} }
func coreTest(run string) []string { return []string{"./internal/core", "-run", run} }

// entities are bugs in entities and locks.
var entities = []mutant{
	{
		name:  "what was taken from a mailbox stays there",
		file:  "internal/core/entity.go",
		old:   "	d.Taken = append(d.Taken, it.Seq)\n",
		new:   "",
		tests: [][]string{accounts, laneTest("TestEntityOneWay$")},
	},
	{
		name:  "a result counts on whatever state",
		file:  "internal/core/entity.go",
		old:   "if plain && n.Row.Version != version {",
		new:   "if plain && n.Row.Version != version && false {",
		tests: [][]string{coreTest("TestEntityRefusesAnOldResult$")},
	},
	{
		name:  "a release frees the lock of another section",
		file:  "internal/core/entity.go",
		old:   "	if n.holds(section) {\n		n.free(d)\n",
		new:   "	if n.Row.Locked() {\n		n.free(d)\n",
		tests: [][]string{accounts, coreTest("TestReleaseOfAnotherSection$")},
	},
	{
		name:  "the request of a lock is no barrier",
		file:  "internal/core/entity.go",
		old:   "			return n.hand(items) // the barrier\n",
		new:   "			continue\n",
		tests: [][]string{accounts, coreTest("TestLockIsABarrier$")},
	},
	{
		name:  "a grant that finds its section over is dropped",
		file:  "internal/core/section.go",
		old:   "		d.Messages = append(d.Messages, releaseMessage(m.From.Address, model.Link{Address: m.To, Run: m.ToRun, ID: m.ID}))\n",
		new:   "",
		tests: [][]string{accounts, coreTest("TestSectionAsksInOrder$|TestRandomSections$")},
	},
	{
		name:  "a result that was made on a forgotten state is applied",
		file:  "internal/engine/lane/entity.go",
		old:   "	l.dropResults(e, func(*input) {}) // they were made on what is forgotten\n",
		new:   "",
		tests: [][]string{accounts},
	},
	{
		name:  "what an entity replied is not remembered",
		file:  "internal/core/entity.go",
		old:   "		d.Replies = append(d.Replies, Reply{RequestID: m.RequestID, Answer: a, For: m.Use()})\n",
		new:   "",
		tests: [][]string{accounts, laneTest("TestEntityRequestRepeated$")},
	},
	{
		name:  "what waits for an entity has no row",
		file:  "internal/core/entity.go",
		old:   "	d.Mailbox = append(d.Mailbox, model.MailboxItem{Seq: it.Seq, At: it.At, Message: *it.Message})\n",
		new:   "",
		tests: [][]string{accounts, laneTest("TestEntityOneWay$")},
	},
	{
		name:  "a batch writes the row of an entity twice",
		file:  "internal/engine/lane/entity.go",
		old:   "	i, ok := b.changed[e]\n	if !ok {\n",
		new:   "	i, ok := b.changed[e]\n	if !ok || true {\n",
		tests: [][]string{accounts},
	},
	{
		name:  "a batch takes an item that it stores",
		file:  "internal/engine/lane/entity.go",
		old:   "r.Item.Seq == seq && r.EntityKey == key }); i >= 0 {",
		new:   "r.Item.Seq == seq && r.EntityKey == key }); i >= 0 && false {",
		tests: [][]string{accounts},
	},
	{
		name:  "locks outlive their run",
		file:  "internal/core/turn.go",
		old:   "	x.letGoOfAll(d)\n",
		new:   "",
		tests: [][]string{accounts, coreTest("TestRandomSections$")},
	},
	{
		name:  "locks outlive a reset",
		file:  "internal/core/past.go",
		old:   "	x.letGoOfAll(d)\n",
		new:   "",
		tests: [][]string{accounts},
	},
	{
		name:  "a lock that is withdrawn is not let go of",
		file:  "internal/core/turn.go",
		old:   "	x.letGo(d, x.section(e.ID))\n",
		new:   "",
		tests: [][]string{accounts, coreTest("TestRandomSections$")},
	},
	{
		name:  "only what is granted is let go of",
		file:  "internal/core/section.go",
		old:   "return s.locks[:min(len(s.epochs)+1, len(s.locks))]",
		new:   "return s.locks[:len(s.epochs)]",
		tests: [][]string{accounts},
	},
	{
		name:  "locks are asked for in the order of the worker",
		file:  "internal/core/section.go",
		old:   "e.Kind, e.Locks = model.EventLockAsked, model.SortLocks(e.Locks)",
		new:   "e.Kind = model.EventLockAsked",
		tests: [][]string{accounts, coreTest("TestSectionAsksInOrder$")},
	},
	{
		name:  "the fencing token of a lock begins anew with its row",
		file:  "internal/core/entity.go",
		old:   "max(n.Row.Epoch+1, n.Floor+1, int64(now))",
		new:   "n.Row.Epoch + 1",
		tests: [][]string{accounts},
	},
	{
		name:  "a call is made for a section that has lost its lock",
		file:  "internal/core/entity.go",
		old:   "	case m.Section != \"\" && !n.holds(sectionOf(m)):\n",
		new:   "	case m.Section != \"\" && !n.holds(sectionOf(m)) && false:\n",
		tests: [][]string{coreTest("TestEntityIsUnlockedByAnOperator$|TestEntityIsLocked$")},
	},
	{
		name:  "everybody's calls are made while an entity is locked",
		file:  "internal/core/entity.go",
		old:   "		case LockedOut(&n.Row, m):\n",
		new:   "		case LockedOut(&n.Row, m) && m.Kind == model.MessageLock:\n",
		tests: [][]string{accounts, coreTest("TestEntityIsLocked$")},
	},
	{
		name:  "views are made on what is not durable",
		file:  "internal/engine/lane/entity.go",
		old:   "l.hand(now, e, views, &a.durable)",
		new:   "l.hand(now, e, views, &a.entity.Row)",
		tests: [][]string{accounts, laneTest("TestEntityViews$")},
	},
	{
		name:  "a call that fails sends all the same",
		file:  "internal/core/entity.go",
		old:   "		if res.Failure == nil {\n			for j := range res.Messages {\n",
		new:   "		{\n			for j := range res.Messages {\n",
		tests: [][]string{coreTest("TestFailedCallSendsNothing$")},
	},
	{
		name:  "a request that comes elsewhere as well is only in memory",
		file:  "internal/core/entity.go",
		old:   "if a.Stored && it.Seq == 0 {",
		new:   "if a.Stored && it.Seq == 0 && false {",
		tests: [][]string{accounts, laneTest("TestEntityRequestRepeatedElsewhere$")},
	},
	{
		name:  "a lock waits for a call that is gone",
		file:  "internal/engine/lane/entity.go",
		old:   "		a.entity.Mark(l.views(e))\n		l.settleDue(now, e)\n",
		new:   "		a.entity.Mark(l.views(e))\n",
		tests: [][]string{laneTest("TestLockBehindACallThatIsLost$")},
	},
	{
		name:  "what waits for entities of a shard is not looked for",
		file:  "internal/engine/lane/shard.go",
		old:   "	l.loads.add(&Load{Kind: LoadMailboxes, Shards: ids, Limit: mailboxPage})\n",
		new:   "",
		tests: [][]string{accounts, {"./internal/crashwalk", "-short", "-run", "TestCrashWalk$/all/calls_of_an_entity"}},
	},
}
