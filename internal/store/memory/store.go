// Package memory is the store of unit tests and of the simulator: everything in memory, nothing
// survives the process.
//
// It promises what every adapter promises but durability, and two things more:
//
//   - Determinism. Called from one goroutine with a clock of the caller's, the same calls give the
//     same answers in the same order. No iteration over a Go map decides anything.
//   - Isolation. It copies what it is given and what it hands out, byte by byte, as if it had gone
//     to disk and back: a caller that changes a payload afterwards, or a process that the simulator
//     lets die in the middle of a change, does not reach what is stored. Like the stored form, it
//     does not keep position, time and kind of the events in Message.With.
//
// Nothing is encoded. A new store costs two small slices; shards come into being with their first
// row. A commit costs O(rows log n). Several nodes may share one Store value; a mutex makes that
// safe.
package memory

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"slices"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// DefaultShards is the number of shards of a store that names none.
const DefaultShards = 256

// Options configure a store. The zero value works.
type Options struct {
	// Shards is the number of shards; DefaultShards when zero. At most model.MaxShards.
	Shards int
	// Now is the clock that judges leases; time.Now when nil. It is called with the store locked
	// and must not call back.
	Now func() time.Time
	// Cluster is the id of the contents; random when empty. Simulators set it to stay
	// deterministic.
	Cluster string
}

// Store is a store in memory.
type Store struct {
	info store.Info
	now  func() time.Time

	mu     sync.Mutex // protects everything below
	closed bool
	epoch  int64 // last one drawn from the cluster-wide counter
	// nodes are the registered ones, sorted by id. A node that was fenced or has left is not here,
	// nor are its fences: a fence that does not exist lets nothing pass, as one that was raised.
	nodes  []*node
	owners []store.ShardOwner
	tokens []int64  // marks of fencing tokens, by shard
	shards []*shard // nil until the first row
	// listing is every run, newest first.
	listing ordered[*run]
	// dead is every dead letter, newest first.
	dead     ordered[*store.DeadRow]
	settings settings
	// entities are the rows of all entities, in the order of lists.
	entities ordered[*entity]
	// peerMail are the letters between nodes, sorted by receiver and id.
	peerMail []store.PeerMail
	// undo takes back what the batch in progress has done so far, last first.
	undo []func()
}

var _ store.Store = (*Store)(nil)

// New makes an empty store. It panics when the number of shards is out of range, which is a mistake
// in the program.
func New(o Options) *Store {
	if o.Shards == 0 {
		o.Shards = DefaultShards
	}
	if o.Shards < 1 || o.Shards > model.MaxShards {
		panic("memory: number of shards out of range")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Cluster == "" {
		var id [8]byte
		_, _ = rand.Read(id[:]) // never fails, by its documentation
		o.Cluster = hex.EncodeToString(id[:])
	}
	s := &Store{
		info:    store.Info{Shards: o.Shards, Cluster: o.Cluster, URL: "memory:", Version: 1},
		now:     o.Now,
		owners:  make([]store.ShardOwner, o.Shards),
		tokens:  make([]int64, o.Shards),
		shards:  make([]*shard, o.Shards),
		listing: ordered[*run]{compare: newestFirst},
		dead:    ordered[*store.DeadRow]{compare: lastDeadFirst},

		entities: ordered[*entity]{compare: byAddress},
	}
	s.settings.rows.compare = byKey
	for i := range s.owners {
		s.owners[i].Shard = model.ShardID(i)
	}
	return s
}

// Info describes the store.
func (s *Store) Info() store.Info { return s.info }

// Close makes every later call fail. It may be called again.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

// begin locks the store for a call; the caller unlocks it, also when there is an error.
func (s *Store) begin(ctx context.Context, op string) error {
	s.mu.Lock()
	if s.closed {
		return store.Errorf(store.Away, op, "the store is closed")
	}
	if ctx.Err() != nil {
		return store.Errorf(store.Retryable, op, "%w", context.Cause(ctx))
	}
	return nil
}

// time is the time of the store.
func (s *Store) time() model.Time { return model.TimeOf(s.now()) }

// peek is a shard for reading; nil when it has no rows or does not exist.
func (s *Store) peek(id model.ShardID) *shard {
	if int(id) >= len(s.shards) {
		return nil
	}
	return s.shards[id]
}

// shard is a shard for writing; nil when it does not exist.
func (s *Store) shard(id model.ShardID) *shard {
	if int(id) >= len(s.shards) {
		return nil
	}
	if s.shards[id] == nil {
		s.shards[id] = newShard(id)
	}
	return s.shards[id]
}

// some are those of the shards that have rows, each once and in order.
func (s *Store) some(ids []model.ShardID) []*shard {
	if !slices.IsSorted(ids) {
		ids = slices.Clone(ids)
		slices.Sort(ids)
	}
	out := make([]*shard, 0, len(ids))
	for i, id := range ids {
		if i > 0 && ids[i-1] == id {
			continue
		}
		if sh := s.peek(id); sh != nil {
			out = append(out, sh)
		}
	}
	return out
}
