package bench

import (
	"fmt"
	"slices"
	"time"
)

// Report contains all measurements.
type Report struct {
	Time     time.Time
	Machine  string
	Clients  int
	Sleepers int
	Tasks    int
	Duration time.Duration
	Rounds   int
	Peers    []string
	Stores   []*Store
	// Own has the measurements of systems with a server and a store of their own. It is nil if no
	// such system takes part. Servers describes the server of each such system.
	Own     *Store            `json:",omitempty"`
	Servers map[string]string `json:",omitempty"`
	Left    []string          `json:",omitempty"` // see LeaveOut
	Bars    []Bar             // filled in by Judge
}

// Store contains the measurements on one kind of store.
type Store struct {
	Kind        Kind
	Description string
	Sync        Limit // rate of small appends to a file, each with a sync
	Limits      Limits
	Results     []Round
	Errors      []string
}

// Round is the result of a measurement in its round.
type Round struct {
	Round int
	Result
}

// note records err if it is not nil. It returns true if err is nil.
func (s *Store) note(err error) bool {
	if err != nil {
		s.Errors = append(s.Errors, err.Error())
	}
	return err == nil
}

// of returns the results of a system.
func (s *Store) of(system string, w Workload) (rs []Round) {
	for _, r := range s.Results {
		if r.System == system && r.Workload == w {
			rs = append(rs, r)
		}
	}
	return rs
}

// median returns the median of a figure over the rounds of a system. ok is false if there is none.
func (s *Store) median(system string, w Workload, figure func(Result) float64) (_ float64, ok bool) {
	var values []float64
	for _, r := range s.of(system, w) {
		values = append(values, figure(r.Result))
	}
	return median(values)
}

// ratio divides our figure by the figure of a peer in the same round, and returns the median over
// the rounds.
func (s *Store) ratio(peer string, w Workload, figure func(Result) float64) (_ float64, ok bool) {
	var values []float64
	for _, ours := range s.of(Perdure, w) {
		for _, theirs := range s.of(peer, w) {
			if theirs.Round == ours.Round {
				values = append(values, figure(ours.Result)/figure(theirs.Result))
			}
		}
	}
	return median(values)
}

// beyond subtracts our figure from the figure of a peer in the same round, and returns the median
// over the rounds.
func (s *Store) beyond(peer string, w Workload, figure func(Result) float64) (_ float64, ok bool) {
	var values []float64
	for _, ours := range s.of(Perdure, w) {
		for _, theirs := range s.of(peer, w) {
			if theirs.Round == ours.Round {
				values = append(values, figure(theirs.Result)-figure(ours.Result))
			}
		}
	}
	return median(values)
}

// kept divides the figure of a system in one workload (w) by its figure in another workload (of) in
// the same round, and returns the median over the rounds.
func (s *Store) kept(system string, w, of Workload, figure func(Result) float64) (_ float64, ok bool) {
	var values []float64
	for _, x := range s.of(system, w) {
		for _, y := range s.of(system, of) {
			if x.Round == y.Round {
				values = append(values, figure(x.Result)/figure(y.Result))
			}
		}
	}
	return median(values)
}

// loudest returns the largest share of the machine that other programs used during a measurement.
func (r *Report) loudest() (most float64) {
	stores := r.Stores
	if r.Own != nil {
		stores = append(slices.Clone(stores), r.Own)
	}
	for _, s := range stores {
		for _, round := range s.Results {
			most = max(most, round.Usage.Others)
		}
	}
	return most
}

func median(values []float64) (_ float64, ok bool) {
	if len(values) == 0 {
		return 0, false
	}
	slices.Sort(values)
	return (values[(len(values)-1)/2] + values[len(values)/2]) / 2, true
}

// The figures of a result.

// steps is the number of steps of a workflow of Throughput and Latency. workflowRows is the number
// of rows that it writes: its start, its steps and its end.
const steps, workflowRows = 3, steps + 2

func rate(r Result) float64      { return float64(r.Operations) / r.Elapsed.Seconds() }
func alone(r Result) float64     { return rate(r) / max(0.01, 1-r.Usage.Others) }
func p50(r Result) float64       { return ms(r.P50) }
func p99(r Result) float64       { return ms(r.P99) }
func cpu(r Result) float64       { return ms(r.Usage.CPU()) / float64(r.Operations) }
func cpuOurs(r Result) float64   { return ms(r.Usage.Process) / float64(r.Operations) }
func cpuServer(r Result) float64 { return ms(r.Usage.Server) / float64(r.Operations) }
func cpuWorker(r Result) float64 { return ms(r.Usage.Worker) / float64(r.Operations) }
func cpuStore(r Result) float64  { return ms(r.Usage.Database) / float64(r.Operations) }
func written(r Result) float64   { return float64(r.Usage.Written) / float64(r.Operations) / steps }
func flushes(r Result) float64   { return r.Usage.Flushes / steps }
func allocs(r Result) float64    { return float64(r.Usage.Allocs) / float64(r.Operations) }
func garbage(r Result) float64   { return float64(r.Usage.Bytes) / float64(r.Operations) / (1 << 10) }
func writtenKB(r Result) float64 { return float64(r.Usage.Written) / float64(r.Operations) / 1000 }
func rss(r Result) float64       { return float64(r.Usage.RSS) / (1 << 20) }
func rssServer(r Result) float64 { return float64(r.Usage.ServerRSS) / (1 << 20) }
func others(r Result) float64    { return 100 * r.Usage.Others }
func overBare(r Result) float64  { return float64(r.Steps) / float64(r.Bare) }
func fromCall50(r Result) float64 {
	return ms(r.FromCall50)
}

func fromCall99(r Result) float64 {
	return ms(r.FromCall99)
}

// The figures of a task.

func micro(figure func(Result) float64) func(Result) float64 {
	return func(r Result) float64 { return 1000 * figure(r) }
}

func taskRows(r Result) float64    { return r.Usage.Rows }
func taskFlushes(r Result) float64 { return r.Usage.Flushes }
func taskWritten(r Result) float64 { return float64(r.Usage.Written) / float64(r.Operations) }

func firstStep(r Result) float64 {
	return r.FirstStep.Seconds()
}

// growth returns how much more a step costs at the last point than at the first, relative to bare
// commits at the same time.
func growth(r Result) float64 {
	if len(r.Points) == 0 {
		return 0
	}
	first, last := r.Points[0], r.Points[len(r.Points)-1]
	return (float64(last.Step) / float64(last.Bare)) / (float64(first.Step) / float64(first.Bare))
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// brief describes a result in a few words, for Options.Progress.
func (r Result) brief(err error) string {
	switch {
	case err != nil:
		return "FAILED: " + err.Error()
	case r.Workload.loads() || r.Workload == Timers:
		return fmt.Sprintf("%.0f/s, p50 %.2f ms, p99 %.2f ms, CPU %.3f ms each", rate(r), p50(r), p99(r), cpu(r))
	case r.Workload == Tasks || r.Workload == Limited || r.Workload == Backlog:
		return fmt.Sprintf("%.0f/s, CPU %.1f µs per task", rate(r), micro(cpu)(r))
	case r.Workload == Pickup:
		return fmt.Sprintf("p50 %.3f ms, p99 %.3f ms after the commit; %.3f and %.3f ms after the call", p50(r), p99(r), fromCall50(r), fromCall99(r))
	case r.Workload == FanOut:
		return fmt.Sprintf("%.1f ms", p50(r))
	case r.Workload == Sequence:
		return fmt.Sprintf("%.2f of bare commits, %.3f ms per step", overBare(r), p50(r))
	case r.Workload == Recovery:
		return fmt.Sprintf("first step after %.3f s", firstStep(r))
	case r.Workload == Open:
		return fmt.Sprintf("growth %.2f, %d B per sleeping execution", growth(r), r.Sleeper)
	default:
		return fmt.Sprintf("growth %.2f", growth(r))
	}
}
