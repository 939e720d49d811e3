package scenario

import (
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/kernel"
	"github.com/perdure/perdure/internal/store"
)

// Options configure one simulation. The zero value has all faults and no trace.
type Options struct {
	// Trace collects a readable trace, which makes the simulation slower.
	Trace bool
	// Calm leaves out all faults.
	Calm bool
	// Plain leaves out lending and the faults that last. Older known seeds need Plain, because they
	// were found before these faults existed.
	Plain bool
	// Features are the features that are on or off in every seed.
	Features Features
}

// Scenario is everything that a seed decides before the first event: the features and faults of the
// simulation, the programs and tasks, and the settings.
type Scenario struct {
	*kernel.Kernel

	Opts     Options
	Plan     plan
	Stats    Stats
	Programs []*program
	Healed   bool // all faults have ended
	ids      uint64

	seed     uint64
	features Feature
	stamps   uint64
	deeds    uint64
	errands  [len(TaskKeys)]errand
	Settings []store.Setting // the settings at the start
}

// New draws the scenario of a seed.
func New(seed uint64, o Options) *Scenario {
	s := &Scenario{Kernel: kernel.New(seed, o.Trace), Opts: o, seed: seed}
	s.pickFeatures()
	s.drawPlan()
	if s.Has(Entities) {
		s.drawEntities()
	}

	if s.Has(Tasks) {
		s.drawFeature(DeadOrders)
		s.drawFeature(Gates)
		if s.Has(Gates) && s.Has(Lending) { // only nodes that share a store lend
			s.features |= SharedGates
		}
		for i := range s.errands {
			s.errands[i] = s.drawErrand()
		}
	}

	if s.Has(Gates) {
		s.drawSettings()
	}
	s.drawPrograms()
	s.drawHardships()
	if s.Tracing {
		s.Logf("seed %d has %s", seed, s.features)
	}

	return s
}

// NewRun draws an id that sorts by the time at which it was drawn, as a UUIDv7 does.
func (s *Scenario) NewRun() model.RunID { return s.NewRunAt(kernel.Epoch + model.Time(s.Now)) }

// NewRunAt draws an id that sorts by the given time.
func (s *Scenario) NewRunAt(t model.Time) (id model.RunID) {
	s.ids++
	ms := uint64(t) / 1000
	for i := range 6 {
		id[i] = byte(ms >> (8 * (5 - i)))
	}
	for i := range 8 {
		id[8+i] = byte(s.ids >> (8 * (7 - i)))
	}
	return id
}
