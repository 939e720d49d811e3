package flow

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/core/breaker"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/episode"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// Kinds of settings that concern the flow of tasks.
const (
	settingLimit   = "limit"         // a rule, as JSON
	settingBreaker = "breaker"       // a rule, as JSON
	settingState   = "breaker_state" // the state of a breaker, in its own encoding
	settingQueue   = "queue"         // a paused queue
	settingPage    = "limit_page"    // a page of the ledger of limits, see package ledger
	settingFound   = "limit_found"   // the claims of dead nodes that a node has found, see found
)

// MaxReason bounds the reason of a disabled limit and of a paused queue, in bytes. Every node keeps
// these reasons in memory.
const MaxReason = 1000

// checkReason refuses a reason that is too long.
func checkReason(what, name, why string) error {
	if len(why) > MaxReason {
		return fault.New(fault.Invalid, "%s %s: the reason has %d bytes, at most %d are allowed", what, name, len(why), MaxReason)
	}
	return nil
}

// pausedQueue is the body of a settingQueue.
type pausedQueue struct {
	Why string `json:"why,omitempty"`
}

// Flow holds the settings for tasks while nodes run: limits, breakers, paused queues. A rule
// belongs to the tenant that has set it, and selects tasks of that tenant. Each process reads the
// settings when it starts and when the settings counter has grown. The process that changes a
// setting applies the change immediately.
//
// The state of a shared breaker is also a setting. The pages of the ledger, through which nodes
// share limits, are settings too. Nodes write these settings outside the hot path and by
// compare-and-set. If another node has written a newer version, the node reads that version and
// adds its own change to it.
//
// If only one process can use the store, breakers are in the memory of that process, and Flow
// stores their states when they change. In that case a crash can lose the last change: the opening
// of a breaker, which the next failures repeat, or the fact that a probe is in flight.
type Flow struct {
	store                  store.Store
	log                    *slog.Logger
	saves, loads, searches *episode.Source
	node                   Node // nil if this Flow only reads
	timeout, leaveTimeout  time.Duration

	// turn holds one token. A goroutine must take the token before it reads or changes settings,
	// and keeps the token while it waits for the store.
	turn chan struct{}

	mu     sync.Mutex
	upTo   int64 // the settings counter up to which all settings are known
	all    map[store.SettingKey]store.Setting
	rules  *rule.Set
	paused map[Queue]string
	dirty  map[rule.BreakerID][]byte // states to store
	asks   map[rule.BreakerID][]breaker.ToOwner
	saving bool  // saveAll runs
	again  bool  // there may be more to write
	look   bool  // other nodes may have written something
	asked  int64 // the number of the question to answer, see uses.go; 0 for none

	doors doors // of the tenants that have an allowance
	// The Flow calls the followers with the turn held.
	followers []follower
}

// Config configures a Flow. All fields are required, except where noted.
type Config struct {
	Store store.Store
	Log   *slog.Logger
	// Trouble logs failures of the store; nil for a Flow that only reads.
	Trouble *episode.Log
	Node    Node // nil for a Flow that only reads
	// Timeout is how long to wait for an answer of the store.
	Timeout time.Duration
	// LeaveTimeout is how long a node that stops may take to return its permits. Default 2 s.
	LeaveTimeout time.Duration
}

// New returns a Flow. The Flow has no settings before Load.
func New(cfg Config) *Flow {
	if cfg.Trouble == nil {
		cfg.Trouble = episode.New(cfg.Log, "the store cannot be used", "the store can be used again")
	}
	f := &Flow{
		store: cfg.Store, log: cfg.Log, node: cfg.Node, timeout: cfg.Timeout, leaveTimeout: cmp.Or(cfg.LeaveTimeout, 2*time.Second),
		turn: make(chan struct{}, 1), all: map[store.SettingKey]store.Setting{}, dirty: map[rule.BreakerID][]byte{}, asks: map[rule.BreakerID][]breaker.ToOwner{},
	}
	f.saves = cfg.Trouble.Source("doing", "store limits and breakers")
	f.loads = cfg.Trouble.Source("doing", "read settings")
	f.searches = cfg.Trouble.Source("doing", "store the claims of dead nodes")
	f.leave()
	return f
}

// Of returns a Flow that only reads. It refuses to change the settings of the store. Only
// StateWithUses writes: it stores a question to the nodes. Of is for a process without a node on
// that store.
func Of(st store.Store) *Flow { return New(Config{Store: st, Log: slog.New(slog.DiscardHandler)}) }

// participant returns the participant of the node's current life. It returns nil if this process
// executes nothing.
func (f *Flow) participant() *Participant {
	if f.node == nil {
		return nil
	}
	return f.node.Participant()
}

// now returns the store's time.
func (f *Flow) now(ctx context.Context) (model.Time, error) {
	if f.participant() != nil {
		return f.node.Now(), nil
	}
	v, err := f.store.Members(ctx)
	return v.Now, err
}

// enter waits for the turn. The caller must call leave when it is done.
func (f *Flow) enter(ctx context.Context) (leave func(), err error) {
	if !f.await(ctx, f.turn) {
		return nil, fault.New(fault.KindOf(ctx.Err()), "settings: %w", context.Cause(ctx))
	}
	return f.leave, nil
}

// leave passes the turn on.
func (f *Flow) leave() { f.turn <- struct{}{} }

// await waits until ready delivers a value. It returns false if ctx ended first.
func (f *Flow) await(ctx context.Context, ready <-chan struct{}) bool {
	if f.node != nil {
		return f.node.Await(ctx, ready)
	}
	select {
	case <-ready:
		return true
	case <-ctx.Done():
		return false
	}
}

// Load reads the changed settings, unless all settings up to the counter are known.
func (f *Flow) Load(ctx context.Context, counter int64) error {
	leave, err := f.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	f.mu.Lock()
	known := f.upTo >= counter
	f.mu.Unlock()
	if known {
		return nil
	}
	return f.refresh(ctx)
}

// refresh reads the changed settings and applies them. The caller must hold the turn.
func (f *Flow) refresh(ctx context.Context) error {
	f.mu.Lock()
	after := f.upTo
	f.mu.Unlock()
	changes, err := f.store.LoadSettings(ctx, after)
	if err != nil {
		return err
	}

	f.mu.Lock()
	changed := map[store.SettingKey]bool{}
	if changes.Whole {
		here := map[store.SettingKey]bool{}
		for i := range changes.Changed {
			here[changes.Changed[i].SettingKey] = true
		}
		for key := range f.all {
			if !here[key] {
				delete(f.all, key)
				changed[key] = true
			}
		}
	}

	for _, s := range changes.Changed {
		if old, ok := f.all[s.SettingKey]; s.Version <= old.Version || s.Deleted && !ok {
			continue // this process already knows it, or never knew the deleted setting
		}
		changed[s.SettingKey] = true
		if s.Deleted {
			delete(f.all, s.SettingKey)
		} else {
			f.all[s.SettingKey] = s
		}
	}

	f.upTo = max(f.upTo, changes.Counter)
	f.mu.Unlock()
	f.apply(changed)
	return nil
}

// record remembers and applies a setting that this process has changed. The caller must hold the
// turn.
func (f *Flow) record(s store.Setting) {
	f.mu.Lock()
	if s.Deleted {
		delete(f.all, s.SettingKey)
	} else {
		f.all[s.SettingKey] = s
	}
	f.mu.Unlock()
	f.apply(map[store.SettingKey]bool{s.SettingKey: true})
	f.hint()
}

// hint makes other nodes look at the settings.
func (f *Flow) hint() {
	if f.node != nil {
		f.node.Hint()
	}
}

// apply makes the node act on changed settings. The caller must hold the turn.
func (f *Flow) apply(changed map[store.SettingKey]bool) {
	f.mu.Lock()
	rules, states, pages := f.rules == nil, map[rule.BreakerID][]byte{}, map[int][]byte{}
	for key := range changed {
		switch key.Kind {
		case settingLimit, settingBreaker:
			rules = true
		case settingState:
			id := rule.BreakerID{Tenant: key.Tenant, Name: key.Name}
			states[id] = f.all[key].Body
		case settingPage:
			if n, ok := pageNumber(key); ok {
				pages[n] = f.all[key].Body
			}
		case settingAsk:
			f.asked = f.all[key].Version
		}
	}

	if rules {
		var problems []error
		f.rules, problems = f.parse()
		for _, err := range problems {
			f.log.Error("a rule for tasks cannot be used and is left out", "error", err)
		}
	}

	news := f.changesOf(changed)
	tenants := false
	for key := range changed {
		tenants = tenants || key.Kind == settingTenant
	}
	if tenants {
		f.doors.set(f.allowances())
	}

	f.paused = f.pausedQueues()
	s, set, paused := f.participant(), f.rules, f.paused
	f.mu.Unlock()

	f.announce(news)
	f.tellFollowers(changed)
	if tenants && f.node != nil {
		f.node.Retain(f.Retention())
	}
	if s != nil {
		s.board.Configure(f.node.Now(), Settings{set, paused, states, pages, f.weights()})
		if f.store.Info().Shared {
			f.WriteSoon()
		}
	}
}

// Configure applies settings to the tasks of a board. The caller must hold the lock of the board;
// Configure never waits.
func (f *Flow) Configure(now model.Time, k *BoardGate, tasks *queue.Board, s Settings) {
	if s.Rules != k.rules {
		k.rules = s.Rules
		k.SetRules(now, s.Rules, tasks)
	}

	for _, n := range slices.Sorted(maps.Keys(s.Pages)) {
		f.showPage(now, k, n, s.Pages[n])
	}

	for _, id := range slices.SortedFunc(maps.Keys(s.Breakers), compareBreakers) {
		if err := k.Adopt(now, id, s.Breakers[id]); err != nil {
			f.log.Error("the state of a circuit breaker cannot be read; the breaker keeps its last state", "breaker", id.Name, "error", err)
		}
	}

	f.Collect(k)
	f.dropDirty(s.Breakers)
	for _, q := range slices.SortedFunc(maps.Keys(k.paused), Queue.compare) {
		if _, still := s.Paused[q]; !still {
			tasks.Resume(q.Tenant, q.Name)
		}
	}

	for _, q := range slices.SortedFunc(maps.Keys(s.Paused), Queue.compare) {
		tasks.Pause(q.Tenant, q.Name, s.Paused[q])
	}
	k.paused = s.Paused
	tasks.SetWeights(s.Weights)
}

// dropDirty drops states that wait to be stored, for breakers that have just adopted another state.
// The caller must hold the lock of the board.
func (f *Flow) dropDirty(states map[rule.BreakerID][]byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, row := range states {
		// If the states are equal, an earlier life of this node has not stored this state yet. So
		// this state must still be stored.
		if !bytes.Equal(f.dirty[id], row) {
			delete(f.dirty, id)
		}
	}
}

// Equip applies all known settings to a new life of the node.
func (f *Flow) Equip(s *Participant) {
	f.await(context.Background(), f.turn)
	defer f.leave()
	f.mu.Lock()

	states, pages := map[rule.BreakerID][]byte{}, map[int][]byte{}
	for key, known := range f.all {
		switch key.Kind {
		case settingState:
			states[rule.BreakerID{Tenant: key.Tenant, Name: key.Name}] = known.Body
		case settingPage:
			if n, ok := pageNumber(key); ok {
				pages[n] = known.Body
			}
		}
	}

	maps.Copy(states, f.dirty)
	clear(f.asks) // they belong to the previous life
	set, paused := f.rules, f.paused
	f.mu.Unlock()
	s.board.Configure(f.node.Now(), Settings{set, paused, states, pages, f.weights()})
}

// parse builds a set from the known rules. It leaves out a rule that contradicts an older one. Such
// rules exist if two people change rules at the same moment and do not see each other's change.
func (f *Flow) parse() (*rule.Set, []error) {
	limits, breakers, problems := f.storedRules()
	set, unfit := rule.Fit(limits, breakers)
	return set, append(problems, unfit...)
}

// storedRules returns the known rules, the oldest first, and an error for each rule that cannot be
// read.
func (f *Flow) storedRules() (limits []rule.Limit, breakers []rule.Breaker, problems []error) {
	for _, s := range f.sortedSettings() {
		switch s.Kind {
		case settingLimit:
			l, err := readLimit(&s)
			if err != nil {
				problems = append(problems, err)
				continue
			}
			limits = append(limits, l)
		case settingBreaker:
			b, err := readBreaker(&s)
			if err != nil {
				problems = append(problems, err)
				continue
			}
			breakers = append(breakers, b)
		}
	}

	return limits, breakers, problems
}

func (f *Flow) sortedSettings() []store.Setting {
	return slices.SortedFunc(maps.Values(f.all), func(a, b store.Setting) int { return cmp.Compare(a.Version, b.Version) })
}

func readLimit(s *store.Setting) (l rule.Limit, err error) {
	if err := readSetting(s, &l); err != nil {
		return l, err
	}
	l.Tenant = s.Tenant
	return l, nil
}

func readBreaker(s *store.Setting) (b rule.Breaker, err error) {
	if err := readSetting(s, &b); err != nil {
		return b, err
	}
	b.Tenant = s.Tenant
	return b, nil
}

// readSetting decodes the body of a setting.
func readSetting(s *store.Setting, into any) error {
	if s.Damaged != nil {
		return fault.New(fault.Corrupt, "setting %s: %s", s.SettingKey, s.Damaged.Why)
	}
	if err := json.Unmarshal(s.Body, into); err != nil {
		return fault.New(fault.Corrupt, "setting %s: %w", s.SettingKey, err)
	}
	return nil
}

// pausedQueues returns the paused queues with their reasons.
func (f *Flow) pausedQueues() map[Queue]string {
	paused := map[Queue]string{}
	for key, s := range f.all {
		if key.Kind == settingQueue {
			var p pausedQueue
			_ = json.Unmarshal(s.Body, &p) // the queue is paused even if the reason is unreadable
			paused[Queue{key.Tenant, key.Name}] = p.Why
		}
	}
	return paused
}

// ReadIfNewer reads the settings if the settings counter has grown. The node calls it with the
// counter after each lease renewal.
func (f *Flow) ReadIfNewer(counter int64) {
	f.mu.Lock()
	news := counter > f.upTo
	f.mu.Unlock()
	if news {
		f.node.Beside(func(ctx context.Context) {
			// The time is bounded, because other callers wait for the turn.
			ctx, cancel := context.WithTimeout(ctx, f.timeout)
			defer cancel()
			if err := f.Load(ctx, counter); err == nil {
				f.loads.OK()
			} else if ctx.Err() == nil {
				f.loads.Fail(err)
			}
		})
	}
}
