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
	// Plain leaves out the faults that last (hardship). Older known seeds need it, because they
	// were found before these faults existed.
	Plain bool
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

	Labels   bool // executions have labels
	Entities bool // there are accounts and desks
	stamps   uint64
	deeds    uint64
	hardship Hardship

	// the seed has retention; with tasks it also has orders for dead tasks, limits, breakers and
	// pauses
	Young      bool
	DeadOrders bool // there are orders for dead tasks
	Gates      bool // there are limits, breakers and paused queues
	Shared     bool // and all nodes share them
	Tasks      bool // there are tasks
	Lends      bool // nodes lend each other slots of their workers
	errands    [len(TaskKeys)]errand
	Settings   []store.Setting // at the start
}

// New draws the scenario of a seed.
func New(seed uint64, o Options) *Scenario {
	// One seed in eight has labels. One in three has tasks. One in three is young: it has the
	// features that were added later, and half of the young ones have tasks. About one in four has
	// entities. The other seeds do not change, so that they still cover what they have found.
	s := &Scenario{Kernel: kernel.New(seed, o.Trace), Opts: o, Labels: seed%8 == 3, Tasks: seed%3 == 1 || seed%6 == 5, Young: seed%3 == 2}
	s.Shared = s.Young && s.Tasks && seed%24 != 23
	s.Entities = seed%6 == 0 || seed%7 == 1
	s.drawPlan()
	if s.Entities {
		s.drawEntities()
	}

	if s.Tasks {
		s.Lends = seed%6 == 4 && !o.Plain
		s.DeadOrders, s.Gates = s.Young && s.Chance(0.8), s.Young && s.Chance(0.7) || s.Shared
		for i := range s.errands {
			s.errands[i] = s.drawErrand()
		}
	}

	if s.Gates {
		s.drawSettings()
	}
	s.drawPrograms()
	s.drawHardships(seed)

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
