package bench

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Bar is a requirement and whether it holds.
type Bar struct {
	Kind     Kind
	Name     string
	AtLeast  bool // Got must be at least Want; otherwise at most
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

// tolerance is the allowed difference in the cost of a step between both ends of a growth
// measurement. Medians of equal work differ by this much on a busy machine.
const tolerance = 1.25

// The systems that the bars compare with: workflows with DBOS, tasks with River.
const (
	DBOS  = "dbos"
	River = "river"
)

// What Perdure must reach behind a server, on every kind of store: clients, worker and server are
// three processes on one machine.
const (
	dialSlower  = 2.0  // times slower than in process, at most
	dialRate    = 3000 // workflows per second
	dialLatency = 0.5  // milliseconds that one client waits longer
	dialCalls   = 8000 // calls of entities per second
	dialTasks   = 8000 // tasks per second
)

// demand is what one kind of store must reach; 0 means no demand.
type demand struct{ cpu, throughput, latency, fanOut, tasks, payload float64 }

var demands = map[Kind]demand{
	Postgres: {cpu: 0.25, throughput: 7, latency: 0.7, fanOut: 0.1, tasks: 1.5, payload: 1800},
	SQLite:   {cpu: 0.15, throughput: 15, fanOut: 0.05, tasks: 3, payload: 1500},
}

// Judge compares the measurements with the bars. It skips bars of workloads that did not run, and
// comparisons with a peer that did not run. A bar whose measurement failed is not met.
func (r *Report) Judge(workloads []Workload) {
	if workloads == nil {
		workloads = Workloads
	}
	r.Bars = nil
	for _, s := range r.Stores {
		d := demands[s.Kind]
		add := func(w Workload, name string, atLeast bool, want float64, unit string, got func() (float64, bool)) {
			if want > 0 && slices.Contains(workloads, w) {
				b := Bar{Kind: s.Kind, Name: name, AtLeast: atLeast, Want: want, Unit: unit}
				b.Got, b.Measured = got()
				r.Bars = append(r.Bars, b)
			}
		}
		ours := func(w Workload, figure func(Result) float64) func() (float64, bool) {
			return func() (float64, bool) { return s.median(Perdure, w, figure) }
		}
		against := func(peer string, w Workload, figure func(Result) float64) func() (float64, bool) {
			return func() (float64, bool) { return s.ratio(peer, w, figure) }
		}

		add(Throughput, fmt.Sprintf("CPU per three-step workflow, %d clients, database included", r.Clients), false, d.cpu, " ms", ours(Throughput, cpu))
		beside := func(peer string) bool { return slices.Contains(r.Peers, peer) }
		if beside(DBOS) {
			add(Throughput, fmt.Sprintf("throughput against DBOS, %d clients", r.Clients), true, d.throughput, "×", against(DBOS, Throughput, rate))
			add(Latency, "p50 against DBOS, one client", false, d.latency, "×", against(DBOS, Latency, p50))
		}
		if beside(Dial) {
			over := func(w Workload, figure func(Result) float64) func() (float64, bool) {
				return func() (float64, bool) { return s.median(Dial, w, figure) }
			}
			add(Throughput, fmt.Sprintf("throughput in process against over Dial, %d clients", r.Clients), false, dialSlower, "×", against(Dial, Throughput, rate))
			add(Throughput, fmt.Sprintf("three-step workflows over Dial, %d clients", r.Clients), true, dialRate, "/s", over(Throughput, rate))
			add(Latency, "p50 over Dial beyond in process, one client", false, dialLatency, " ms", func() (float64, bool) { return s.beyond(Dial, Latency, p50) })
			add(Calls, fmt.Sprintf("calls of entities over Dial, %d clients", r.Clients), true, dialCalls, "/s", over(Calls, rate))
			add(Tasks, fmt.Sprintf("no-op tasks over Dial, %d slots", slots), true, dialTasks, "/s", over(Tasks, rate))
		}
		add(FanOut, "1,000 parallel steps", false, d.fanOut, " s", ours(FanOut, func(r Result) float64 { return p50(r) / 1000 }))
		add(Sequence, "2,000 sequential steps against bare fenced commits", false, 1.3, "×", ours(Sequence, overBare))
		add(Recovery, "first new step of a 2,000-step history after kill -9", false, 0.5, " s", ours(Recovery, firstStep))
		add(History, "cost of a step at 10,000 steps of history against 10", false, tolerance, "×", ours(History, growth))
		add(Open, fmt.Sprintf("cost of a step beside %s open executions against 10", thousands(r.Sleepers)), false, tolerance, "×", ours(Open, growth))
		add(Open, "memory per sleeping execution", false, 1024, " B", ours(Open, func(r Result) float64 { return float64(r.Sleeper) }))
		add(Payload, fmt.Sprintf("workflows with values of %d KiB, %d clients", largeBytes>>10, r.Clients), true, d.payload, "/s", ours(Payload, rate))
		add(Timers, fmt.Sprintf("p99 of how late %s timers due within %s are", thousands(alarms), alarmsIn), false, 200, " ms", ours(Timers, p99))
		if beside(River) {
			add(Backlog, fmt.Sprintf("tasks of a backlog against River, %d slots", slots), true, d.tasks, "×", against(River, Backlog, rate))
			add(Tasks, fmt.Sprintf("throughput of no-op tasks against River, %d slots", slots), true, d.tasks, "×", against(River, Tasks, rate))
		}
		add(Pickup, "p50 from the commit of a task to its start, 20 tasks/s", false, 1, " ms", ours(Pickup, p50))
	}
}

// Failed returns the bars that do not hold.
func (r *Report) Failed() (failed []Bar) {
	for _, b := range r.Bars {
		if !b.IsMet() {
			failed = append(failed, b)
		}
	}
	return failed
}

// number formats a figure with three significant digits.
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
