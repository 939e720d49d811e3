package pool

import (
	"math"
	"runtime/debug"
	"runtime/metrics"
)

// gate opens and shuts according to a level. It has two marks, so that a level that moves around
// one of them does not open and shut the gate all the time. A gate without a high mark is always
// open.
type gate struct {
	high, low float64
	shut      bool
}

// level sets the current level. The gate shuts at the high mark or above, opens at the low mark or
// below, and does not change in between.
func (g *gate) level(v float64) {
	switch {
	case g.high <= 0:
	case !g.shut && v >= g.high:
		g.shut = true
	case g.shut && v <= g.low:
		g.shut = false
	}
}

// memory returns the share of the process's memory limit (GOMEMLIMIT) that is in use; 0 if there is
// no limit. Memory that the runtime has free but has not returned to the system is available to the
// next task, so it does not count.
func memory() float64 {
	limit := debug.SetMemoryLimit(-1)
	if limit <= 0 || limit == math.MaxInt64 {
		return 0
	}
	samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}, {Name: "/memory/classes/heap/free:bytes"}}
	metrics.Read(samples)
	for _, s := range samples {
		if s.Value.Kind() != metrics.KindUint64 {
			return 0
		}
	}
	return float64(samples[0].Value.Uint64()-samples[1].Value.Uint64()-samples[2].Value.Uint64()) / float64(limit)
}
