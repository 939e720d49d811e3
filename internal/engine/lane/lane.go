package lane

import (
	"container/list"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// Lane is the state machine. It is composed of the smaller types of this package, and its methods
// connect them. It is not safe for concurrent use.
type Lane struct {
	cfg  Config
	now  model.Time // of the last Flush, commit or read
	out  Output     // what the caller has to do, until Take
	dead error      // why the lane ended; nil while it lives

	// What the lane owns and has in memory.
	shards      map[model.ShardID]*shard
	draining    int // shards that are being given up
	tenure      int // counts how often shards were acquired
	entries     map[model.Address]*entry
	runs        map[model.RunID]*entry // runs that workers hold
	backlog     ring                   // entries with waiting inputs that may be served
	quarantined quarantined
	budget      budget
	room        room
	// the reason of a run that a worker has just got, until its first turn; all entries share it
	inTurn []model.Reason

	// The way to the store: one batch fills, one is in flight.
	number    int64 // of the last batch that was committed
	open      *building
	flight    *building // nil when no batch is in flight
	spare     *building // memory of an earlier batch
	recovery  recovery
	lone      lone   // whether the next batch is for a lone input, see lone.go
	delays    delays // how long messages for quarantined addresses are put off
	hurried   bool   // the node stops, see Hurry
	farewells int    // failed attempts in a row since the node began to stop
	unstored  Unstored
	// requests whose remembered answers are not committed yet
	requests map[store.RequestKey]struct{}
	acked    acknowledgements
	lost     lostLinks
	eras     eras // of the ids that clients draw

	// What the lane reads from the store.
	loads     loads
	timers    window
	mail      mailroom
	retention retention
	passing   bool     // the lane is delivering messages inside the open batch, see passOn
	odd       []string // rows in wrong places that the lane has reported

	// Workers and waiting callers.
	workers   workers
	reunion   reunion
	waiters   waiters
	watchers  watchers
	questions questions
	jobs      map[uint64]*job // hand-overs of calls of entities, by generation
	slow      map[kind]bool   // entities whose calls were too slow to wait for, see ahead.go
	// By generation: hand-overs that the lane has given up and that workers still have.
	forgotten map[uint64]seat
	resting   resting
	solo      solo

	// Memory that is used again for each input.
	question question // for the board
	snapshot snapshot // only when the lane is watched
}

// New returns a lane that owns no shard yet. Acquire gives it shards.
func New(cfg Config) *Lane {
	cfg.withDefaults()
	l := &Lane{
		cfg:       cfg,
		shards:    map[model.ShardID]*shard{},
		entries:   map[model.Address]*entry{},
		runs:      map[model.RunID]*entry{},
		inTurn:    []model.Reason{{Code: model.WaitTurn}},
		waiters:   newWaiters(),
		questions: questions{open: map[uint64]*query{}},
		jobs:      map[uint64]*job{},
		slow:      map[kind]bool{},
		forgotten: map[uint64]seat{},
		resting:   resting{list: list.New()},
		requests:  map[store.RequestKey]struct{}{},
	}

	l.budget.batch, l.room.limit = cfg.MaxBatchBytes, cfg.MaxHeld
	l.open = &building{}
	l.loads = newLoads()
	l.timers = newWindow(cfg.TimerWindow)
	l.mail = newMailroom()
	l.workers = newWorkers(&cfg)
	l.reunion = newReunion()
	l.eras.draw, l.eras.most = cfg.NewRun, cfg.EraIDs

	return l
}
