// Package memory is the store of unit tests and of the simulator. It keeps everything in memory, so
// nothing survives the process.
//
// It keeps all promises of the interface store.Store except durability, and adds two promises:
//
//   - Determinism. If only one goroutine calls the store, and the caller sets the clock, the same
//     calls give the same answers in the same order. No iteration over a Go map affects a result,
//     except that Search finds values in any order.
//   - Isolation. The store copies all values that it receives and returns, byte by byte, as if they
//     had gone to disk and back. If a caller changes a payload later, the stored payload does not
//     change. The stored payload also stays as it was if the simulator kills a process in the
//     middle of such a change. As in the other stores, the position, time and kind of the events in
//     Message.With are not kept.
//
// The store encodes nothing. A new store costs three small slices, and a shard is allocated with
// its first row. A commit costs O(rows log n). Several nodes may share one Store value; a mutex
// protects it.
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

// DefaultShards is the number of shards if Options.Shards is zero.
const DefaultShards = 256

// Options configure a store. The zero value works.
type Options struct {
	// Shards is the number of shards. The default is DefaultShards, the maximum model.MaxShards.
	Shards int
	// Groups are shard groups in addition to the default group. Their shards are a part of Shards.
	// The default is none.
	Groups []model.Group
	// Now is the clock that judges leases. The default is time.Now. The store calls it while it
	// holds its lock, so Now must not call the store.
	Now func() time.Time
	// Cluster is the id of the store's contents, as in store.Info. The default is a random id.
	// Simulators set Cluster, so that they stay deterministic.
	Cluster string
}

// Store is a store in memory.
type Store struct {
	info store.Info
	now  func() time.Time

	mu     sync.Mutex // protects everything below
	closed bool
	epoch  int64 // the last epoch that was used
	// nodes has the registered nodes, sorted by id. If a node was fenced or has left, nodes has
	// neither the node nor its fences. The store refuses all commits of a lane that has no fence,
	// as if the fence had a higher epoch.
	nodes  []*node
	owners []store.ShardOwner
	tokens []int64  // marks of fencing tokens, by shard
	shards []*shard // nil until the first row
	// listing has every run, newest first.
	listing ordered[*run]
	// dead has every dead task, newest first.
	dead     ordered[*store.DeadRow]
	settings settings
	audit    []store.AuditRow  // sorted by id
	reports  []store.ReportRow // sorted by id
	// entities has the rows of all entities, in the order of lists.
	entities ordered[*entity]
	// peerMail has the notes between nodes, sorted by receiver and id.
	peerMail []store.PeerMail
	// workers maps the names of remote workers to their homes.
	workers map[string]model.NodeID
	// undo has the functions that undo the writes of the batch in progress, in the order of the
	// writes.
	undo []func()
}

var _ store.Store = (*Store)(nil)

// New creates an empty store. It panics if the number of shards is out of range, because that is a
// mistake in the program.
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
		info:    store.Info{Shards: o.Shards, Groups: o.Groups, Cluster: o.Cluster, URL: "memory:", Version: 1},
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

// begin locks the store for a call. The caller must unlock it, even after an error.
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

// time returns the time of the store's clock.
func (s *Store) time() model.Time { return model.TimeOf(s.now()) }

// peek returns a shard for reading, or nil if it has no rows or does not exist.
func (s *Store) peek(id model.ShardID) *shard {
	if int(id) >= len(s.shards) {
		return nil
	}
	return s.shards[id]
}

// shard returns a shard for writing, or nil if it does not exist.
func (s *Store) shard(id model.ShardID) *shard {
	if int(id) >= len(s.shards) {
		return nil
	}
	if s.shards[id] == nil {
		s.shards[id] = newShard(id)
	}
	return s.shards[id]
}

// some returns the given shards that have rows, each once and in order.
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
