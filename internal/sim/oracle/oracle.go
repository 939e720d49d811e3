package oracle

import (
	"github.com/perdure/perdure/internal/core/limit"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/kernel"
	"github.com/perdure/perdure/internal/sim/scenario"
	"github.com/perdure/perdure/internal/store/memory"
)

// Oracle is everything that the simulation expects: the ledger of the store's rows, the requests of
// users, the clock of the store, and the claims of tasks.
type Oracle struct {
	*scenario.Scenario

	Store  *memory.Store // the rows themselves
	Ledger *ledger
	Ops    []*Op
	Copies []model.Address // where forks and imports went

	Shift   int64   // how far the clock of the store has jumped
	Lasting int64   // the largest shift that has lasted
	Jumping int64   // when the clock jumps back
	Jumped  []int64 // when the clock jumped
	Stepped int64   // when the clock last jumped permanently
	Slewed  bool    // the clock jumped by so little that nodes follow
	// Tripped is the duration of the slowest call with which a node first read the store's clock.
	Tripped int64
	Behind  int64 // the longest time by which the clock of a node was behind the store's clock

	damage    damage
	damaged   map[model.RunID]bool   // requests, and whether their rows are damaged
	NewEvents map[model.Address]bool // addresses with events that the old build cannot read
	Heaviest  int                    // bytes of the largest request of a user

	TaskWorkers map[string]taskWorker // all task workers that ever existed, by name
	Claims      map[model.ClaimRef]*claimed
	Reports     map[model.ClaimRef][]*model.TaskReport
	Beats       map[model.ClaimRef]Beat
	Dropped     map[model.ClaimRef]bool // claims that were given back because no worker had them

	Sets     []*rule.Set               // rule sets that nodes have used
	began    map[rule.Resource][]int64 // start times of tasks that need a token
	breakers map[rule.BreakerID]*sharedBreaker
	places   map[string][]limit.Place // nodes that have something on a page, as stored
}

// New returns an oracle that expects an empty store.
func New(c *scenario.Scenario) *Oracle {
	s := &Oracle{
		Scenario: c, damage: newDamage(), damaged: map[model.RunID]bool{}, NewEvents: map[model.Address]bool{},
		TaskWorkers: map[string]taskWorker{}, Claims: map[model.ClaimRef]*claimed{}, Reports: map[model.ClaimRef][]*model.TaskReport{}, Beats: map[model.ClaimRef]Beat{}, Dropped: map[model.ClaimRef]bool{},
		began: map[rule.Resource][]int64{}, breakers: map[rule.BreakerID]*sharedBreaker{}, places: map[string][]limit.Place{},
	}
	s.Ledger = newLedger(s)
	return s
}

// StoreTime returns the time of the store's clock.
func (s *Oracle) StoreTime() model.Time { return model.Time(kernel.Epoch + s.Now + s.Shift) }
