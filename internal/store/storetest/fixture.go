package storetest

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// Noon is the time at which fixtures start.
const Noon model.Time = 1_767_355_200_000_000

// Fixture builds rows for a store and writes them. Ids increase in the order of their creation and
// are unique in the fixture. The fixture remembers what it has written, so that Contents can read
// all of it.
type Fixture struct {
	testing.TB
	Store store.Store

	ids   atomic.Uint64
	mu    sync.Mutex
	scope Scope
}

// New returns a fixture for a store.
func New(t testing.TB, s store.Store) *Fixture { return &Fixture{TB: t, Store: s} }

// RunID returns a new run id, in the form of a UUIDv7.
func (f *Fixture) RunID() model.RunID {
	n := f.ids.Add(1)
	var id model.RunID
	binary.BigEndian.PutUint64(id[:8], uint64(Noon/1000)<<16|0x7000)
	binary.BigEndian.PutUint64(id[8:], 1<<63|n)
	return id
}

// NodeID returns a new node id.
func (f *Fixture) NodeID() model.NodeID {
	id := f.RunID()
	id[15], id[0] = id[0], id[15] // so that node ids are not in the order of creation
	return model.NodeID(id)
}

// Shards returns all shards of the store.
func (f *Fixture) Shards() []model.ShardID {
	out := make([]model.ShardID, f.Store.Info().Shards)
	for i := range out {
		out[i] = model.ShardID(i)
	}
	return out
}

// Address returns a new address of the default tenant.
func (f *Fixture) Address() model.Address {
	return model.Address{Tenant: model.DefaultTenant, Type: "order", Key: fmt.Sprintf("order-%d", f.ids.Add(1))}
}

// AddressIn returns a new address in a shard.
func (f *Fixture) AddressIn(s model.ShardID) model.Address {
	for {
		if a := f.Address(); a.Shard(f.Store.Info().Shards) == s {
			return a
		}
	}
}

// Subject returns a new run of a new address.
func (f *Fixture) Subject() Subject { return f.SubjectOf(f.Address()) }

// SubjectIn returns a new run in a shard.
func (f *Fixture) SubjectIn(s model.ShardID) Subject { return f.SubjectOf(f.AddressIn(s)) }

// SubjectOf returns a new run of an address. Later runs have later start times.
func (f *Fixture) SubjectOf(a model.Address) Subject {
	run := f.RunID()
	at := Noon + model.Time(f.ids.Add(1))
	return Subject{
		RunKey: store.RunKey{Shard: a.Shard(f.Store.Info().Shards), Run: run},
		Start:  model.Start{Address: a, Run: run, At: at, Input: Text("input of " + a.Key)},
	}
}

// Join registers a node with a lease that outlives the test.
func (f *Fixture) Join(lanes int) *Node {
	f.Helper()
	return f.JoinFor(lanes, time.Hour)
}

// JoinFor registers a node with a lease of ttl.
func (f *Fixture) JoinFor(lanes int, ttl time.Duration) *Node {
	f.Helper()
	info := store.NodeInfo{
		ID: f.NodeID(), Host: "host-a", BootID: "boot-1", Namespace: "pid:[4026531836]",
		PID: 4711, PIDStart: 123456789, Version: "v0.0.0-test",
	}
	r, err := f.Store.Register(f.Context(), info, lanes, ttl)
	if err != nil {
		f.Fatalf("register: %v", err)
	}
	n := &Node{f: f, Info: info, ID: info.ID, Epoch: r.Epoch}
	for i := range lanes {
		n.Lanes = append(n.Lanes, &Lane{f: f, Ref: store.LaneRef{Node: info.ID, Lane: i, Epoch: r.Epoch}})
	}
	return n
}

// Node is a registered node.
type Node struct {
	f     *Fixture
	Info  store.NodeInfo
	ID    model.NodeID
	Epoch int64
	Lanes []*Lane
}

// Lane is a lane of a registered node that knows which batch comes next.
type Lane struct {
	f *Fixture
	// Ref is the fence; Landed is the last batch that was committed.
	Ref    store.LaneRef
	Landed int64
}

// Batch returns the next batch of the lane, still empty.
func (l *Lane) Batch() *store.Batch {
	return &store.Batch{Lane: l.Ref, Number: l.Landed + 1, At: Noon + model.Time(l.Landed)}
}

// Try commits a batch and returns the result of the store. If the batch was applied, the lane
// advances.
func (l *Lane) Try(ctx context.Context, b *store.Batch) (store.Committed, error) {
	l.f.Note(b)
	c, err := l.f.Store.Commit(ctx, b)
	if err == nil {
		l.Landed = b.Number
	}
	return c, err
}

// Commit commits a batch that must succeed.
func (l *Lane) Commit(b *store.Batch) store.Committed {
	l.f.Helper()
	c, err := l.Try(l.f.Context(), b)
	if err != nil {
		l.f.Fatalf("commit of batch %d: %v", b.Number, err)
	}
	return c
}

// Write fills the next batch and commits it.
func (l *Lane) Write(fill func(b *store.Batch)) store.Committed {
	l.f.Helper()
	b := l.Batch()
	fill(b)
	return l.Commit(b)
}

// Refuse commits a batch that must fail with the class.
func (l *Lane) Refuse(b *store.Batch, want store.Class) {
	l.f.Helper()
	_, err := l.Try(l.f.Context(), b)
	l.f.WantClass(err, want)
}

// WantClass ends the test if err is not an error of the class.
func (f *Fixture) WantClass(err error, want store.Class) {
	f.Helper()
	switch {
	case err == nil:
		f.Fatalf("succeeded, want an error of class %s", want)
	case store.ClassOf(err) != want:
		f.Fatalf("class %s, want %s: %v", store.ClassOf(err), want, err)
	}
}

// Acquire acquires shards for a node and returns the shards that it got.
func (n *Node) Acquire(shards ...model.ShardID) []store.AcquiredShard {
	n.f.Helper()
	got, err := n.f.Store.Acquire(n.f.Context(), n.ID, n.Epoch, shards)
	if err != nil {
		n.f.Fatalf("acquire: %v", err)
	}
	return got
}

// Fence removes a node as proven dead.
func (n *Node) Fence() {
	n.f.Helper()
	ok, err := n.f.Store.FenceNode(n.f.Context(), store.FenceRequest{Node: n.ID, Epoch: n.Epoch, Proven: true})
	if err != nil || !ok {
		n.f.Fatalf("fence of a node that is proven dead: %v, %v", ok, err)
	}
}

// Renew renews the lease of a node and returns the view.
func (n *Node) Renew(ttl time.Duration, shards ...model.ShardID) store.View {
	n.f.Helper()
	v, err := n.f.Store.Renew(n.f.Context(), store.RenewRequest{Node: n.ID, Epoch: n.Epoch, TTL: ttl, Shards: shards})
	if err != nil {
		n.f.Fatalf("renew: %v", err)
	}
	return v
}
