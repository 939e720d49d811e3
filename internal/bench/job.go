package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"time"
)

// Workload names a measurement; see the package comment.
type Workload string

// The workloads.
const (
	Throughput Workload = "throughput"
	Latency    Workload = "latency"
	Calls      Workload = "calls"
	TwoCalls   Workload = "two-calls"
	Payload    Workload = "payload"
	FanOut     Workload = "fan-out"
	Sequence   Workload = "sequence"
	Recovery   Workload = "recovery"
	History    Workload = "history"
	Open       Workload = "open"
	Tasks      Workload = "tasks"
	Limited    Workload = "limit"
	Pickup     Workload = "pickup"
	Backlog    Workload = "backlog"
	Timers     Workload = "timers"

	Transfer        Workload = "transfer"
	Transfers       Workload = "transfers"
	HotTransfers    Workload = "hot-transfers"
	RandomTransfers Workload = "random-transfers"

	crash Workload = "crash" // the first half of Recovery: ends with the death of the process
)

// Workloads are all workloads in the order in which they run.
var Workloads = []Workload{
	Throughput, Latency, Calls, TwoCalls, Transfer, Transfers, HotTransfers, RandomTransfers, Payload, FanOut, Sequence, Recovery, History, Open,
	Timers, Tasks, Limited, Backlog, Pickup,
}

// queued reports whether the workload needs a Queue.
func (w Workload) queued() bool {
	return w == Tasks || w == Limited || w == Backlog || w == Pickup
}

// entities reports whether the workload needs a system with entities.
func (w Workload) entities() bool { return w == Calls || w == TwoCalls || w.transfers() }

// transfers reports whether the workload locks entities.
func (w Workload) transfers() bool {
	return w == Transfer || w == Transfers || w == HotTransfers || w == RandomTransfers
}

// loads reports whether clients of the workload repeat one operation for some time. Each client
// waits for the result before it repeats the operation.
func (w Workload) loads() bool {
	return w == Throughput || w == Latency || w == Payload || w.entities()
}

// clients returns how many clients repeat the operation.
func (j Job) clients() int {
	if j.Workload == Latency || j.Workload == Transfer {
		return 1
	}
	return j.Clients
}

// Job is one measurement that a child process runs.
type Job struct {
	System   string
	Workload Workload
	Place    Place
	Duration time.Duration // of Pickup and of workloads whose clients repeat an operation
	Clients  int           // of these workloads; Latency and Transfer have one client
	Sleepers int           // of Open: the largest number of sleeping executions
	Tasks    int           // of Tasks, Limited and Backlog: how many
	Profile  string        // directory for profiles, or ""
}

// Result is the result of a job. Only the fields of its workload are set.
type Result struct {
	System   string
	Kind     Kind
	Workload Workload

	Operations int           // workflows, calls or tasks that ended within Elapsed
	Elapsed    time.Duration // wall time
	// P50 and P99 are times of a workflow. FanOut: the median and the longest time. Pickup: the
	// time from the return of the submission to the start of the task. Timers: how late workflows
	// continue.
	P50, P99 time.Duration
	Usage    Usage

	// Sequence: the total time of all steps, and of the bare commits between them.
	Steps, Bare time.Duration
	FirstStep   time.Duration // Recovery: from the start of the process to its first new step
	// Recovery: completed steps that ran again. Tasks, Limited: attempts after the first.
	Repeated   int
	Points     []Point // History, Open
	Sleeper    int64   // Open: bytes of memory per sleeping execution
	StartRate  float64 // Open: starts per second
	Goroutines int     // Open: goroutines that remain next to the sleeping executions

	FromCall50, FromCall99 time.Duration // Pickup: from the call that submits to the start
}

// Point is the cost of a step, and of a bare commit at the same time. Size is the length of the
// history, or the number of open executions.
type Point struct {
	Size       int
	Step, Bare time.Duration // medians
}

// up is when this process started.
var up = time.Now()

// run runs a job in this process.
func (j Job) run(ctx context.Context, p Peer) (Result, error) {
	r := Result{System: j.System, Kind: j.Place.Kind, Workload: j.Workload}
	queue := func(do func(context.Context, QueueOpener, *Result) error) func(context.Context, Opener, *Result) error {
		return func(ctx context.Context, _ Opener, r *Result) error { return do(ctx, p.Queue, r) }
	}

	work := map[Workload]func(context.Context, Opener, *Result) error{
		FanOut:   j.fanOut,
		Sequence: j.sequence,
		crash:    j.crash,
		Recovery: j.recovery,
		History:  j.history,
		Open:     j.open,
		Timers:   j.timers,
		Tasks:    queue(j.tasks),
		Limited:  queue(j.tasks),
		Backlog:  queue(j.backlog),
		Pickup:   queue(j.pickup),
	}[j.Workload]
	if j.Workload.loads() {
		work = j.load
	}
	if work == nil {
		return r, fmt.Errorf("unknown workload %q", j.Workload)
	}

	if !p.takes(j.Workload) {
		return r, fmt.Errorf("%s does not take part in %s", j.System, j.Workload)
	}
	if err := work(ctx, p.Workflows, &r); err != nil {
		return r, fmt.Errorf("%s of %s on %s: %w", j.Workload, j.System, j.Place.Kind, err)
	}

	return r, nil
}

// profiled runs fn, and writes profiles of it if the job asks for them.
func (j Job) profiled(fn func()) error {
	if j.Profile == "" {
		fn()
		return nil
	}

	name := func(kind string) string {
		return filepath.Join(j.Profile, fmt.Sprintf("%s-%s-%s.%s.pprof", j.System, j.Place.Kind, j.Workload, kind))
	}
	cpu, err := os.Create(name("cpu"))
	if err != nil {
		return err
	}

	allocs, err := os.Create(name("allocs"))
	if err != nil {
		return errors.Join(err, cpu.Close())
	}
	err = pprof.StartCPUProfile(cpu)
	fn()
	pprof.StopCPUProfile()
	runtime.GC() // the profile shows allocations up to the last collection

	return errors.Join(err, pprof.Lookup("allocs").WriteTo(allocs, 0), cpu.Close(), allocs.Close())
}
