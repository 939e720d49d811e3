package pool

import (
	"errors"

	"github.com/perdure/perdure/internal/replay"
	"github.com/perdure/perdure/internal/telemetry"
)

// states tells how the pool stands.
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

// failureWord is how an attempt failed, for its span; empty when it did not. To give a claim back
// is no failure.
func failureWord(err error, returned bool) string {
	if _, back := errors.AsType[*GiveBack](err); back {
		return ""
	}
	if err == nil && !returned {
		return "error" // its goroutine was ended
	}
	if err == nil {
		return ""
	}
	return telemetry.FailureWord(replay.FailureOf(err))
}
