package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"runtime/pprof"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/perdure/perdure"
)

// threeName is the name of the workflow of three steps.
const threeName = "three"

var double = perdure.NewActivity("double", func(_ context.Context, n int) (int, error) { return 2 * n, nil })

var three = perdure.NewWorkflow(threeName, func(ctx perdure.WorkflowCtx, n int) (int, error) {
	for range 3 {
		var err error
		if n, err = double.Run(ctx, n); err != nil {
			return 0, err
		}
	}
	return n, nil
})

// load lets the clients of a process repeat an operation. Each client waits for a result before it
// starts the next operation.
type load struct {
	Transfers      bool // transfers between accounts instead of workflows of three steps
	Clients        int
	Warm, Duration time.Duration
	Profile        string // file for a CPU profile; empty for none
}

// outcome is what one process has measured.
type outcome struct {
	// Done counts operations that ended during the measurement. All also counts the operations that
	// ended before and after it.
	Done, All int64
	P50, P99  time.Duration
	CPU       time.Duration
}

// timed is one operation of a client.
type timed struct {
	ended time.Time
	took  time.Duration
}

// load executes the order "load" of the parent process: it measures a load. It counts only the
// operations that end between the end of the warm-up and the moment at which the clients stop.
func (c *child) load(l load) (o outcome, err error) {
	operation := c.runThree
	if l.Transfers {
		operation = c.runTransfer
	}
	from := time.Now().Add(l.Warm)
	to := from.Add(l.Duration)
	var all []timed
	var wg sync.WaitGroup
	wg.Go(func() { all, err = repeat(l.Clients, to, operation) })

	time.Sleep(time.Until(from))
	begun := cpu()
	stop, failed := startProfile(l.Profile)
	time.Sleep(time.Until(to))
	stop()
	o.CPU = cpu() - begun
	wg.Wait()
	if err == nil {
		err = failed
	}

	var times []time.Duration
	for _, t := range all {
		if t.ended.After(from) && t.ended.Before(to) {
			times = append(times, t.took)
		}
	}
	o.Done, o.All = int64(len(times)), int64(len(all))
	o.P50, o.P99 = quantile(times, 0.5), quantile(times, 0.99)
	return o, err
}

// repeat lets clients repeat an operation until a given time, and returns all operations.
func repeat(clients int, until time.Time, operation func(key string) error) ([]timed, error) {
	var wg sync.WaitGroup
	var failed atomic.Pointer[error]
	all := make([][]timed, clients)
	for i := range clients {
		wg.Go(func() {
			for n := 0; failed.Load() == nil && time.Now().Before(until); n++ {
				begun := time.Now()
				if err := operation(fmt.Sprintf("%d-%d-%d", os.Getpid(), i, n)); err != nil {
					failed.Store(&err)
					return
				}
				ended := time.Now()
				all[i] = append(all[i], timed{ended, ended.Sub(begun)})
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		return nil, *err
	}
	return slices.Concat(all...), nil
}

// runThree runs a workflow of three steps.
func (c *child) runThree(key string) error {
	_, err := three.Run(c.client, 1, perdure.RawKey(key))
	return err
}

// startProfile starts a CPU profile. It does nothing without a file.
func startProfile(file string) (stop func(), err error) {
	stop = func() {}
	if file == "" {
		return stop, nil
	}
	f, err := os.Create(file)
	if err != nil {
		return stop, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		_ = f.Close()
		return stop, err
	}
	return func() {
		pprof.StopCPUProfile()
		_ = f.Close()
	}, nil
}

// cpu returns the processor time that the process has used so far.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// quantile sorts times and returns a quantile, such as 0.99; 0 if there are no times.
func quantile(times []time.Duration, q float64) time.Duration {
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	return times[min(len(times)-1, int(float64(len(times))*q))]
}

// milliseconds returns a time as text with two decimals.
func milliseconds(d time.Duration) string {
	return strconv.FormatFloat(toMillis(d), 'f', 2, 64) + " ms"
}

// toMillis returns a time in milliseconds.
func toMillis(d time.Duration) float64 { return d.Seconds() * 1000 }

// sum adds up what all processes have done. The total gets the percentiles of the slowest process.
func sum(all []outcome) (total outcome) {
	for _, o := range all {
		total.Done += o.Done
		total.All += o.All
		total.CPU += o.CPU
		total.P50, total.P99 = max(total.P50, o.P50), max(total.P99, o.P99)
	}
	return total
}

// rate returns how many operations ended per second. It is not a number if none did.
func (b *bench) rate(o outcome) float64 {
	if o.Done == 0 {
		return math.NaN()
	}
	return float64(o.Done) / b.duration.Seconds()
}

// cpuEach returns the processor time for each operation, in milliseconds.
func (o *outcome) cpuEach() float64 { return toMillis(o.CPU) / float64(max(1, o.Done)) }

// count returns a number with its noun.
func count(n int, one, many string) string {
	if n == 1 {
		many = one
	}
	return fmt.Sprintf("%d %s", n, many)
}
