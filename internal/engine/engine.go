package engine

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/perdure/perdure/internal/cluster"
	"github.com/perdure/perdure/internal/cluster/host"
	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/core/limit"
	"github.com/perdure/perdure/internal/engine/feed"
	"github.com/perdure/perdure/internal/engine/flow"
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/engine/lending"
	"github.com/perdure/perdure/internal/engine/peer"
	"github.com/perdure/perdure/internal/engine/replies"
	"github.com/perdure/perdure/internal/engine/series"
	"github.com/perdure/perdure/internal/engine/storeclock"
	"github.com/perdure/perdure/internal/episode"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/notify"
	"github.com/perdure/perdure/internal/peerlink"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/telemetry"
	"github.com/perdure/perdure/internal/telemetry/tracing"
)

// LeastRetainRequest is the minimum and the default time for which every node remembers request
// ids. Relays rely on this time, whichever node owns the address of their message.
const LeastRetainRequest = 24 * time.Hour

// Config configures an engine. A zero field selects its default.
type Config struct {
	Store store.Store
	// Hints wakes other nodes; nil for a node that is alone.
	Hints notify.Hub
	// Peers is where the process listens for other nodes; nil sends everything through the store.
	Peers *peerlink.Endpoint
	Log   *slog.Logger
	// Version of the program, for people to read.
	Version string
	// Meter counts and Tracer creates spans; both may be nil.
	Meter  *telemetry.Meter
	Tracer *tracing.Tracer
	// Series makes the node keep counts of the last hour, by time and tenant.
	Series bool
	// Guest only sends requests to the nodes of a shared store: it owns no shard, and workers that
	// join it get no work.
	Guest bool
	// Weight is the share of the shards that the node should own, relative to the other nodes.
	// Default cluster.DefaultWeight.
	Weight int
	// Groups are the shard groups whose shards the node takes. Default: the default group.
	Groups []string

	Lanes int // the number of committers to each store that holds shards; default 1
	// LeaseTTL is how long a node may be silent before other nodes take over its shards. Default 10
	// s.
	LeaseTTL time.Duration
	// RenewEvery is the time between renewals of the lease. Default a fifth of LeaseTTL, at most a
	// minute.
	RenewEvery time.Duration
	// CommitTimeout is how long a lane waits for the answer to a commit. The lane may give up after
	// three quarters of this time. If it gives up, the outcome of the commit is unknown. Default 30
	// s.
	CommitTimeout time.Duration
	InboxLimit    int // inputs that wait for a lane; default 65,536
	// InboxBytes bounds the bytes of the messages among these inputs. A single message may exceed
	// the bound. Default 64 MiB.
	InboxBytes    int
	RetainRequest time.Duration // how long request ids are remembered; default 24 h
	// RetainDeadLetter is how long refused requests without a waiting caller are kept. Default 30
	// days.
	RetainDeadLetter time.Duration
	// Retention is how long closed runs are kept if their workflow has no retention time of its
	// own. Default 30 days.
	Retention  time.Duration
	SweepEvery time.Duration // time between two sweeps, which remove expired rows; default 30 s
	RetainDead time.Duration // how long dead tasks are kept; default 90 days, negative: forever
	RetainLogs time.Duration // how long log lines of tasks are kept; default 7 days
	// RetainAudit is how long the audit log keeps its entries; 0 keeps them all.
	RetainAudit time.Duration
	// Lane configures the lanes. The engine replaces its fields Ref, Layout, Lanes, Limits, NewRun,
	// Board, Watched, WantsChanges, NewTrace, Retention and TenantRetention.
	Lane   lane.Config
	Limits core.Limits
	// Feed bounds the feed of changes. The engine sets its Now, Shards and Shard.
	Feed feed.Config
	// Replies bounds the streams with which views answer.
	Replies replies.Config

	Clock storeclock.Config // when the engine follows a jump of the store's clock
	// Gone reports whether a process has provably ended. The default is host.IsGone, which knows
	// only processes of this machine. It must not have side effects.
	Gone func(store.NodeInfo) bool
	// Suspended returns how long the machine has been suspended in total; nil asks the operating
	// system. Tests simulate a suspension with it.
	Suspended func() time.Duration
}

const defaultRetention = 30 * 24 * time.Hour

func (c *Config) withDefaults() {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Hints == nil {
		c.Hints = notify.NoHub{}
	}
	if c.Gone == nil {
		c.Gone = host.IsGone
	}

	if c.Weight == 0 {
		c.Weight = cluster.DefaultWeight
	}
	if c.Lanes == 0 {
		c.Lanes = 1
	}
	if c.LeaseTTL == 0 {
		c.LeaseTTL = 10 * time.Second
	}
	if c.CommitTimeout == 0 {
		c.CommitTimeout = 30 * time.Second
	}
	if c.InboxLimit == 0 {
		c.InboxLimit = 1 << 16
	}
	if c.InboxBytes == 0 {
		c.InboxBytes = 64 << 20
	}

	if c.RetainRequest == 0 {
		c.RetainRequest = LeastRetainRequest
	}
	if c.RetainDeadLetter == 0 {
		c.RetainDeadLetter = defaultRetention
	}
	if c.Retention == 0 {
		c.Retention = defaultRetention
	}
	if c.SweepEvery == 0 {
		c.SweepEvery = 30 * time.Second
	}
	if c.RetainDead == 0 {
		c.RetainDead = 90 * 24 * time.Hour
	}
	if c.RetainLogs == 0 {
		c.RetainLogs = 7 * 24 * time.Hour
	}
	if c.Limits == (core.Limits{}) {
		c.Limits = core.DefaultLimits
	}
}

// Engine is the running part of a node.
type Engine struct {
	cfg           Config
	layout        model.Layout // which address belongs to which shard
	division      *division    // nil unless the shards are divided between several stores
	clock         *clock
	workers       workers
	entityWorkers entityWorkers
	beside        besides

	taskWorkers taskWorkers
	serves      servedList
	attempts    attempts
	flow        *flow.Flow
	feed        *feed.Hub
	replies     *replies.Buffers
	names       *names
	series      *series.Recorder // nil without series
	levels      *series.Sampler  // nil without series
	inc         atomic.Pointer[incarnation]
	clerk       *clerk
	// mixed says that this node has seen nodes with different code, so that workers of one node may
	// have worked for another.
	mixed   atomic.Bool
	guest   model.NodeID  // the name of a guest, which is not a node
	ready   chan struct{} // closed when the first incarnation serves
	isReady sync.Once
	lives   map[model.NodeID]bool // the incarnations of this process; only Run uses it
	// foreign has the shards that this process has tried to acquire from another process, or from
	// an earlier incarnation of its own, and has not served since. The value is true if another
	// process did not give up the shard. An entry stays after the attempt has failed, because an
	// attempt without an answer may have succeeded. Only Run uses it.
	foreign map[model.ShardID]bool
	former  former // only Run uses it
	// drained says that an operator has drained this node. Its next incarnation starts drained.
	// Only Run uses it.
	drained  bool
	stopped  chan struct{}         // closed when Run has returned: no answers come after that
	served   bell                  // rung when this node has acquired shards
	failed   atomic.Pointer[error] // why Run returns an error; nil if it returns none
	stopping chan struct{}         // closed by PrepareStop
	stopOnce sync.Once
	// skew is how far the store's clock was ahead of the clock of this node at the last reading, in
	// ns.
	skew atomic.Int64

	// trouble logs that the store cannot be used: one episode for all loops that retry. refusals
	// logs commits that the store refuses because of their rows.
	trouble, refusals *episode.Log
	lease             *episode.Source // registration and renewal, over all incarnations
	others            struct{ acquire, fence, sweep, answers, homes *episode.Source }
}

// bell wakes all listeners. To wait for a condition, listen first and then check the condition, so
// that no ring is missed.
type bell struct {
	mu   sync.Mutex
	rung chan struct{} // nil without listeners
}

func (b *bell) listen() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rung == nil {
		b.rung = make(chan struct{})
	}
	return b.rung
}

func (b *bell) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rung != nil {
		close(b.rung)
		b.rung = nil
	}
}

// besides runs goroutines that outlive the call that started them, and end with the engine.
type besides struct {
	mu  sync.Mutex
	ctx context.Context //nolint:containedctx // the context of the engine; nil while it does not run
	wg  sync.WaitGroup
}

func (b *besides) open(ctx context.Context) {
	b.mu.Lock()
	b.ctx = ctx
	b.mu.Unlock()
}

// run starts a goroutine. It returns false, and starts none, while the engine does not run.
func (b *besides) run(do func(ctx context.Context)) (begun bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	ctx := b.ctx
	if ctx != nil {
		b.wg.Go(func() { do(ctx) })
	}
	return ctx != nil
}

// close makes run start no further goroutines.
func (b *besides) close() {
	b.mu.Lock()
	b.ctx = nil
	b.mu.Unlock()
}

// await waits for a ring. It returns false if ctx or the engine has ended.
func (e *Engine) await(ctx context.Context, ring <-chan struct{}) bool {
	select {
	case <-ring:
		return true
	case <-ctx.Done():
	case <-e.stopped:
	}
	return false
}

// New returns an engine; Run starts it.
func New(cfg Config) *Engine {
	cfg.withDefaults()
	info := cfg.Store.Info()
	divided := newDivision(&info)
	cfg.Lanes *= divided.count() // a lane commits to one store
	e := &Engine{
		cfg: cfg, layout: info.Layout(), division: divided, clock: newClock(cfg.Clock, cfg.Suspended), lives: map[model.NodeID]bool{}, foreign: map[model.ShardID]bool{}, ready: make(chan struct{}), stopped: make(chan struct{}),
		stopping: make(chan struct{}), replies: replies.New(cfg.Replies),
	}

	e.trouble = episode.New(cfg.Log, "the store cannot be used; the node tries again", "the store can be used again")
	e.refusals = episode.New(cfg.Log, "the store refuses a commit; the node looks for the row and sets it aside", "the store has refused no commit for a minute")
	e.lease = e.trouble.Source("doing", "lease")
	e.others.acquire, e.others.fence, e.others.sweep = e.trouble.Source("doing", "acquire shards"), e.trouble.Source("doing", "fence"), e.trouble.Source("doing", "sweep")
	e.others.answers, e.others.homes = e.trouble.Source("doing", "look for answers"), e.trouble.Source("doing", "look for remote workers")
	e.names = newNames(e)
	e.clerk = newClerk(e)
	cfg.Feed.Now, cfg.Feed.Shards, cfg.Feed.Shard = e.clock.mono, info.Shards, e.layout.Shard
	e.feed = feed.New(cfg.Feed)
	if cfg.Series {
		e.series, e.levels = series.New(e.clock.now()), series.NewSampler()
	}
	e.flow = flow.New(flow.Config{Store: cfg.Store, Log: cfg.Log, Trouble: e.trouble, Node: flowNode{e}, Timeout: cfg.CommitTimeout})
	if cfg.Guest {
		e.guest = newGuest()
	}

	return e
}

func (e *Engine) current() *incarnation { return e.inc.Load() }

// Ready waits until the node serves for the first time: it has registered, and owns the shards that
// it could get.
func (e *Engine) Ready(ctx context.Context) error {
	select {
	case <-e.ready:
		return nil
	case <-ctx.Done():
		return fault.New(fault.Timeout, "the node is not ready: %w", context.Cause(ctx))
	}
}

// Serving returns why the node cannot serve at the moment, or nil if it can.
func (e *Engine) Serving() error {
	inc := e.current()
	switch {
	case inc == nil:
		return fault.New(fault.Unavailable, "the node does not serve")
	case !inc.isServing():
		return fault.New(fault.Unavailable, "the node could not renew its lease")
	}
	return nil
}

// Node returns the id of this node, or zero while it has no lease.
func (e *Engine) Node() model.NodeID {
	if inc := e.current(); inc != nil {
		return inc.self.ID
	}
	return model.NodeID{}
}

// errStopping is the cause of an orderly end.
var errStopping = errors.New("the node is stopping")

// Run serves until ctx ends. Then it gives up its shards in an orderly way, and returns when all of
// its goroutines have ended. It returns an error only in three cases: a person must act before the
// node can use the store, the node could not store everything when it stopped, or it was stopped
// while it could not register with the store.
func (e *Engine) Run(ctx context.Context) error {
	defer e.hangUp()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer e.beside.wg.Wait()
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	wg.Go(func() { e.clerk.run(inner) })
	e.beside.open(inner)
	e.names.wake() // workers may have joined before
	defer e.beside.close()
	if e.cfg.Guest {
		return e.visit(ctx)
	}

	defer e.flow.End()
	defer e.cfg.Meter.Watch(e.states)()
	// Each round is one incarnation.
	pause := time.Duration(0)
	var away error // why the last attempt to register failed
	for {
		inc, err := e.register(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return e.stopUnregistered(away)
			}
			if !transient(err) {
				return e.fail(err)
			}
			away = err
			pause = min(max(2*pause, 100*time.Millisecond), 5*time.Second)
			e.lease.Fail(err, "again_in", pause)
			if !sleepUnless(ctx, e.stopping, pause) {
				return e.stopUnregistered(away)
			}
			continue
		}

		pause, away = 0, nil
		e.lease.OK()
		e.inc.Store(inc)
		e.flow.Equip(inc.participant)
		inc.board.adopt()
		err = inc.run(ctx)
		e.feed.Leave()
		e.inc.CompareAndSwap(inc, nil)
		if store.Final(err) {
			return e.fail(err)
		}
		if unstored, ok := errors.AsType[*unstoredError](err); ok {
			e.failed.Store(&unstored.cause)
			return err
		}

		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, errClockBack) {
			e.clock.reset()
		}
		e.cfg.Log.Error("the node lost its lease and starts over", "error", err)
	}
}

// fail ends the engine with an error that only a person can fix. It logs the error once. Every
// later caller gets the error.
func (e *Engine) fail(err error) error {
	e.failed.Store(&err)
	if store.Final(err) {
		e.cfg.Log.Error("the store accepts no further writes and the node has stopped; the error says what to do before the process is restarted",
			"error", err)
	} else {
		e.cfg.Log.Error("the node cannot register with the store and has stopped; fix the problem that the error names, then restart the process", "error", err)
	}
	return err
}

// transient reports whether a retry may help.
func transient(err error) bool {
	if store.Final(err) {
		return false
	}
	switch store.ClassOf(err) {
	case store.Retryable, store.Unknown, store.Away:
		return !fault.Is(err, fault.Corrupt)
	case store.Refused, store.Fenced:
	}
	return false
}

// sleep waits. It returns false if ctx has ended.
func sleep(ctx context.Context, d time.Duration) bool { return sleepUnless(ctx, nil, d) }

// pause waits before a retry. It returns false if ctx or the engine has ended.
func (e *Engine) pause(ctx context.Context, d time.Duration) bool {
	return sleepUnless(ctx, e.stopped, d)
}

// sleepUnless waits. It returns false if ctx has ended or the channel is closed.
func sleepUnless(ctx context.Context, over <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
	case <-over:
	}
	return false
}

// gaveUp returns why a caller no longer waits: its own context or the engine has ended.
func (e *Engine) gaveUp(ctx context.Context, format string, args ...any) error {
	kind, cause := fault.Unavailable, errStopping
	if failed := e.failed.Load(); failed != nil {
		kind, cause = fault.KindOf(*failed), *failed
	} else if ctx.Err() != nil {
		kind, cause = fault.KindOf(ctx.Err()), context.Cause(ctx)
	}
	return fault.New(kind, format+": %w", append(args, cause)...)
}

// register starts an incarnation.
func (e *Engine) register(ctx context.Context) (*incarnation, error) {
	// No task may start before the node knows the settings that may hold it back.
	if err := e.flow.Load(ctx, math.MaxInt64); err != nil {
		return nil, err
	}
	self := host.Self(model.NodeID(uuid.Must(uuid.NewV7())), e.cfg.Version)
	self.Sole = !e.cfg.Store.Info().Shared
	if !self.Sole {
		self.Weight, self.Drained, self.Groups = e.cfg.Weight, e.drained, e.cfg.Groups
		self.Home = e.names.home
	}
	if end := e.cfg.Peers; end != nil && !self.Sole {
		self.LinkAddress, self.LinkKey = end.Address(), end.Fingerprint()
	}
	e.lives[self.ID] = true
	early := e.readEarly(ctx)
	asleep, sent := e.clock.notice(), e.clock.mono()
	reg, err := e.cfg.Store.Register(ctx, self, e.cfg.Lanes, e.cfg.LeaseTTL)
	if err != nil {
		return nil, err
	}

	e.clock.notice()
	verdict := e.clock.read(sent, e.clock.mono(), reg.Now)
	if early.Change == storeclock.Adopted && verdict.Change == storeclock.Agrees {
		verdict = early
	}
	inc := &incarnation{
		eng: e, self: self, epoch: reg.Epoch, wake: make(chan struct{}, 1),
		lanes: make([]*laneShell, e.cfg.Lanes), owner: make([]atomic.Int32, e.cfg.Store.Info().Shards),
		member: cluster.New(cluster.Config{Self: self, TTL: e.cfg.LeaseTTL, RenewEvery: e.cfg.RenewEvery, Gone: e.cfg.Gone}, reg.Epoch, sent),
	}

	if verdict.Change == storeclock.Adopted {
		inc.member.Distrust(verdict.By)
	}
	inc.validUntil.Store(int64(inc.member.ValidUntil()))
	inc.suspended = asleep
	inc.leased.Store(int64(asleep))
	inc.board = newBoard(inc)
	inc.participant = e.flow.NewParticipant(limit.Place(inc.epoch), inc.board, participantLife{inc})

	if e.cfg.Store.Info().Shared {
		inc.borrower, inc.lender = lending.NewBorrower(self.ID, debts{loans{inc}}, inc.board), lending.NewLender(self.ID, loans{inc})
		handler := peerHandler{lending.PeerHandler{Borrower: inc.borrower, Lender: inc.lender, Log: e.cfg.Log}, inc}
		inc.peers = peer.New(peer.Config{Self: self.ID, Mail: e.cfg.Store, Hints: e.cfg.Hints, Log: e.cfg.Log, Handler: handler, Direct: inc.sendPeerMail})
		inc.borrower.Connect(inc.peers)
		inc.lender.Connect(inc.peers)
		inc.newCrew()
	}
	inc.joinLinks()

	for i := range inc.lanes {
		cfg := e.cfg.Lane
		cfg.Board = inc.board
		cfg.Ref = store.LaneRef{Node: self.ID, Lane: i, Epoch: reg.Epoch}
		cfg.Layout, cfg.Lanes, cfg.Limits = e.layout, e.cfg.Lanes, e.cfg.Limits
		if cfg.AskFor == 0 && inc.crewHost != nil {
			cfg.AskFor = askFor
		}
		cfg.NewRun, cfg.Retention, cfg.TenantRetention = e.clock.newRun, e.cfg.Retention, e.flow.Retention()
		cfg.Watched, cfg.NewTrace, cfg.WantsChanges = e.isObserved(), e.newTrace(), e.feed.On
		if cfg.MaxLoads == 0 {
			cfg.MaxLoads = 64
		}
		inc.lanes[i] = newLaneShell(inc, i, cfg)
	}

	e.cfg.Log.Info("node registered", "node", self.ID.String(), "epoch", reg.Epoch)
	e.judge(verdict)
	return inc, nil
}

// newID draws the id of a request.
func newID() model.RunID { return model.RunID(uuid.Must(uuid.NewV7())) }
