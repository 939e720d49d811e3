package main

import (
	"context"
	"fmt"
	"time"
)

const (
	rollingProcesses = 3
	rollingClients   = 16  // in total
	rollingP99       = 3.0 // at most this many times the p99 of the quiet time
)

// rolling restarts the processes of a cluster in turn, as a deployment does, while clients make
// calls behind a balancer.
func (b *bench) rolling(ctx context.Context) error {
	c, err := openCluster(ctx, b.settings(), rollingProcesses)
	if err != nil {
		return err
	}
	defer c.close()
	crowd := openCrowd(c.processes, rollingClients)
	defer crowd.close()

	time.Sleep(b.warmUp())
	quiet := time.Now()
	time.Sleep(b.duration)
	restarts := time.Now()
	for i := range c.processes {
		if err := c.replace(ctx, crowd, i); err != nil {
			return err
		}
	}
	end := time.Now()

	calls := crowd.close()
	before, during := collect(calls, quiet, restarts), collect(calls, restarts, end)
	before.print("before the restarts")
	during.print("during the restarts")
	b.verdict.never("rolling: failed calls", before.failed+during.failed)
	b.verdict.atMost("rolling: p99 during the restarts against the quiet time before", rollingP99, "×", during.p99.Seconds()/before.p99.Seconds())
	return nil
}

// replace stops a process and starts another one in its place. It waits until the new process owns
// its share of the shards.
func (c *cluster) replace(ctx context.Context, crowd *crowd, i int) error {
	old, begun := c.processes[i], time.Now()
	// The balancer takes the process out first, and the process answers the calls that it has. Then
	// it closes its app.
	crowd.leave(old)
	old.calls.Wait()
	if err := old.stop(); err != nil {
		return err
	}
	stopped := time.Since(begun)

	p, err := c.start()
	if err != nil {
		return err
	}
	c.processes[i] = p
	crowd.join(p)
	ready := time.Since(begun)
	err = c.awaitBalance(ctx)
	fmt.Printf("process %d: stopped after %.2f s, another is ready after %.2f s, shards have settled after %.2f s\n",
		i+1, stopped.Seconds(), ready.Seconds(), time.Since(begun).Seconds())
	return err
}

// period sums up the calls that began in a period.
type period struct {
	length        time.Duration
	calls, failed int
	p50, p99, max time.Duration
}

// collect returns the calls that began between two times.
func collect(calls []call, from, to time.Time) (p period) {
	var times []time.Duration
	for _, m := range calls {
		if m.begun.Before(from) || m.begun.After(to) {
			continue
		}
		p.calls++
		times = append(times, m.ended.Sub(m.begun))
		if m.err != nil {
			p.failed++
			fmt.Printf("    call %s failed: %v\n", m.key, m.err)
		}
	}
	p.length = to.Sub(from)
	p.p50, p.p99, p.max = quantile(times, 0.5), quantile(times, 0.99), quantile(times, 1)
	return p
}

// print prints the period.
func (p *period) print(what string) {
	fmt.Printf("%s: %.1f s, %d calls, %d failed, p50 %s, p99 %s, longest %s\n",
		what, p.length.Seconds(), p.calls, p.failed, milliseconds(p.p50), milliseconds(p.p99), milliseconds(p.max))
}
