package sim

import (
	"time"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/engine/storeclock"
)

// plan has the decisions of a seed that are made at the start.
type plan struct {
	shards, lanes      int
	ttl, renew, margin time.Duration
	lane               lane.Config
	sameHost           bool    // nodes can prove each other's death
	drift              float64 // of the nodes' clocks, at most

	stagger     int64 // between the starts of nodes
	faultsUntil int64
	patience    int64 // after that, until everything must have ended
	poll        int64 // of the clerk, for answers

	latency, slow, loopDelay int64 // of a call, of a slow one, of the loop of a lane: at most

	// Probabilities.
	commitFails, commitUnknown, commitSlow float64
	loadFails, callFails                   float64
	hintLost, mailLost, tornRead           float64
	ahead, release, stale, restart         float64
	oddView                                float64

	crashes, pauses, leaves, aways, poisons, corrupts, moves, sweeps, deploys int

	jumpPlan

	narrow      narrow
	upgrades    bool    // of processes to a newer build
	newEvents   int     // addresses that only the newer build can read
	damage      float64 // of requests in inboxes
	badPages    bool    // every page has a row that cannot be read
	lateUpgrade bool    // everything else ends before any process is of the newer build
	lasting     int     // addresses whose rows are refused until everything else has ended
	floods      int     // of large signals to one address
	heavy       int     // bytes that outputs of tasks have in addition to their data
	forgets     bool    // the simulation checks at the end that request ids are forgotten
	lies        int     // live nodes that are declared dead

	users, actions int
	keys, children int
	pins           bool          // workers have versions, and workflows are pinned
	grace          time.Duration // of claims without a worker
	hires          int           // how often hands come and go
	keepDead       time.Duration // how long dead tasks are kept; 0 means forever

	accounts, desks int // entities that there are
	// how long idle entities stay in memory; 0 means the default
	entityIdle  time.Duration
	overlap     int // calls of a desk that are made at once; 0 for any number
	entityMoves int // how often tellers come and go
}

func (s *Sim) drawPlan() {
	p := &s.plan
	p.shards = oneOf(s, 4, 8, 8, 16)
	p.lanes = oneOf(s, 1, 1, 2)
	p.ttl = oneOf(s, 500*time.Millisecond, time.Second, 2*time.Second)
	p.renew, p.margin = p.ttl/5, p.ttl/10

	p.lane = lane.Config{
		Limits:        core.DefaultLimits,
		MaxBatchRows:  oneOf(s, 0, 0, 4, 16),
		MaxBytes:      oneOf(s, 0, 0, 2<<10, 8<<10),
		MaxMail:       oneOf(s, 0, 0, 1, 2<<10),
		MaxHeld:       oneOf(s, 0, 0, 1, 16<<10),
		KeepIdle:      oneOf(s, 0, 1),
		MaxBacklog:    oneOf(s, 0, 0, 0, 4),
		PerKey:        oneOf(s, 0, 0, 1, 2),
		MaxLoads:      oneOf(s, 0, 0, 1, 3),
		TimerWindow:   oneOf(s, 0, 0, 1, 2, 3, 6),
		TimerHorizon:  oneOf(s, 0, 300*time.Millisecond, time.Second),
		DrainWait:     oneOf(s, 100*time.Millisecond, 500*time.Millisecond),
		QuarantineFor: oneOf(s, 200*time.Millisecond, 600*time.Millisecond),
	}

	p.lane.MaxPutOff = 8
	if s.chance(0.1) {
		p.lane.Limits.Signals = 2
	}
	p.sameHost = s.chance(0.4)
	p.clock = storeclock.Config{Persist: 50 * time.Millisecond}
	p.drift = oneOf(s, 0.0, 0.01, 0.03)
	p.stagger = oneOf(s, 0, 50*millisecond, 500*millisecond)
	p.faultsUntil = s.between(1200, 3500) * millisecond
	p.patience = 60 * second
	p.poll = s.between(50, 300) * millisecond
	p.latency = oneOf[int64](s, 300, 1000, 3000)
	p.slow = oneOf(s, 20*millisecond, 300*millisecond, p.ttl.Microseconds())
	p.loopDelay = oneOf[int64](s, 0, 50, 500)
	p.users = 2 + s.pick(3)
	p.actions = 5 + s.pick(5)
	p.keys, p.children = 3+s.pick(4), 1+s.pick(3)
	p.ahead, p.release = oneOf(s, 0.0, 0.5, 1), oneOf(s, 0.0, 0.3, 1)
	p.pins = s.chance(0.4)
	if s.tasks {
		p.grace = oneOf(s, 100*time.Millisecond, 500*time.Millisecond, 3*time.Second)
	}
	if s.young {
		s.drawRetention()
	}
	if s.opts.Calm {
		return
	}

	p.commitFails, p.commitUnknown, p.commitSlow = s.rate(0.15), s.rate(0.15), s.rate(0.1)
	p.loadFails, p.callFails = s.rate(0.2), s.rate(0.2)
	p.hintLost, p.mailLost, p.tornRead = s.rate(0.6), s.rate(0.6), s.rate(0.6)
	p.stale, p.restart, p.oddView = s.rate(0.1), s.rate(0.2), s.rate(0.2)
	p.crashes, p.pauses, p.leaves = s.pick(3), s.pick(3), s.pick(2)
	p.aways, p.poisons, p.corrupts = s.pick(2), s.pick(4), s.pick(3)
	p.moves, p.sweeps = s.pick(5), s.pick(3)
	if s.tasks {
		p.hires = s.pick(8)
	}
	if p.pins {
		p.deploys = s.pick(3)
	}
}

// rate draws a probability up to most, often zero.
func (s *Sim) rate(most float64) float64 {
	if s.chance(0.25) {
		return 0
	}
	return most * float64(s.random()>>11) / (1 << 53)
}
