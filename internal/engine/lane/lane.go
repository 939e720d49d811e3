package lane

import (
	"container/list"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// Lane is the state machine. It is not safe for concurrent use.
type Lane struct {
	cfg    Config
	number int64 // of the last batch that was committed

	shards   map[model.ShardID]*shard
	draining int // shards that are being given up
	entries  map[model.Address]*entry
	runs     map[model.RunID]*entry // held by workers

	alone *entry   // the entity that may make a call by itself, see claimAlone
	line  []*entry // those that wait for that

	open     *building
	flight   *building
	spare    *building
	recovery recovery // how a failed commit is being dealt with

	backlog    ring // entries with waiting inputs that may be served
	bytes      int
	kept       int // bytes of reports for quarantined runs, beside bytes
	batchBytes int // that a batch may have now: fewer than configured while the path to the store is slow
	room       room
	calls      int // bytes of what waits in memory for entities

	loads     loads
	timers    window
	mail      mailroom
	workers   workers
	retention retention
	waiters   map[model.Address][]waiter
	awaited   int                         // with so many addresses in waiters nodes are looked for that are to be forgotten
	watchers  map[model.Address][]watcher // of any change; nil until somebody listens
	watched   int                         // with so many addresses those are looked for to which nobody listens
	queries   map[uint64]*query
	jobs      map[uint64]*job // hand-overs of calls of entities, by generation
	resting   resting
	asked     uint64 // queries so far
	foreign   foreign
	// requests are those whose answers are remembered by the batches that are not committed yet.
	requests map[store.RequestKey]struct{}
	acked    acknowledged
	sick     []*entry // quarantined
	odd      []string // rows in wrong places that were told of
	tenure   int      // counts how often shards were acquired
	now      model.Time
	question question // for the board; its memory is used again
	witness  witness  // only when it is watched

	out  Output
	dead error
}

// New makes a lane that owns no shard yet.
func New(cfg Config) *Lane {
	cfg.withDefaults()
	l := &Lane{
		cfg:      cfg,
		shards:   map[model.ShardID]*shard{},
		entries:  map[model.Address]*entry{},
		runs:     map[model.RunID]*entry{},
		waiters:  map[model.Address][]waiter{},
		queries:  map[uint64]*query{},
		jobs:     map[uint64]*job{},
		resting:  resting{list: list.New()},
		requests: map[store.RequestKey]struct{}{},
	}
	l.batchBytes = cfg.MaxBatchBytes
	l.open = l.newBuilding()
	l.loads = newLoads()
	l.timers = newWindow(cfg.TimerWindow)
	l.mail = newMailroom()
	l.workers = newWorkers()
	// A generation is never used twice, not even by the next incarnation of the node.
	l.workers.gen = uint64(cfg.Ref.Epoch)<<32/uint64(cfg.Lanes)*uint64(cfg.Lanes) + uint64(cfg.Ref.Lane)
	return l
}
