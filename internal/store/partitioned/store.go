package partitioned

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// Times of calls to members. longestWait is how long a call waits for members after the home has
// answered.
const (
	longestWait = 2 * time.Second
	// sickFor is how long the store does not call a member for work of other parts, after the
	// member has failed.
	sickFor = 5 * time.Second
	// slowAfter is how long a call to a member may go without an answer before it counts as failed.
	slowAfter = time.Second
)

// Member is a part with the shard groups that it holds.
type Member struct {
	Name   string
	Groups []string
	Store  store.Part
}

// Store is a store that is divided between a home and members.
type Store struct {
	info  store.Info
	parts []*part
	of    []int // the part of each shard

	store.Settings
	store.Peers
	store.Workers
	store.Audit
	store.Reports

	// closing ends when the store is closed. calls counts the calls to members that no caller waits
	// for.
	closing context.Context //nolint:containedctx // lives as long as the store
	close   context.CancelFunc
	calls   sync.WaitGroup

	mu     sync.Mutex
	closed bool
	nodes  map[model.NodeID]*registration // nodes that this process has registered
}

var (
	_ store.Store     = (*Store)(nil)
	_ store.Searcher  = (*Store)(nil)
	_ store.Inspected = (*Store)(nil)
)

// part is one of the stores.
type part struct {
	store.Part
	index int
	name  string // for people: "database eu (shard groups eu, eu-batch)"

	mu      sync.Mutex
	owners  []store.ShardOwner // the owners of its shards, as last seen
	looks   int64              // calls so far that read the owners
	seen    int64              // answers of looks up to this one are ignored
	failed  time.Time          // time of the last failure; zero if the part has answered since
	away    absence            // for reads
	answers int64              // calls so far that prove that the part is there
	visits  []time.Time        // when the visits in progress began, the oldest first
	// forgets are remembered answers of this part that batches of other parts want to remove.
	forgets []store.RequestKey
}

// New makes one store of a home and members. All of them have the same number of shards and the
// same groups. The home has the groups that no member has. New takes the stores over: Close closes
// them.
func New(home store.Part, members []Member) (*Store, error) {
	info := home.Info()
	if len(members) == 0 {
		return nil, fault.New(fault.Invalid, "a partitioned store needs a member next to its home")
	}
	s := &Store{
		Settings: home, Peers: home, Workers: home, Audit: home, Reports: home,
		parts: []*part{{Part: home, name: "the first database"}}, nodes: map[model.NodeID]*registration{},
	}

	taken := map[string]string{}
	for i := range members {
		m := &members[i]
		if err := check(&info, m, taken); err != nil {
			return nil, err
		}
		info.Databases = append(info.Databases, store.Database{Name: m.Name, Groups: m.Groups, URL: m.Store.Info().URL})
		s.parts = append(s.parts, &part{Part: m.Store, index: i + 1, name: fmt.Sprintf("database %s (shard groups %s)", m.Name, strings.Join(m.Groups, ", "))})
	}

	s.info, s.of = info, info.PartsOfShards()
	s.closing, s.close = context.WithCancel(context.Background())
	return s, nil
}

// check refuses a member that does not fit the home. taken maps groups to their databases.
func check(home *store.Info, m *Member, taken map[string]string) error {
	mine := m.Store.Info()
	switch {
	case m.Name == "":
		return fault.New(fault.Invalid, "a database needs a name")
	case len(m.Groups) == 0:
		return fault.New(fault.Invalid, "database %s needs a shard group", m.Name)
	case mine.Shards != home.Shards || model.FormatGroups(mine.Groups) != model.FormatGroups(home.Groups):
		return fault.New(fault.Conflict, "database %s has other shard groups (%s) than the first database (%s)",
			m.Name, model.FormatGroups(mine.Groups), model.FormatGroups(home.Groups))
	}

	for _, g := range m.Groups {
		other, found := taken[g]
		switch {
		case g == model.DefaultGroup:
			return fault.New(fault.Invalid, "database %s cannot hold the shard group %s, which is always in the first database", m.Name, g)
		case !home.Layout().HasGroup(g):
			return fault.New(fault.Invalid, "database %s holds the shard group %s, which the store does not have", m.Name, g)
		case found:
			return fault.New(fault.Invalid, "the shard group %s is in two databases, %s and %s", g, other, m.Name)
		}
		taken[g] = m.Name
	}
	return nil
}

// Info describes the store as it was opened.
func (s *Store) Info() store.Info { return s.info }

// Close closes all parts. Calls in flight end with an error.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.close()

	var errs []error
	for _, p := range s.parts {
		errs = append(errs, p.Close())
	}
	s.calls.Wait()
	return errors.Join(errs...)
}

// Inspect describes the connection to the home.
func (s *Store) Inspect(ctx context.Context) (store.Inspection, error) {
	if i, ok := s.parts[0].Part.(store.Inspected); ok {
		return i.Inspect(ctx)
	}
	return store.Inspection{}, fault.New(fault.Invalid, "the store has no database server")
}

// LocalAddr returns the address of this end of a connection to the home.
func (s *Store) LocalAddr(ctx context.Context) (net.Addr, error) {
	if l, ok := s.parts[0].Part.(interface {
		LocalAddr(ctx context.Context) (net.Addr, error)
	}); ok {
		return l.LocalAddr(ctx)
	}
	return nil, fault.New(fault.Invalid, "the store has no database server")
}

// Part returns a part of the store and its name: 0 is the home, and n is the n-th database.
func (s *Store) Part(n int) (part store.Part, name string) { return s.parts[n].Part, s.parts[n].name }

// partOf returns the part of a shard. A shard that does not exist belongs to the home, which
// refuses it or finds nothing.
func (s *Store) partOf(shard model.ShardID) *part {
	if int(shard) < len(s.of) {
		return s.parts[s.of[shard]]
	}
	return s.parts[0]
}

// split groups shards by their part. The result has an entry per part.
func (s *Store) split(shards []model.ShardID) [][]model.ShardID {
	return splitBy(s, shards, func(id *model.ShardID) model.ShardID { return *id })
}

// splitBy groups values by the part of their shard.
func splitBy[T any](s *Store, all []T, shard func(*T) model.ShardID) [][]T {
	out := make([][]T, len(s.parts))
	for i := range all {
		p := s.partOf(shard(&all[i])).index
		out[p] = append(out[p], all[i])
	}
	return out
}

// only returns the part that has all the shards. It returns nil if the shards are in several parts.
func (s *Store) only(shards []model.ShardID) *part {
	if len(shards) == 0 {
		return s.parts[0]
	}
	first := s.partOf(shards[0])
	for _, id := range shards[1:] {
		if s.partOf(id) != first {
			return nil
		}
	}
	return first
}

// explain adds the name of the part to an error that is about the part and not about the data.
func (p *part) explain(err error) error {
	e, ok := errors.AsType[*store.Error](err)
	if p.index == 0 || !ok || !isTrouble(err) {
		return err
	}
	return &store.Error{Class: e.Class, Op: e.Op, Err: fmt.Errorf("%s: %w", p.name, e.Err), Final: e.Final}
}

// note remembers whether a call to the part has succeeded.
func (p *part) note(err error) {
	switch {
	case err == nil:
		p.comeBack()
	case isTrouble(err):
		p.mu.Lock()
		p.failed = time.Now()
		p.mu.Unlock()
	}
}

// isTrouble reports whether an error is about the part and not about the data.
func isTrouble(err error) bool {
	e, ok := errors.AsType[*store.Error](err)
	return ok && e.Class != store.Refused && e.Class != store.Fenced
}

// isSick reports whether the store should not call this part for work of other parts for a while.
func (p *part) isSick() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.failed.IsZero() && time.Since(p.failed) < sickFor || p.isSlow()
}

// isSlow reports whether a visit (a call of a renewal) has lasted longer than slowAfter. The caller
// holds the mutex.
func (p *part) isSlow() bool { return len(p.visits) > 0 && time.Since(p.visits[0]) > slowAfter }

// start runs a call that outlives its caller, until the store is closed or the time is over. It
// returns false if the store is closed.
func (s *Store) start(limit time.Duration, call func(ctx context.Context)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.calls.Go(func() {
		ctx, cancel := context.WithTimeout(s.closing, limit)
		defer cancel()
		call(ctx)
	})
	return true
}

// inMembers runs a call in the given members at the same time, and waits until all of them have
// answered, the time is over or ctx ends. Calls that have not ended continue. The result has no
// answers of members that were too late.
func inMembers[T any](ctx context.Context, s *Store, members []*part, wait time.Duration, call func(context.Context, *part) (T, error)) []answer[T] {
	ch := make(chan answer[T], len(members))
	waiting := 0
	for _, p := range members {
		if s.start(longestWait+wait, func(ctx context.Context) {
			v, err := call(ctx, p)
			p.note(err)
			ch <- answer[T]{p, v, p.explain(err)}
		}) {
			waiting++
		}
	}

	timer := time.NewTimer(wait)
	defer timer.Stop()
	var out []answer[T]
	for ; waiting > 0; waiting-- {
		select {
		case a := <-ch:
			out = append(out, a)
		case <-timer.C:
			return out
		case <-ctx.Done():
			return out
		}
	}
	return out
}

// answer is what a member has answered.
type answer[T any] struct {
	part  *part
	value T
	err   error
}
