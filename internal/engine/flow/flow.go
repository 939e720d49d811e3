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
	settingState   = "breaker_state" // how a breaker stands, as it encodes itself
	settingQueue   = "queue"         // a queue that is paused
	settingPage    = "limit_page"    // a page of the ledger of limits, see package ledger
	settingFound   = "limit_found"   // which claims of dead nodes a node has found, see found
)

// pausedQueue is the body of a settingQueue.
type pausedQueue struct {
	Why string `json:"why,omitempty"`
}

// Flow is what people have set for tasks while nodes run: limits, breakers, paused queues. A rule
// belongs to the tenant that has set it, and selects tasks of that tenant. Every process reads the
// settings when it begins and when the counter of settings has grown; whoever changes one applies
// it at once.
//
// How a breaker stands is a setting, too, and so are the pages of the ledger that nodes share
// limits by. They are written beside the hot path, by whoever has something to add, if they have
// the version that he knows; otherwise somebody else was faster, and it is added to what he has
// written.
//
// Where only one process can have the store, a breaker is in its memory, and what is stored is its
// state when that has changed. What a crash can lose then is a change of the last moment: an
// opening, which the next failures bring about again, or that a probe is under way.
type Flow struct {
	store                  store.Store
	log                    *slog.Logger
	saves, loads, searches *episode.Source
	node                   Node // nil for one that only reads
	timeout                time.Duration

	// turn has a token, which whoever reads or changes settings takes: one at a time, since it
	// waits for the store.
	turn chan struct{}

	mu     sync.Mutex
	upTo   int64 // the counter up to which settings are known
	all    map[store.SettingKey]store.Setting
	rules  *rule.Set
	paused map[Queue]string
	dirty  map[rule.BreakerID][]byte // states that are to be stored
	asks   map[rule.BreakerID][]breaker.ToOwner
	saving bool  // somebody writes
	again  bool  // there may be more to write
	look   bool  // others may have written something
	asked  int64 // the question that is to be answered, see uses.go; 0 for none
}

// Config of a Flow. All fields are needed, unless it only reads.
type Config struct {
	Store store.Store
	Log   *slog.Logger
	// Trouble gets what fails because the store cannot be used; nil for one that only reads.
	Trouble *episode.Log
	Node    Node // nil for one that only reads
	// Timeout is how long an answer of the store is waited for.
	Timeout time.Duration
}

// New makes a Flow; it knows nothing before Load.
func New(cfg Config) *Flow {
	if cfg.Trouble == nil {
		cfg.Trouble = episode.New(cfg.Log, "the store cannot be used", "the store can be used again")
	}
	f := &Flow{
		store: cfg.Store, log: cfg.Log, node: cfg.Node, timeout: cfg.Timeout, turn: make(chan struct{}, 1), all: map[store.SettingKey]store.Setting{}, dirty: map[rule.BreakerID][]byte{},
		asks: map[rule.BreakerID][]breaker.ToOwner{},
	}
	f.saves = cfg.Trouble.Source("doing", "store limits and breakers")
	f.loads = cfg.Trouble.Source("doing", "read settings")
	f.searches = cfg.Trouble.Source("doing", "store the claims of dead nodes")
	f.leave()
	return f
}

// Of reads settings of a store that no node of this process serves.
func Of(st store.Store) *Flow { return New(Config{Store: st, Log: slog.New(slog.DiscardHandler)}) }

// seat is that of the life of the node; nil when this process executes nothing.
func (f *Flow) seat() *Seat {
	if f.node == nil {
		return nil
	}
	return f.node.Seat()
}

// now is store time.
func (f *Flow) now(ctx context.Context) (model.Time, error) {
	if f.seat() != nil {
		return f.node.Now(), nil
	}
	v, err := f.store.Members(ctx)
	return v.Now, err
}

// enter waits for its turn.
func (f *Flow) enter(ctx context.Context) (leave func(), err error) {
	if !f.await(ctx, f.turn) {
		return nil, fault.New(fault.KindOf(ctx.Err()), "settings: %w", context.Cause(ctx))
	}
	return f.leave, nil
}

// leave lets the next one have its turn.
func (f *Flow) leave() { f.turn <- struct{}{} }

// await waits until it has received something. It reports false when ctx has ended.
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

// Load reads what has changed, unless everything up to the counter is known.
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

// refresh reads what has changed and applies it. It is called in turn.
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
			continue // our own
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

// record remembers a setting that this process has changed, and applies it. It is called in turn.
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

// hint has others look at the settings.
func (f *Flow) hint() {
	if f.node != nil {
		f.node.Hint()
	}
}

// apply has the node act on settings that have changed. It is called in turn.
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

	f.paused = f.pauses()
	s, set, paused := f.seat(), f.rules, f.paused
	f.mu.Unlock()

	if s != nil {
		s.board.Configure(f.node.Now(), Settings{set, paused, states, pages})
		if f.store.Info().Shared {
			f.WriteSoon()
		}
	}
}

// Configure has the tasks of a board pass by settings from now on. It is called with the lock of
// the board, and never waits.
func (f *Flow) Configure(now model.Time, k *Gatekeeper, tasks *queue.Board, s Settings) {
	if s.Rules != k.rules {
		k.rules = s.Rules
		k.SetRules(now, s.Rules, tasks)
	}

	for _, n := range slices.Sorted(maps.Keys(s.Pages)) {
		f.seen(now, k, n, s.Pages[n])
	}

	for _, id := range slices.SortedFunc(maps.Keys(s.Breakers), compareBreakers) {
		if err := k.Adopt(now, id, s.Breakers[id]); err != nil {
			f.log.Error("the state of a circuit breaker cannot be read; it goes on as it was", "breaker", id.Name, "error", err)
		}
	}

	f.Collect(k)
	f.adopted(s.Breakers)
	for _, q := range slices.SortedFunc(maps.Keys(k.paused), Queue.compare) {
		if _, still := s.Paused[q]; !still {
			tasks.Resume(q.Tenant, q.Name)
		}
	}

	for _, q := range slices.SortedFunc(maps.Keys(s.Paused), Queue.compare) {
		tasks.Pause(q.Tenant, q.Name, s.Paused[q])
	}
	k.paused = s.Paused
}

// adopted tells that breakers have got other states: what they had come to by themselves is not to
// be stored any more. It is called with the lock of the board.
func (f *Flow) adopted(states map[rule.BreakerID][]byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, row := range states {
		// else it is what a former incarnation has not stored yet
		if !bytes.Equal(f.dirty[id], row) {
			delete(f.dirty, id)
		}
	}
}

// Equip has a new life of the node act on everything that is known.
func (f *Flow) Equip(s *Seat) {
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
	clear(f.asks) // of the node that this one was before
	set, paused := f.rules, f.paused
	f.mu.Unlock()
	s.board.Configure(f.node.Now(), Settings{set, paused, states, pages})
}

// parse makes a set of the rules that are known. One that does not fit those that are older is left
// out: of two people who change rules at the same moment, neither sees that the other's contradicts
// his.
func (f *Flow) parse() (*rule.Set, []error) {
	limits, breakers, problems := f.stored()
	set, unfit := rule.Fit(limits, breakers)
	return set, append(problems, unfit...)
}

// stored are the rules that are known, the oldest first.
func (f *Flow) stored() (limits []rule.Limit, breakers []rule.Breaker, problems []error) {
	for _, s := range f.sorted() {
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

func (f *Flow) sorted() []store.Setting {
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

// readSetting reads the body of a setting into a value.
func readSetting(s *store.Setting, into any) error {
	if s.Damaged != nil {
		return fault.New(fault.Corrupt, "setting %s: %s", s.SettingKey, s.Damaged.Why)
	}
	if err := json.Unmarshal(s.Body, into); err != nil {
		return fault.New(fault.Corrupt, "setting %s: %w", s.SettingKey, err)
	}
	return nil
}

// pauses are the queues that are paused, and why.
func (f *Flow) pauses() map[Queue]string {
	paused := map[Queue]string{}
	for key, s := range f.all {
		if key.Kind == settingQueue {
			var p pausedQueue
			_ = json.Unmarshal(s.Body, &p) // it is paused whatever it says
			paused[Queue{key.Tenant, key.Name}] = p.Why
		}
	}
	return paused
}

// Heard is told with every renewal how far the counter of settings is.
func (f *Flow) Heard(counter int64) {
	f.mu.Lock()
	news := counter > f.upTo
	f.mu.Unlock()
	if news {
		f.node.Beside(func(ctx context.Context) {
			// whoever comes next waits for its turn
			ctx, cancel := context.WithTimeout(ctx, f.timeout)
			defer cancel()
			if err := f.Load(ctx, counter); err == nil {
				f.loads.OK()
			} else if ctx.Err() == nil {
				f.loads.Failed(err)
			}
		})
	}
}
