package scenario

import (
	"fmt"
	"slices"
	"strings"
)

// Feature is a set of features. A feature is something that some simulations have and other
// simulations do not have.
type Feature uint64

// The features. The table says which seeds have them.
const (
	Labels       Feature = 1 << iota // executions have labels
	Tasks                            // users submit tasks, and programs schedule them
	Retention                        // nodes remove old closed runs and old dead tasks
	DeadOrders                       // users requeue and purge dead tasks
	Gates                            // limits, breakers and paused queues hold tasks back
	SharedGates                      // all nodes share limits and breakers
	Lending                          // nodes lend each other slots of their workers
	Entities                         // there are accounts and desks
	LargeCommits                     // commits above a size fail
	Poison                           // the store refuses rows until everything else has ended
	FalseDeath                       // a live node is declared dead
	Flood                            // a lane gets more input than it has room for
	ClockJumps                       // the store's clock jumps, and machines are suspended
	BadRows                          // all builds, or the older build, cannot read some rows
	RequestIDs                       // users misuse request ids, and nodes forget old request ids
	LargeReports                     // one report of a task is as large as the budget of a lane
	StartOptions                     // starts have a delay, a time-out or a policy of retries
	SignalOrders                     // operators drop and skip signals
	Outliving                        // workers outlive the processes that serve them
	Slots                            // workers take a limited number of runs or calls at a time
	Links                            // nodes ask each other over connections
	Drains                           // operators drain nodes, which have weights
	Expiring                         // states of accounts expire
	Together                         // nodes read several runs in one call
	DrawnIDs                         // users are clients of servers, and draw request ids in eras
	Killers                          // some calls of entities kill the process that executes them
	Receipts                         // clients of servers confirm that they have the answers
	ShardGroups                      // the store has two shard groups, and nodes serve one or both
	Damage                           // rows of further kinds are damaged
	LeaseLengths                     // nodes have leases of different lengths
	AheadWaits                       // batches wait for the results of calls that run ahead
	Lingering                        // the code of lost claims needs a moment to end
	Previews                         // workers get events before they are committed
	allFeatures  = iota
)

// row says which seeds have a feature.
type row struct {
	feature Feature
	name    string // for -features
	// A seed of these lots has the feature if it also has the features that this one needs, and has
	// none of the features that this one excludes.
	lots     []lot
	needs    Feature
	excludes Feature
	// odds is the probability that such a seed has the feature; 0 means that all of these seeds
	// have it.
	odds float64
	// lasts marks hardships: faults that last or that come from outside the cluster, so that
	// repeating a call does not end them. Calm and plain simulations have no hardships.
	lasts bool
	// late marks features that older known seeds do not have. Plain simulations have no such
	// features.
	late  bool
	about string
}

// lot selects the seeds whose number, divided by of, leaves one of the remainders in at. So every
// feature has its share among consecutive seeds, and a seed keeps its features when new features
// are added.
type lot struct {
	of uint64
	at []uint64
	// omits is the probability that a seed of this lot does not have the feature.
	omits float64
}

func (l *lot) has(seed uint64) bool { return slices.Contains(l.at, seed%l.of) }

// picks reports whether a seed belongs to one of the lots.
func (r *row) picks(seed uint64) bool {
	return slices.ContainsFunc(r.lots, func(l lot) bool { return l.has(seed) })
}

// mix is the lot of the seeds that have several hardships together. The divisor of the hardships
// (11) shares no factor with the divisors that decide about the workload. So each hardship occurs
// together with each workload.
var mix = lot{of: 11, at: []uint64{10}, omits: 0.4}

// eleventh is the lot of the seeds that have one kind of hardship.
func eleventh(at uint64) lot { return lot{of: 11, at: []uint64{at}} }

// table has all features, in the order of their bits.
var table = [allFeatures]row{
	{
		feature: Labels, name: "labels", lots: []lot{{of: 8, at: []uint64{3}}},
		about: "users and programs set labels, and the end of a run is found by them",
	},
	{
		feature: Tasks, name: "tasks", lots: []lot{{of: 6, at: []uint64{1, 4, 5}}},
		about: "users submit tasks and programs schedule them; task workers come, go, hang and report twice",
	},
	{
		feature: Retention, name: "retention", lots: []lot{{of: 3, at: []uint64{2}}},
		about: "closed runs leave after a time of the lanes or of their own, dead tasks by a sweep",
	},
	{
		feature: DeadOrders, name: "dead-orders", lots: []lot{{of: 6, at: []uint64{5}}}, odds: 0.8, needs: Tasks | Retention,
		about: "users requeue dead tasks, also with another input, undo that, and purge them",
	},
	{
		feature: Gates, name: "gates", lots: []lot{{of: 6, at: []uint64{5}}}, odds: 0.7, needs: Tasks | Retention,
		about: "users change limits, rates, breakers and queues while tasks run; always with shared gates",
	},
	{
		feature: SharedGates, name: "shared-gates", lots: []lot{{of: 24, at: []uint64{5, 11, 17}}}, needs: Tasks | Retention | Gates,
		about: "all nodes share the limits and breakers, through pages in the store",
	},
	{
		feature: Lending, name: "lending", lots: []lot{{of: 6, at: []uint64{4}}, {of: 120, at: []uint64{17, 77, 107}}}, needs: Tasks, late: true,
		about: "nodes lend each other slots of their task workers; gates are shared then",
	},
	{
		feature: Entities, name: "entities", lots: []lot{{of: 6, at: []uint64{0}}, {of: 7, at: []uint64{1}}},
		about: "clients, programs and entities call accounts and desks, and programs lock accounts",
	},
	{
		feature: LargeCommits, name: "large-commits", lots: []lot{eleventh(3), mix}, lasts: true,
		about: "commits above a number of bytes time out or are refused",
	},
	{
		feature: Poison, name: "poison", lots: []lot{eleventh(4), mix}, lasts: true,
		about: "the store refuses rows of an address until everything else has ended",
	},
	{
		feature: FalseDeath, name: "false-death", lots: []lot{eleventh(8), mix}, lasts: true,
		about: "nodes believe to have proof that a live process has ended",
	},
	{
		feature: Flood, name: "flood", lots: []lot{eleventh(4), mix}, lasts: true,
		about: "a user sends many large signals to one address, without waiting",
	},
	{
		// Rates, breakers and the ends of states depend on the time. The oracle does not check them
		// during jumps.
		feature: ClockJumps, name: "clock-jumps", lots: []lot{eleventh(5), mix}, excludes: Gates | Expiring, lasts: true,
		about: "the store's clock jumps for a while or permanently, and machines are suspended",
	},
	{
		feature: BadRows, name: "bad-rows", lots: []lot{eleventh(6), mix}, lasts: true,
		about: "rows are damaged, or a newer build has written them; processes are upgraded one by one",
	},
	{
		feature: RequestIDs, name: "request-ids", lots: []lot{eleventh(7), mix}, lasts: true,
		about: "users use a request id for two requests, and nodes forget old ids",
	},
	{
		feature: LargeReports, name: "large-reports", lots: []lot{eleventh(4), mix}, lasts: true,
		about: "the report of a task is as large as the budget of a lane",
	},
	{
		feature: StartOptions, name: "start-options", lots: []lot{{of: 13, at: []uint64{6, 10}}}, late: true,
		about: "starts have a delay, a time-out of the execution, or a policy that repeats failed runs",
	},
	{
		feature: SignalOrders, name: "signal-orders", lots: []lot{{of: 13, at: []uint64{12}}}, late: true,
		about: "operators drop and skip signals that programs have not taken; no histories are changed",
	},
	{
		feature: Outliving, name: "outliving", lots: []lot{{of: 13, at: []uint64{3, 8}}}, late: true,
		about: "workers of workflows are processes of their own: they outlive servers, and join another one with what they hold",
	},
	{
		feature: Slots, name: "slots", lots: []lot{{of: 13, at: []uint64{2, 8, 11}}}, late: true,
		about: "workers take one or two runs and hand-overs of calls at a time; the others wait",
	},
	{
		feature: Links, name: "links", lots: []lot{{of: 17, at: []uint64{1, 3, 5, 7, 8, 10, 12, 14, 16}}}, late: true,
		about: "nodes ask each other over connections that break, and get copies of requests late",
	},
	{
		feature: Drains, name: "drains", lots: []lot{{of: 19, at: []uint64{2, 5, 9, 12, 16}}}, late: true,
		about: "nodes have different weights, and operators drain them and withdraw that",
	},
	{
		feature: Expiring, name: "expiring", lots: []lot{{of: 12, at: []uint64{6}}, {of: 21, at: []uint64{8}}}, needs: Entities, late: true,
		about: "states of accounts expire, after they were created or after their last operation",
	},
	{
		feature: Together, name: "together", lots: []lot{{of: 23, at: []uint64{1, 3, 4, 7, 8, 12, 13, 17, 21}}}, late: true,
		about: "nodes read runs together that wait together, also in parts at different times",
	},
	{
		feature: DrawnIDs, name: "drawn-ids", lots: []lot{{of: 29, at: []uint64{2, 6, 14, 17, 21, 27}}}, late: true,
		about: "users are clients of servers: they draw request ids in the eras of lanes, and eras are short",
	},
	{
		// A server that waits for the workers of the last owner does not suspect that their calls
		// kill processes.
		feature: Killers, name: "killers", lots: []lot{{of: 42, at: []uint64{12, 30}}, {of: 35, at: []uint64{1, 8}}}, needs: Entities, excludes: Outliving, late: true,
		about: "users make calls of accounts that kill the process that makes them, also with other calls",
	},
	{
		feature: Receipts, name: "receipts", lots: []lot{{of: 58, at: []uint64{6, 14, 27, 31, 50}}}, needs: DrawnIDs, late: true,
		about: "clients of servers confirm that they have the answers to drawn ids, and servers remove these answers",
	},
	{
		feature: ShardGroups, name: "shard-groups", lots: []lot{{of: 31, at: []uint64{3, 8, 14, 20, 27}}}, late: true,
		about: "the store has a shard group beside the default one, and nodes serve one of them or both",
	},
	{
		feature: Damage, name: "damage", lots: []lot{{of: 37, at: []uint64{6, 11, 19, 24, 33}}}, late: true,
		about: "messages, dead tasks, remembered answers and settings are damaged; operators remove or restore them",
	},
	{
		feature: LeaseLengths, name: "lease-lengths", lots: []lot{{of: 41, at: []uint64{5, 13, 17, 20, 24, 33, 40}}}, late: true,
		about: "the leases of nodes have different lengths",
	},
	{
		feature: AheadWaits, name: "ahead-waits", lots: []lot{{of: 66, at: []uint64{6, 18, 36, 54}}, {of: 77, at: []uint64{8, 29, 50}}}, needs: Entities, late: true,
		about: "a batch waits for the results of calls that run before the batch is committed",
	},
	{
		feature: Lingering, name: "lingering", lots: []lot{{of: 258, at: []uint64{5, 17, 35, 47, 65, 77, 107, 119, 137, 155, 173, 203, 233, 251}}}, needs: Tasks | Retention | Gates, late: true,
		about: "the code of a lost claim runs on for a while, and keeps the permits of the claim",
	},
	{
		// Only workers in the process of their node get previews.
		feature: Previews, name: "previews", lots: []lot{{of: 66, at: []uint64{6, 36}}, {of: 77, at: []uint64{8, 50}}}, needs: Entities | AheadWaits, excludes: Outliving, late: true,
		about: "workers get answers and grants of locks before they are committed, and report turns",
	},
}

// Has reports whether the simulation has at least one of the given features.
func (s *Scenario) Has(f Feature) bool { return s.features&f != 0 }

// pickFeatures turns on the features that only the number of the seed decides.
func (s *Scenario) pickFeatures() {
	for i := range table {
		if r := &table[i]; r.odds == 0 && !r.lasts {
			s.turn(r, r.picks(s.seed) && !(s.Opts.Plain && r.late))
		}
	}
}

// drawFeature draws a feature that only some seeds of its lots have.
func (s *Scenario) drawFeature(f Feature) {
	for i := range table {
		if r := &table[i]; r.feature == f {
			s.turn(r, r.picks(s.seed) && s.Chance(r.odds) || s.needed(f))
		}
	}
}

// needed reports whether a feature that is on needs this feature.
func (s *Scenario) needed(f Feature) bool {
	return slices.ContainsFunc(table[:], func(r row) bool { return s.Has(r.feature) && r.needs&f != 0 })
}

// pickHardships turns on the hardships of the seed.
func (s *Scenario) pickHardships() {
	for i := range table {
		r, on := &table[i], false
		if !r.lasts {
			continue
		}
		for _, l := range r.lots {
			on = on || l.has(s.seed) && (l.omits == 0 || !s.Chance(l.omits))
		}
		s.turn(r, on)
	}
}

// turn switches a feature on, unless something excludes it or the caller has forced the opposite.
func (s *Scenario) turn(r *row, on bool) {
	force := &s.Opts.Features
	on = (on || force.On&r.feature != 0) && force.Off&r.feature == 0
	if on && s.features&r.excludes == 0 {
		s.features |= r.feature
	}
}

// Features are features that a caller turns on or off in every seed.
type Features struct{ On, Off Feature }

// ParseFeatures parses names of features, separated by commas. A minus sign before a name turns the
// feature off in all seeds. A feature that is turned on also turns on the features that it needs,
// and turns off the features that exclude it.
func ParseFeatures(text string) (f Features, err error) {
	for _, name := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' }) {
		name, off := strings.CutPrefix(name, "-")
		i := slices.IndexFunc(table[:], func(r row) bool { return r.name == name })
		switch {
		case i < 0:
			return f, fmt.Errorf("there is no feature %q; the features are:\n%s", name, DescribeFeatures())
		case off:
			f.Off |= table[i].feature
		default:
			f.On |= table[i].feature | table[i].needs
			f.Off |= table[i].excludes
		}
	}

	for i := range table { // a feature needs some features and excludes others
		if table[i].needs&f.Off != 0 || table[i].excludes&f.On != 0 {
			f.Off |= table[i].feature
		}
	}
	if both := f.On & f.Off; both != 0 {
		return f, fmt.Errorf("%s must be on and off at the same time", both)
	}

	return f, nil
}

// String lists the names of the features.
func (f Feature) String() string {
	var names []string
	for i := range table {
		if f&table[i].feature != 0 {
			names = append(names, table[i].name)
		}
	}
	return strings.Join(names, ",")
}

// DescribeFeatures returns the table, with the share of the seeds that have each feature.
func DescribeFeatures() string {
	var b strings.Builder
	for i := range table {
		r := &table[i]
		fmt.Fprintf(&b, "%-14s %5.1f %%  %s", r.name, 100*r.share(), r.about)
		if r.needs != 0 {
			fmt.Fprintf(&b, " (needs %s)", r.needs)
		}
		if r.excludes != 0 {
			fmt.Fprintf(&b, " (not with %s)", r.excludes)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// share returns the share of the seeds that have the feature, if no other feature excludes it.
func (r *row) share() (share float64) {
	const all = 24 * 7 * 11 * 13 // so many that the share is nearly that of all seeds
	for seed := range uint64(all) {
		without := 1.0
		for i := range r.lots {
			if r.lots[i].has(seed) {
				without *= r.lots[i].omits
			}
		}
		share += (1 - without) / all
	}
	if r.odds > 0 {
		share *= r.odds
	}
	return share
}
