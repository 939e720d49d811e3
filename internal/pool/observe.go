package pool

import (
	"errors"

	"github.com/perdure/perdure/internal/replay"
	"github.com/perdure/perdure/internal/telemetry"
)

// states reports the metrics of the pool.
func (p *Pool) states(g *telemetry.States) {
	p.mu.Lock()
	defer p.mu.Unlock()
	g.Set(telemetry.PoolSlots, float64(p.cfg.Slots))
	g.Set(telemetry.PoolBusy, float64(len(p.busy)))
	g.Set(telemetry.PoolWaiting, float64(len(p.line)))
	g.Set(telemetry.PoolLost, float64(p.lost))

	closed := func(why string, is bool) {
		v := 0.0
		if is {
			v = 1
		}
		g.Set(telemetry.PoolClosed, v, why)
	}

	closed("load", p.load.shut)
	closed("memory", p.memory.shut)
	closed("paused", p.paused)
	closed("draining", p.draining)
}

// failureWord returns the kind of failure for the span of an attempt; empty if it did not fail.
// Giving a claim back is not a failure.
func failureWord(err error, returned bool) string {
	if _, back := errors.AsType[*GiveBack](err); back {
		return ""
	}
	if err == nil && !returned {
		return "error" // the handler ended its goroutine, so there is no error value
	}
	if err == nil {
		return ""
	}
	return telemetry.FailureWord(replay.FailureOf(err))
}
