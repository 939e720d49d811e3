package main

import (
	"context"
	"fmt"
	"math"
)

// What several processes together must reach, compared with one process.
const (
	twoLinked   = 85.0 // percent of the rate
	threeLinked = 75.0
	twoUnlinked = 45.0
	slowerP99   = 3.0 // at most this many times the p99
)

// steps measures workflows of three steps on several processes. Each process has the same number of
// clients. The shards are spread over all n processes, so only one request in n is for a shard of
// the process that makes it.
func (b *bench) steps(ctx context.Context) error {
	rate, p99 := math.NaN(), math.NaN() // of one process
	for _, n := range b.sizes {
		for _, link := range b.links {
			if n == 1 && link == "off" {
				continue
			}
			o, err := b.stepsOf(ctx, n, link)
			if err != nil {
				return err
			}
			b.printSteps(n, link, o)

			got, late := b.rate(o), toMillis(o.P99)
			if n == 1 {
				rate, p99 = got, late
			} else if !math.IsNaN(rate) {
				fmt.Printf("    %.0f %% of one process\n", 100*got/rate)
				b.judgeSteps(n, link, 100*got/rate, late/p99)
			}
		}
	}
	return nil
}

// stepsOf measures n processes.
func (b *bench) stepsOf(ctx context.Context, n int, link string) (outcome, error) {
	s := b.settings()
	s.NoLink = link == "off"
	c, err := openCluster(ctx, s, n)
	if err != nil {
		return outcome{}, err
	}
	defer c.close()

	all, err := askAll[outcome](c.processes, "load", func(i int) any {
		l := load{Clients: b.clients, Warm: b.warmUp(), Duration: b.duration}
		if b.profile != "" {
			l.Profile = fmt.Sprintf("%s/%s_%d_%s_%d.pprof", b.profile, s.Schema, n, link, i)
		}
		return l
	})
	return sum(all), err
}

// printSteps prints the rate and the CPU time of all processes together, and the percentiles of the
// slowest process.
func (b *bench) printSteps(n int, link string, o outcome) {
	fmt.Printf("%s, links %s: %.0f workflows/s, p50 %s, p99 %s, %.3f ms CPU of the processes per workflow\n",
		count(n, "process", "processes"), link, b.rate(o), milliseconds(o.P50), milliseconds(o.P99), o.cpuEach())
}

// judgeSteps compares two figures with the bars: the rate, in percent of the rate of one process,
// and the p99, as a multiple of the p99 of one process.
func (b *bench) judgeSteps(n int, link string, share, late float64) {
	const rate = "steps: rate of %d processes against one, links %s"
	switch {
	case n == 2 && link == "off":
		b.verdict.atLeast(fmt.Sprintf(rate, n, link), twoUnlinked, " %", share)
	case n == 2:
		b.verdict.atLeast(fmt.Sprintf(rate, n, link), twoLinked, " %", share)
	case n == 3 && link == "on":
		b.verdict.atLeast(fmt.Sprintf(rate, n, link), threeLinked, " %", share)
	}
	if link == "on" {
		b.verdict.atMost(fmt.Sprintf("steps: p99 of %d processes against one, links on", n), slowerP99, "×", late)
	}
}
