package sim

import (
	"fmt"
	"runtime/debug"

	"github.com/perdure/perdure/internal/sim/cluster"
	"github.com/perdure/perdure/internal/sim/kernel"
	"github.com/perdure/perdure/internal/sim/oracle"
	"github.com/perdure/perdure/internal/sim/scenario"
	"github.com/perdure/perdure/internal/sim/workload"
)

// Options configure one simulation. The zero value has all faults and no trace.
type Options = scenario.Options

// Stats count what happened in simulations.
type Stats = scenario.Stats

// Result is the outcome of a simulation.
type Result struct {
	Hash  uint64
	Stats Stats
	// Trace is the readable trace. It is empty unless Options.Trace is set.
	Trace string
}

// Run simulates one seed. The error says which invariant was broken.
func Run(seed uint64, o Options) (r Result, err error) {
	s := workload.New(cluster.New(oracle.New(scenario.New(seed, o))))
	defer s.Abandon()
	defer func() {
		switch p := recover().(type) {
		case nil:
		case kernel.Violation:
			err = p
		default:
			err = fmt.Errorf("panic at %s: %v\n%s", s.Clock(), p, debug.Stack())
		}
		r.Stats = s.Stats
		r.Trace, r.Hash = s.Outcome()
	}()

	s.Begin()
	s.RunFaults()
	s.Settle()
	s.Check()

	return r, nil
}
