package bench

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Bar is a requirement for a measurement, and whether the measurement meets it.
type Bar struct {
	Kind     Kind
	Name     string
	AtLeast  bool // Got must be at least Want; if false, at most Want
	Want     float64
	Got      float64
	Unit     string
	Measured bool
}

// IsMet reports whether the requirement was measured and is met.
func (b Bar) IsMet() bool {
	return b.Measured && (b.AtLeast && b.Got >= b.Want || !b.AtLeast && b.Got <= b.Want)
}

// String returns the requirement in one line.
func (b Bar) String() string {
	sign := "≤"
	if b.AtLeast {
		sign = "≥"
	}
	got := "not measured"
	if b.Measured {
		got = number(b.Got)
	}
	return fmt.Sprintf("%s: %s: %s %s %s%s", b.Kind, b.Name, got, sign, number(b.Want), b.Unit)
}

// tolerance is how much more a step may cost at the end of a growth measurement than at its start,
// as a factor. On a busy machine, medians of equal work differ by this much.
const tolerance = 1.25

// The systems that the bars compare with: workflows with DBOS, tasks with River.
const (
	DBOS  = "dbos"
	River = "river"
)

// What Perdure must reach behind a server, on every kind of store. The clients, the worker and the
// server are three processes on one machine.
const (
	dialSlower  = 2.0  // at most this many times slower than in process
	dialRate    = 3000 // workflows per second
	dialLatency = 0.5  // at most this many milliseconds longer for one client
	dialCalls   = 8000 // calls of entities per second
	dialTasks   = 8000 // tasks per second
)

// wants has the number that Perdure must reach on each kind of store. A kind without an entry has
// no such bar.
type wants map[Kind]float64

// each returns a number for each kind of store.
func each(postgres, sqlite float64) wants { return wants{Postgres: postgres, SQLite: sqlite} }

// both returns the same number for both kinds of store.
func both(want float64) wants { return each(want, want) }

// rule is a bar for all kinds of store.
type rule struct {
	workload Workload
	peer     string // the bar exists only if this system takes part; "" if it is only about Perdure
	name     string
	atLeast  bool
	want     wants
	unit     string
	got      func(*Store) (float64, bool)
}

// ours returns the median of a figure of Perdure.
func ours(w Workload, figure func(Result) float64) func(*Store) (float64, bool) {
	return func(s *Store) (float64, bool) { return s.median(Perdure, w, figure) }
}

// theirs returns the median of a figure of a peer.
func theirs(peer string, w Workload, figure func(Result) float64) func(*Store) (float64, bool) {
	return func(s *Store) (float64, bool) { return s.median(peer, w, figure) }
}

// against divides our figure by the figure of a peer in the same round, and returns the median over
// the rounds.
func against(peer string, w Workload, figure func(Result) float64) func(*Store) (float64, bool) {
	return func(s *Store) (float64, bool) { return s.ratio(peer, w, figure) }
}

// rules returns all bars.
func (r *Report) rules() []rule {
	return slices.Concat(r.loadRules(), r.entityRules(), r.dialRules(), r.ownRules(), r.growthRules(), r.taskRules())
}

// loadRules returns the bars for workflows of three steps.
func (r *Report) loadRules() []rule {
	many := fmt.Sprintf("%d clients", r.Clients)
	return []rule{
		{Throughput, Bare, "throughput against the bare committer, " + many, true, each(0.65, 0.6), "×", against(Bare, Throughput, rate)},
		{Throughput, "", "CPU per three-step workflow, " + many + ", database included", false, each(0.13, 0.10), " ms", ours(Throughput, cpu)},
		{Throughput, "", "allocations per three-step workflow", false, both(70), "", ours(Throughput, allocs)},
		{Throughput, "", "allocated bytes per three-step workflow", false, both(9), " KB", ours(Throughput, func(r Result) float64 {
			return float64(r.Usage.Bytes) / float64(r.Operations) / 1000
		})},
		{Throughput, "", "written per three-step workflow", false, wants{SQLite: 12}, " KB", ours(Throughput, writtenKB)},
		{Throughput, DBOS, "throughput against DBOS, " + many, true, each(12, 28), "×", against(DBOS, Throughput, rate)},
		{Latency, "", "p50 of a three-step workflow, one client", false, each(0.75, 0.42), " ms", ours(Latency, p50)},
		{Latency, DBOS, "p50 against DBOS, one client", false, wants{Postgres: 0.7}, "×", against(DBOS, Latency, p50)},
		{
			Payload, "", fmt.Sprintf("workflows with values of %d KiB, %s", largeBytes>>10, many), true, each(1800, 1500), "/s",
			ours(Payload, rate),
		},
	}
}

// entityRules returns the bars for workflows that call and lock entities.
func (r *Report) entityRules() []rule {
	many := fmt.Sprintf("%d clients", r.Clients)
	return []rule{
		{TwoCalls, "", "workflows that call two entities, " + many, true, wants{Postgres: 6000}, "/s", ours(TwoCalls, rate)},
		{Transfer, "", "p50 of a locked transfer, one client", false, wants{Postgres: 2}, " ms", ours(Transfer, p50)},
		{Transfers, "", "locked transfers, " + many + " with two entities each", true, wants{Postgres: 4000}, "/s", ours(Transfers, rate)},
		{Transfers, "", "written per locked transfer, two entities for each client", false, wants{SQLite: 60}, " KB", ours(Transfers, writtenKB)},
		{HotTransfers, "", "locked transfers, " + many + " and the same two", true, wants{Postgres: 900}, "/s", ours(HotTransfers, rate)},
		{HotTransfers, "", "written per locked transfer, the same two for all", false, wants{SQLite: 60}, " KB", ours(HotTransfers, writtenKB)},
		{
			RandomTransfers, "", fmt.Sprintf("p99 of locked transfers, %s and two of %d entities", many, crowdOf), false,
			wants{Postgres: 100},
			" ms",
			ours(RandomTransfers, p99),
		},
	}
}

// dialRules returns the bars for Perdure behind a server.
func (r *Report) dialRules() []rule {
	many := fmt.Sprintf("%d clients", r.Clients)
	beyond := func(s *Store) (float64, bool) { return s.beyond(Dial, Latency, p50) }
	return []rule{
		{Throughput, Dial, "throughput in process against over Dial, " + many, false, both(dialSlower), "×", against(Dial, Throughput, rate)},
		{Throughput, Dial, "three-step workflows over Dial, " + many, true, both(dialRate), "/s", theirs(Dial, Throughput, rate)},
		{Latency, Dial, "p50 over Dial beyond in process, one client", false, both(dialLatency), " ms", beyond},
		{Calls, Dial, "calls of entities over Dial, " + many, true, both(dialCalls), "/s", theirs(Dial, Calls, rate)},
		{Tasks, Dial, fmt.Sprintf("no-op tasks over Dial, %d slots", slots), true, both(dialTasks), "/s", theirs(Dial, Tasks, rate)},
	}
}

// growthRules returns the bars for large workflows, long histories, and many executions.
func (r *Report) growthRules() []rule {
	seconds := func(r Result) float64 { return p50(r) / 1000 }
	sleeper := func(r Result) float64 { return float64(r.Sleeper) }
	beside := fmt.Sprintf("cost of a step beside %s open executions against 10", thousands(r.Sleepers))
	late := fmt.Sprintf("p99 of how late %s timers due within %s are", thousands(alarms), alarmsIn)
	return []rule{
		{FanOut, "", "1,000 parallel steps", false, each(0.1, 0.05), " s", ours(FanOut, seconds)},
		{Sequence, "", "2,000 sequential steps against bare fenced commits", false, both(1.3), "×", ours(Sequence, overBare)},
		{Recovery, "", "first new step of a 2,000-step history after kill -9", false, both(0.5), " s", ours(Recovery, firstStep)},
		{History, "", "cost of a step at 10,000 steps of history against 10", false, both(tolerance), "×", ours(History, growth)},
		{Open, "", beside, false, both(tolerance), "×", ours(Open, growth)},
		{Open, "", "memory per sleeping execution", false, both(1024), " B", ours(Open, sleeper)},
		{Timers, "", late, false, both(200), " ms", ours(Timers, p99)},
	}
}

// taskRules returns the bars for tasks.
func (r *Report) taskRules() []rule {
	backlog := fmt.Sprintf("tasks of a backlog against River, %d slots", slots)
	tasks := fmt.Sprintf("throughput of no-op tasks against River, %d slots", slots)
	return []rule{
		{Backlog, River, backlog, true, each(1.5, 3), "×", against(River, Backlog, rate)},
		{Tasks, River, tasks, true, each(1.5, 3), "×", against(River, Tasks, rate)},
		{Pickup, "", "p50 from the commit of a task to its start, 20 tasks/s", false, both(1), " ms", ours(Pickup, p50)},
	}
}

// Judge compares the measurements with the bars. It skips bars of workloads that did not run, and
// comparisons with a peer that did not run. A bar whose measurement failed is not met.
func (r *Report) Judge(workloads []Workload) {
	if workloads == nil {
		workloads = Workloads
	}

	r.Bars = nil
	rules := r.rules()
	for _, s := range r.Stores {
		for _, x := range rules {
			want, demanded := x.want[s.Kind]
			if !demanded || !slices.Contains(workloads, x.workload) || x.peer != "" && !slices.Contains(r.Peers, x.peer) {
				continue
			}
			b := Bar{Kind: s.Kind, Name: x.name, AtLeast: x.atLeast, Want: want, Unit: x.unit}
			b.Got, b.Measured = x.got(s)
			r.Bars = append(r.Bars, b)
		}
	}
}

// Failed returns the bars that are not met.
func (r *Report) Failed() (failed []Bar) {
	for _, b := range r.Bars {
		if !b.IsMet() {
			failed = append(failed, b)
		}
	}
	return failed
}

// number formats a figure. A large figure gets no decimals, and a small one gets up to three.
func number(f float64) string {
	switch {
	case f >= 100 || f <= -100:
		return thousands(int(math.Round(f)))
	case f >= 10:
		return fmt.Sprintf("%.1f", f)
	case f >= 1 || f == 0:
		return fmt.Sprintf("%.2f", f)
	default:
		return fmt.Sprintf("%.3f", f)
	}
}

// thousands formats a number with separators.
func thousands(n int) string {
	text := fmt.Sprint(n)
	var b strings.Builder
	for i, c := range text {
		if i > 0 && c != '-' && (len(text)-i)%3 == 0 && text[i-1] != '-' {
			b.WriteByte(',')
		}
		b.WriteRune(c)
	}
	return b.String()
}
