package scenario

import (
	"time"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/engine/storeclock"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/kernel"
)

// SickAddress draws an address whose rows become unwritable or unreadable.
func (s *Scenario) SickAddress() model.Address {
	a := s.Address()
	if s.Chance(0.2) {
		a = s.ChildAddress()
	}
	if s.Has(Tasks) && s.Chance(0.4) {
		a = s.TaskAddress(s.Pick(len(TaskKeys)))
	}
	if s.Has(Entities) && s.Chance(0.4) {
		a = AccountAddress(s.Pick(s.Plan.Accounts))
	}
	return a
}

// KeepIDs is how long nodes remember request ids. It is longer than the time during which users
// repeat a request, and longer than a request is in flight.
func (s *Scenario) KeepIDs() time.Duration {
	return kernel.Microseconds(4*s.Plan.Slow + 20*kernel.Second)
}

// plan has the decisions that a seed makes at the start.
type plan struct {
	Shards, Lanes int
	Groups        []model.Group // in addition to the default group
	Serves        [3][]string   // by slot: the groups whose shards its process takes
	Layout        model.Layout
	Ttl           time.Duration    // the length of the shortest leases
	Ttls          [3]time.Duration // by slot: the length of the leases of its process
	Lane          lane.Config
	SameHost      bool    // nodes can prove each other's death
	Drift         float64 // the largest drift of the nodes' clocks

	Stagger     int64 // the time between the starts of nodes
	FaultsUntil int64
	Patience    int64 // the time from FaultsUntil until everything must have ended
	Poll        int64 // how long the clerk waits before it looks for answers again

	Latency, Slow, LoopDelay int64 // longest delay of a call, a slow call, a lane's loop

	// Probabilities.
	CommitFails, CommitUnknown, CommitSlow float64
	LoadFails, CallFails                   float64
	HintLost, MailLost, TornRead           float64
	Ahead, Release, Stale, Restart         float64
	OddView                                float64

	Crashes, Pauses, Leaves, Aways, Poisons, Corrupts, Moves, Sweeps, Deploys int

	jumpPlan
	damagePlan

	Narrow      narrow
	Upgrades    bool    // processes are upgraded to a newer build
	NewEvents   int     // addresses that only the newer build can read
	Damage      float64 // probability that a request in an inbox is damaged
	BadPages    bool    // every page has a row that cannot be read
	LateUpgrade bool    // everything else ends before any process is of the newer build
	Lasting     int     // addresses whose rows are refused until everything else has ended
	Floods      int     // how often a user sends many large signals to one address
	Heavy       int     // bytes that outputs of tasks have in addition to their data
	Forgets     bool    // the simulation checks at the end that request ids are forgotten
	Lies        int     // how often other nodes believe that a live node has died

	Users, Actions int
	Keys, children int
	Pins           bool          // workers have versions, and workflows are pinned
	Slots          int           // the slots of each worker for runs or calls; 0 for any number
	Grace          time.Duration // how long a claim may have no worker
	Hires          int           // how often hands come and go
	KeepDead       time.Duration // how long dead tasks are kept; 0 means forever

	Accounts, Desks int // number of entities
	// EntityIdle is how long idle entities stay in memory; 0 means the default.
	EntityIdle time.Duration
	// EntityTTL is how long states of accounts live, and EntityIdleTTL how long they live after
	// their last operation; 0 means forever.
	EntityTTL, EntityIdleTTL time.Duration

	Overlap     int // calls of a desk that run at the same time; 0 for any number
	EntityMoves int // how often tellers come and go

	Drains int // how often an operator drains a node, or withdraws such an order
}

func (s *Scenario) drawPlan() {
	p := &s.Plan
	p.Shards = kernel.OneOf(s, 4, 8, 8, 16)
	p.Lanes = kernel.OneOf(s, 1, 1, 2)
	p.Ttl = kernel.OneOf(s, 500*time.Millisecond, time.Second, 2*time.Second)
	p.Ttls = [3]time.Duration{p.Ttl, p.Ttl, p.Ttl}

	p.Lane = lane.Config{
		Limits:        core.DefaultLimits,
		MaxBatchRows:  kernel.OneOf(s, 0, 0, 4, 16),
		MaxBytes:      kernel.OneOf(s, 0, 0, 2<<10, 8<<10),
		MaxMail:       kernel.OneOf(s, 0, 0, 1, 2<<10),
		MaxHeld:       kernel.OneOf(s, 0, 0, 1, 16<<10),
		KeepIdle:      kernel.OneOf(s, 0, 1),
		MaxBacklog:    kernel.OneOf(s, 0, 0, 0, 4),
		PerKey:        kernel.OneOf(s, 0, 0, 1, 2),
		MaxLoads:      kernel.OneOf(s, 0, 0, 1, 3),
		TimerWindow:   kernel.OneOf(s, 0, 0, 1, 2, 3, 6),
		TimerHorizon:  kernel.OneOf(s, 0, 300*time.Millisecond, time.Second),
		DrainWait:     kernel.OneOf(s, 100*time.Millisecond, 500*time.Millisecond),
		QuarantineFor: kernel.OneOf(s, 200*time.Millisecond, 600*time.Millisecond),
	}

	p.Lane.MaxPutOff = 8
	if s.Chance(0.1) {
		p.Lane.Limits.Signals = 2
	}
	p.SameHost = s.Chance(0.4)
	p.Clock = storeclock.Config{Persist: 50 * time.Millisecond}
	p.Drift = kernel.OneOf(s, 0.0, 0.01, 0.03)
	p.Stagger = kernel.OneOf(s, 0, 50*kernel.Millisecond, 500*kernel.Millisecond)
	p.FaultsUntil = s.Between(1200, 3500) * kernel.Millisecond
	p.Patience = 60 * kernel.Second
	p.Poll = s.Between(50, 300) * kernel.Millisecond
	p.Latency = kernel.OneOf[int64](s, 300, 1000, 3000)
	p.Slow = kernel.OneOf(s, 20*kernel.Millisecond, 300*kernel.Millisecond, p.Ttl.Microseconds())
	p.LoopDelay = kernel.OneOf[int64](s, 0, 50, 500)
	p.Users = 2 + s.Pick(3)
	p.Actions = 5 + s.Pick(5)
	p.Keys, p.children = 3+s.Pick(4), 1+s.Pick(3)
	p.Ahead, p.Release = kernel.OneOf(s, 0.0, 0.5, 1), kernel.OneOf(s, 0.0, 0.3, 1)
	p.Pins = s.Chance(0.4)
	if s.Has(Tasks) {
		p.Grace = kernel.OneOf(s, 100*time.Millisecond, 500*time.Millisecond, 3*time.Second)
	}
	if s.Has(Retention) {
		s.drawRetention()
	}
	if s.Has(Outliving) {
		p.Lane.Reunion = kernel.OneOf(s, 100*time.Millisecond, 400*time.Millisecond, time.Second)
	}
	if s.Has(Slots) {
		p.Slots = 1 + s.Pick(2)
	}
	if s.Has(DrawnIDs) {
		p.Lane.EraIDs = kernel.OneOf(s, 0, 1, 2, 5)
	}
	if s.Has(ShardGroups) {
		s.drawGroups()
	}
	p.Layout = model.NewLayout(p.Shards, p.Groups)
	if s.Has(LeaseLengths) {
		s.drawLeases()
	}
	if s.Has(AheadWaits) {
		p.Lane.AheadWait = kernel.OneOf(s, time.Millisecond, 10*time.Millisecond, 100*time.Millisecond)
	}
	if s.Opts.Calm {
		return
	}

	p.CommitFails, p.CommitUnknown, p.CommitSlow = s.rate(0.15), s.rate(0.15), s.rate(0.1)
	p.LoadFails, p.CallFails = s.rate(0.2), s.rate(0.2)
	p.HintLost, p.MailLost, p.TornRead = s.rate(0.6), s.rate(0.6), s.rate(0.6)
	p.Stale, p.Restart, p.OddView = s.rate(0.1), s.rate(0.2), s.rate(0.2)
	p.Crashes, p.Pauses, p.Leaves = s.Pick(3), s.Pick(3), s.Pick(2)
	p.Aways, p.Poisons, p.Corrupts = s.Pick(2), s.Pick(4), s.Pick(3)
	p.Moves, p.Sweeps = s.Pick(5), s.Pick(3)
	if s.Has(Tasks) {
		p.Hires = s.Pick(8)
	}
	if p.Pins {
		p.Deploys = s.Pick(3)
	}
	if s.Has(Drains) {
		p.Drains = 1 + s.Pick(8)
	}
}

// rate draws a probability up to most, often zero.
func (s *Scenario) rate(most float64) float64 {
	if s.Chance(0.25) {
		return 0
	}
	return most * float64(s.Random()>>11) / (1 << 53)
}
