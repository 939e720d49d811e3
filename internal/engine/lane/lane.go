package lane

import (
	"container/list"
	"time"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// Config is what a lane needs to know. Zero fields take the defaults.
type Config struct {
	Ref    store.LaneRef // fence of this lane
	Shards int           // of the cluster
	Lanes  int           // of the node; generations tell lanes apart by the remainder
	Limits core.Limits
	// NewRun draws a fresh id.
	NewRun func() model.RunID
	// Board is who executes tasks; nil when nobody ever does.
	Board Board
	// Watched has the lane tell facts; see Output.
	Watched bool
	// NewTrace draws the trace of a run that nobody traces who started it; nil when there is none.
	NewTrace func(model.Address) string

	MaxBatchRows  int           // rows per batch; 2,000
	MaxBatchBytes int           // bytes per batch, and one input more; 4 MiB
	MaxBytes      int           // of inputs, batches and backlogs; 64 MiB
	MaxKeptBytes  int           // of reports for quarantined runs, and half of it for one; 128 MiB
	MaxMail       int           // of messages of other shards that wait in memory, and one more; a page of mail has a quarter of it; 16 MiB
	MaxHeld       int           // bytes of histories that workers hold; 256 MiB, shared by the lanes of the node
	KeepIdle      int           // bytes of the state of a run that stay in memory while nobody can continue it; 2 KiB
	MaxBacklog    int           // inputs that wait for one address; 10,000
	MaxWait       time.Duration // how long requests wait for one address, of which more than PerKey do, before others are refused; 5 s
	PerKey        int           // inputs of one address per batch; 64
	MaxLoads      int           // reads in flight; 64
	TimerWindow   int           // timers in memory; 50,000
	TimerHorizon  time.Duration // how far ahead timers are read; 30 s
	DrainWait     time.Duration // how long a shard that is given up waits for running steps; 5 s
	QuarantineFor time.Duration // until a quarantined address is tried again; 1 min
	// MaxPutOff is how many messages a lane puts off within QuarantineFor. Further ones wait longer,
	// by another QuarantineFor per MaxPutOff; 1,000.
	MaxPutOff   int
	Retention   time.Duration // how long closed runs are kept that have no time of their own; nothing is removed when it is 0
	RetainEvery time.Duration // between two looks for runs to remove, or up to a half less; 1 min
}

func (c *Config) withDefaults() {
	set := func(v *int, def int) {
		if *v == 0 {
			*v = def
		}
	}
	setD := func(v *time.Duration, def time.Duration) {
		if *v == 0 {
			*v = def
		}
	}
	set(&c.Lanes, 1)
	set(&c.MaxBatchRows, 2000)
	set(&c.MaxBatchBytes, 4<<20)
	set(&c.MaxBytes, 64<<20)
	set(&c.MaxKeptBytes, 128<<20)
	set(&c.MaxMail, 16<<20)
	set(&c.MaxHeld, 256<<20)
	c.MaxHeld /= c.Lanes
	set(&c.KeepIdle, 2<<10)
	set(&c.MaxBacklog, 10_000)
	set(&c.PerKey, 64)
	set(&c.MaxLoads, 64)
	set(&c.TimerWindow, 50_000)
	setD(&c.MaxWait, 5*time.Second)
	setD(&c.TimerHorizon, 30*time.Second)
	setD(&c.DrainWait, 5*time.Second)
	setD(&c.QuarantineFor, time.Minute)
	setD(&c.RetainEvery, time.Minute)
	set(&c.MaxPutOff, 1000)
	if c.Limits == (core.Limits{}) {
		c.Limits = core.DefaultLimits
	}
}

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
	delays    delays
	apart     int // so many proposals of the board go one per batch; see staysApart
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

	hurried   bool // the node stops, see Hurry
	farewells int  // attempts since then that the store did not take
	unstored  Unstored

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

// Output is what the caller has to do, in this order. Slices are valid until the next call of Take.
type Output struct {
	// Commit is a batch to commit; the result goes to Committed.
	Commit *store.Batch
	// Refence asks to move the fence; the result goes to Refenced.
	Refence *store.LaneRef
	// Verify asks to read the current run of each start of the batch in flight; the rows go to Verified.
	Verify []store.StartRow
	// Loads are reads to make; each result goes to Loaded.
	Loads []Load
	// Calls go to workers, in order.
	Calls []Call
	// Operate are calls of entities for workers that have their code.
	Operate []OperateCall
	// TaskCalls go to task workers, in order.
	TaskCalls []TaskCall
	// Answers go to callers.
	Answers []Answer
	// Mail is for shards of other lanes; it is durable, this is only a hint.
	Mail []store.MessageRow
	// Hints tells other nodes that a run they wait for has closed.
	Hints []Hint
	// Freed are shards that are not ours any more.
	Freed []model.ShardID
	// Aside are rows that cannot be read and were moved out of the way, or are passed over.
	Aside []Aside
	// Removed is how many runs a round of retention has removed.
	Removed int
	// Large are runs whose history has come near its limit.
	Large []Large
	// Facts are what has become durable, in order, when the lane is watched.
	Facts []Fact
	// Dead is set once the lane has been fenced: everything in memory is void.
	Dead error
}

// Answer goes to the caller that handed in the token.
type Answer struct {
	Token any
	// Answer to a message; Result to an await.
	Answer model.Answer
	Result *Result
	// Begun tells whoever ran an execution, and must ask elsewhere how it ends, that it has begun.
	Begun bool
	Err   error
}

// Result is how an execution ended.
type Result struct {
	Run     model.RunID
	Outcome model.Outcome
}

// Hint names a run that has closed, for a node that waits for it.
type Hint struct {
	Node    model.NodeID
	Address model.Address
	Run     model.RunID
}

// CallKind says which method of a worker to call.
type CallKind uint8

// Kinds of calls.
const (
	CallActivate CallKind = iota + 1
	CallDeliver
	CallRetry
	CallEvict
	CallQuery
	CallRecall
)

// Call is a call to a worker.
type Call struct {
	Kind       CallKind
	Worker     WorkerID
	Run        model.RunID
	Generation uint64
	Activation *model.Activation
	Events     []model.Event
	ID         string        // of the step, for CallRetry
	Reason     string        // for CallEvict
	Address    model.Address // for CallRecall
	Query      *model.Query
}

// Take returns what has to be done and forgets it. spare, if given, is an Output of before whose memory is used again.
func (l *Lane) Take(spare Output) Output {
	out := l.out
	l.out = Output{
		Loads: spare.Loads[:0], Calls: clearCalls(spare.Calls), Answers: clearAnswers(spare.Answers), Mail: spare.Mail[:0],
		TaskCalls: clearTaskCalls(spare.TaskCalls), Hints: spare.Hints[:0], Freed: spare.Freed[:0], Verify: spare.Verify[:0],
		Facts: clearFacts(spare.Facts), Operate: clearOperate(spare.Operate),
	}
	return out
}

func clearCalls(c []Call) []Call { clear(c); return c[:0] }
func clearTaskCalls(c []TaskCall) []TaskCall {
	clear(c)
	return c[:0]
}

func clearOperate(c []OperateCall) []OperateCall {
	clear(c)
	return c[:0]
}
func clearFacts(f []Fact) []Fact       { clear(f); return f[:0] }
func clearAnswers(a []Answer) []Answer { clear(a); return a[:0] }

// Full reports whether the lane has no room: hand in nothing but results until it has.
func (l *Lane) Full() bool {
	return l.bytes >= l.cfg.MaxBytes || l.batchFull() || l.recovery.careful()
}

// Held is the number of bytes of inputs that wait or are not committed yet.
func (l *Lane) Held() int { return l.bytes + l.kept }

// Usage is what the lane has in memory besides inputs.
type Usage struct {
	Entries   int // addresses
	Histories int // bytes of histories that workers hold
	Line      int // runs that wait for room for theirs
	Calls     int // bytes of calls that wait for entities
}

// Usage is what the lane has in memory besides inputs.
func (l *Lane) Usage() Usage {
	return Usage{Entries: len(l.entries), Histories: l.room.used, Line: len(l.room.line), Calls: l.calls}
}

// Owns reports whether the lane serves the shard.
func (l *Lane) Owns(s model.ShardID) bool {
	sh, ok := l.shards[s]
	return ok && !sh.draining
}

// waitsFor reports whether the shard is being given up and waits for claims to end: what they write before that still comes here.
func (l *Lane) waitsFor(s model.ShardID) bool {
	sh, ok := l.shards[s]
	return ok && sh.draining && !sh.freeing
}

// Idle reports whether everything handed in has been dealt with.
func (l *Lane) Idle() bool {
	return l.flight == nil && l.open.empty() && l.backlog.len() == 0 && l.loads.idle() && !l.recovery.careful()
}

// Flush ends a round of inputs: it serves backlogs and due timers as far as there is room, and seals a batch if none is in flight.
func (l *Lane) Flush(now model.Time) {
	if l.dead != nil {
		return
	}
	l.now = now
	l.cure(now)
	l.fireTimers(now)
	l.expire(now)
	l.unrestAll(now)
	l.feed(now)
	l.nextAlone(now)
	l.serveBacklog(now)
	l.moveAside(now)
	l.drainShards(now)
	l.seal(now)
	l.recover(now)
	l.feed(now)
	l.readOn()
	l.loads.issue(l)
}

// Wake is when Flush must be called next even if no input comes; zero for never.
func (l *Lane) Wake() model.Time {
	if l.dead != nil {
		return 0
	}
	if l.backlog.len() > 0 && l.flight == nil && !l.recovery.busy() && !l.recovery.careful() {
		return 1 // what was in the way has come to nothing
	}
	wake := l.recovery.at
	timers := model.Time(0)
	if !l.Full() && !l.loads.crowded(l.cfg.MaxLoads) { // otherwise a result comes first
		timers = l.timers.wake(l.cfg.TimerHorizon)
	}
	for _, t := range [...]model.Time{timers, l.drainWake(), l.loads.wake(), l.cureWake(), l.expireWake(), l.restWake(), l.asideWake()} {
		if t != 0 && (wake == 0 || t < wake) {
			wake = t
		}
	}
	return wake
}
