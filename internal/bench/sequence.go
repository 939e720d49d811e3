package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// warmUp is the number of steps after which the logs of the stores have their full size. A sync of
// a growing file is slower, so without a warm-up the first measurement would look too expensive.
const warmUp = 3000

// longChain is the number of steps of the workflow of Sequence and Recovery. crashAt is the step at
// which the process dies.
const longChain, crashAt = 2000, 1900

// pace measures a chain. Its body makes a bare commit between any two steps, and records how long
// the step and the commit took.
type pace struct {
	ctx         context.Context
	bare        bare
	steps, rows []time.Duration
	last        time.Time
	err         error
}

// body is the body of a step. The cost of a step is the time from the end of its body to the start
// of the next body.
func (p *pace) body(int) {
	begin := time.Now()
	if !p.last.IsZero() {
		p.steps = append(p.steps, begin.Sub(p.last))
	}
	if err := p.bare.commit(p.ctx, 1, true); err != nil && p.err == nil {
		p.err = err
	}
	p.last = time.Now()
	p.rows = append(p.rows, p.last.Sub(begin))
}

// chain runs a workflow of n steps.
func (p *pace) chain(system System, key string, n int) error {
	p.steps, p.rows, p.last = p.steps[:0], p.rows[:0], time.Time{}
	if err := errors.Join(system.Chain(p.ctx, key, n), p.err); err != nil {
		return err
	}
	if len(p.rows) != n {
		return fmt.Errorf("%d of %d steps ran", len(p.rows), n)
	}
	return nil
}

// openPace opens a system, and a bare committer next to it.
func openPace(ctx context.Context, place Place, open Opener) (_ *pace, _ System, done func() error, err error) {
	committer, err := openBare(ctx, place)
	if err != nil {
		return nil, nil, nil, err
	}
	p := &pace{ctx: ctx, bare: committer}
	system, err := open(ctx, place, p.body)
	if err != nil {
		return nil, nil, nil, errors.Join(err, committer.close(ctx))
	}
	return p, system, func() error { return errors.Join(system.Close(), committer.close(ctx)) }, nil
}

// sequence measures a long chain.
func (j Job) sequence(ctx context.Context, open Opener, r *Result) error {
	p, system, done, err := openPace(ctx, j.Place, open)
	if err != nil {
		return err
	}

	err = p.chain(system, "warm", warmUp)
	if err == nil {
		begin := time.Now()
		perr := j.profiled(func() { err = p.chain(system, "chain", longChain) })
		err = errors.Join(err, perr)
		r.Elapsed = time.Since(begin)
	}

	if err == nil {
		r.Operations = longChain
		r.Steps, r.Bare = sum(p.steps), sum(p.rows)
		r.Points = []Point{{Size: longChain, Step: quantile(p.steps, 0.5), Bare: quantile(p.rows, 0.5)}}
		r.P50, r.P99 = quantile(p.steps, 0.5), quantile(p.steps, 0.99)
		r.Usage.RSS = residentMemory()
	}

	return errors.Join(err, done())
}

// history measures steps at several lengths of one history.
func (j Job) history(ctx context.Context, open Opener, r *Result) error {
	const window = 500
	sizes := []int{10, 1000, 10000}
	p, system, done, err := openPace(ctx, j.Place, open)
	if err != nil {
		return err
	}
	if err = p.chain(system, "warm", warmUp); err == nil {
		err = p.chain(system, "chain", slices.Max(sizes)+window+1)
	}

	if err == nil {
		for _, n := range sizes {
			r.Points = append(r.Points, Point{
				Size: n,
				Step: quantile(slices.Clone(p.steps[n:n+window]), 0.5),
				Bare: quantile(slices.Clone(p.rows[n:n+window]), 0.5),
			})
		}
	}

	return errors.Join(err, done())
}

// open measures steps next to sleeping executions, and the cost of these executions.
func (j Job) open(ctx context.Context, open Opener, r *Result) error {
	const window, sleep = 500, 24 * time.Hour
	p, system, done, err := openPace(ctx, j.Place, open)
	if err != nil {
		return err
	}

	err = func() error {
		if err := p.chain(system, "warm", warmUp); err != nil {
			return err
		}
		var empty int64

		started := 0
		for i, n := range []int{min(10, j.Sleepers), min(1000, j.Sleepers), j.Sleepers} {
			begin := time.Now()
			if err := sleepers(ctx, system, started, n, sleep); err != nil {
				return err
			}
			if n > started {
				r.StartRate = float64(n-started) / time.Since(begin).Seconds()
			}
			started = n
			r.Goroutines = settle(ctx)
			if i == 0 {
				empty = residentMemory()
			}
			r.Usage.RSS = residentMemory()
			r.Sleeper = (r.Usage.RSS - empty) / int64(n)
			if err := p.chain(system, fmt.Sprintf("beside-%d-%d", n, i), window); err != nil {
				return err
			}

			r.Points = append(r.Points, Point{Size: n, Step: quantile(p.steps, 0.5), Bare: quantile(p.rows, 0.5)})
		}

		return nil
	}()

	return errors.Join(err, done())
}

// sleepers starts the sleeping executions with the numbers from first+1 to n.
func sleepers(ctx context.Context, system System, first, n int, d time.Duration) error {
	const clients = 256
	var (
		next atomic.Int64
		wg   sync.WaitGroup
		mu   sync.Mutex
		errs []error
	)

	next.Store(int64(first))
	for range clients {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				if err := system.StartSleep(ctx, fmt.Sprintf("sleeper-%d", i), d); err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
					return
				}
			}
		})
	}

	wg.Wait()
	return errors.Join(errs...)
}

// settle waits up to half a minute until parked executions have left memory. Then it gives unused
// memory back to the operating system. The result is the number of goroutines.
func settle(ctx context.Context) int {
	few := 200
	for end := time.Now().Add(30 * time.Second); runtime.NumGoroutine() > few && time.Now().Before(end) && ctx.Err() == nil; {
		time.Sleep(50 * time.Millisecond)
	}
	time.Sleep(500 * time.Millisecond)
	debug.FreeOSMemory()
	return runtime.NumGoroutine()
}

// crash runs a chain and kills the process in the middle of a step.
func (j Job) crash(ctx context.Context, open Opener, _ *Result) error {
	system, err := open(ctx, j.Place, func(step int) {
		if step == crashAt {
			die()
		}
	})
	if err != nil {
		return err
	}
	return errors.Join(system.Chain(ctx, "crash", longChain), errors.New("the process survived"))
}

// recovery continues the chain in which crash killed its process.
func (j Job) recovery(ctx context.Context, open Opener, r *Result) error {
	var ran atomic.Int64
	var first time.Duration
	system, err := open(ctx, j.Place, func(step int) {
		if ran.Add(1) == 1 {
			first = time.Since(up)
		}
	})
	if err != nil {
		return err
	}

	if err := system.Chain(ctx, "crash", longChain); err != nil {
		return errors.Join(err, system.Close())
	}
	r.FirstStep, r.Elapsed = first, time.Since(up)
	r.Operations = int(ran.Load())
	r.Repeated = r.Operations - (longChain - crashAt)
	if r.Repeated < 0 {
		err = fmt.Errorf("only %d of the %d steps that were left ran", r.Operations, longChain-crashAt)
	}

	return errors.Join(err, system.Close())
}

func sum(times []time.Duration) (total time.Duration) {
	for _, d := range times {
		total += d
	}
	return total
}
