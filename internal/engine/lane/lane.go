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

	open     *building
	flight   *building
	spare    *building
	recovery recovery // how a failed commit is being dealt with

	backlog ring // entries with waiting inputs that may be served
	budget  budget
	room    room

	loads     loads
	timers    window
	mail      mailroom
	workers   workers
	retention retention
	waiters   waiters
	watchers  watchers
	questions questions
	solo      solo
	jobs      map[uint64]*job // hand-overs of calls of entities, by generation
	resting   resting
	// requests are those whose answers are remembered by the batches that are not committed yet.
	requests    map[store.RequestKey]struct{}
	acked       acknowledged
	quarantined quarantined
	odd         []string // rows in wrong places that were told of
	tenure      int      // counts how often shards were acquired
	now         model.Time
	question    question // for the board; its memory is used again
	witness     witness  // only when it is watched

	out  Output
	dead error
}

// New makes a lane that owns no shard yet.
func New(cfg Config) *Lane {
	cfg.withDefaults()
	l := &Lane{
		cfg:       cfg,
		shards:    map[model.ShardID]*shard{},
		entries:   map[model.Address]*entry{},
		runs:      map[model.RunID]*entry{},
		waiters:   newWaiters(),
		questions: questions{open: map[uint64]*query{}},
		jobs:      map[uint64]*job{},
		resting:   resting{list: list.New()},
		requests:  map[store.RequestKey]struct{}{},
	}
	l.budget.batch, l.room.limit = cfg.MaxBatchBytes, cfg.MaxHeld
	l.open = &building{}
	l.loads = newLoads()
	l.timers = newWindow(cfg.TimerWindow)
	l.mail = newMailroom()
	l.workers = newWorkers(&cfg)
	return l
}
