package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/model"
)

// How long work may stop after kill -9, in seconds.
const (
	restartTime  = 0.3 // from the opening of the app until the result of the long workflow
	takeoverTime = 1.0 // until another process on the same host serves all shards
)

const (
	chainSteps   = 2000
	chainCrash   = 1900 // the step in which the process dies
	kills        = 3    // processes that recovery kills for each of its two figures
	takeoverLoad = 32   // clients while a process dies
)

// firstStep is when this process executed its first step of the long workflow, in nanoseconds since
// 1970.
var firstStep atomic.Int64

// newChain returns the workflow with many steps. If crashAt is not 0, the body of this step kills
// the process.
func newChain(crashAt int) *perdure.Workflow[int, int] {
	return perdure.NewWorkflow("chain", func(ctx perdure.WorkflowCtx, n int) (int, error) {
		for i := range n {
			step := func(context.Context) (int, error) {
				firstStep.CompareAndSwap(0, time.Now().UnixNano())
				if crashAt > 0 && i == crashAt {
					return 0, syscall.Kill(syscall.Getpid(), syscall.SIGKILL)
				}
				return i, nil
			}
			if _, err := perdure.Do(ctx, "step", step, perdure.StepKey(strconv.Itoa(i))); err != nil {
				return 0, err
			}
		}
		return n, nil
	})
}

// resumed says how long a process took to continue the workflow with many steps. All times start
// when the process starts to open its app.
type resumed struct {
	Open, Step, Result time.Duration // the app is open; the first step runs; the result is there
}

// chain executes the command "chain" of the parent process: it runs the workflow with many steps.
func (c *child) chain(n int) (r resumed, err error) {
	chain := perdure.DeclareWorkflow[int, int]("chain")
	_, err = chain.Run(c.client, n, perdure.RawKey("chain"))
	r.Result = time.Since(c.opens)
	r.Open, r.Step = c.open.Sub(c.opens), time.Unix(0, firstStep.Load()).Sub(c.opens)
	return r, err
}

// recovery kills processes.
func (b *bench) recovery(ctx context.Context) error {
	for range kills {
		r, started, err := b.restart()
		if err != nil {
			return fmt.Errorf("restart: %w", err)
		}
		fmt.Printf("%d steps, killed at step %d: app open after %.3f s, next step %.3f s, result %.3f s; result %.3f s after the start of the process\n",
			chainSteps, chainCrash, r.Open.Seconds(), r.Step.Seconds(), r.Result.Seconds(), started.Seconds())
		b.verdict.atMost(fmt.Sprintf("recovery: %d steps, killed at %d: from opening the app again to the result", chainSteps, chainCrash), restartTime, " s", r.Result.Seconds())
	}

	for range kills {
		if err := b.takeover(ctx); err != nil {
			return fmt.Errorf("takeover: %w", err)
		}
	}
	return nil
}

// restart kills a process in the middle of a long workflow and starts it again. The times in r
// start when the second process opens its app. started is the time from the start of that process
// to the result.
func (b *bench) restart() (r resumed, started time.Duration, err error) {
	s := b.settings()
	s.CrashAt = chainCrash
	first, err := launch(s)
	if err != nil {
		return r, 0, err
	}
	_, err = ask[resumed](first, "chain", chainSteps)
	first.kill()
	if !errors.Is(err, errGone) {
		return r, 0, errors.Join(errors.New("the process has not died"), err)
	}

	s.CrashAt = 0
	second, err := launch(s)
	if err != nil {
		return r, 0, err
	}
	defer second.kill()
	// The process reads the command as soon as its app is open.
	r, err = ask[resumed](second, "chain", chainSteps)
	return r, time.Since(second.begun), err
}

// takeover kills one of two processes under load, and measures how long its shards are not served.
func (b *bench) takeover(ctx context.Context) error {
	c, err := openCluster(ctx, b.settings(), 2)
	if err != nil {
		return err
	}
	defer c.close()
	survivor, victim := c.processes[0], c.processes[1]
	crowd := openCrowd(c.processes, takeoverLoad)
	defer crowd.close()
	time.Sleep(b.warmUp())
	dead, err := c.ownedBy(ctx, victim)
	if err != nil {
		return err
	}

	// The calls that have reached the victim are lost with it. All others must be answered.
	crowd.leave(victim)
	killed := time.Now()
	victim.kill()
	probes := probe(survivor, dead)
	answered := lastEnd(probes)
	time.Sleep(b.warmUp())

	served, failed := answered, 0
	for _, m := range append(crowd.close(), probes...) {
		switch {
		case m.through == victim:
		case m.err != nil:
			failed++
			fmt.Printf("    call %s failed: %v\n", m.key, m.err)
		case dead[shardOf(m.key, len(dead))] && m.begun.Before(answered) && m.ended.After(served):
			// This call began before all probes were answered, and was answered after them. So it
			// may also have waited for a shard without an owner.
			served = m.ended
		}
	}
	fmt.Printf("one of 2 processes killed: its %d shards are served after %.3f s, %d failed calls\n", len(probes), served.Sub(killed).Seconds(), failed)
	b.verdict.atMost("recovery: shards of a killed process served by another on the same host", takeoverTime, " s", served.Sub(killed).Seconds())
	b.verdict.never("recovery: failed calls through the process that is alive", failed)
	return nil
}

// probe makes a call to each of the shards that have lost their owner, all at the same time.
func probe(through *process, dead []bool) (probes []call) {
	var keys []string
	for shard, lost := range dead {
		if lost {
			keys = append(keys, keyIn("probe", []model.ShardID{model.ShardID(shard)}, len(dead)))
		}
	}
	probes = make([]call, len(keys))
	var wg sync.WaitGroup
	for i, key := range keys {
		wg.Go(func() { probes[i] = makeCall(through, key) })
	}
	wg.Wait()
	return probes
}

// lastEnd returns when the last of some calls was answered.
func lastEnd(calls []call) (last time.Time) {
	for _, c := range calls {
		if c.ended.After(last) {
			last = c.ended
		}
	}
	return last
}
