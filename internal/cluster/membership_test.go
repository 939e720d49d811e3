package cluster_test

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/cluster"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

const s = time.Second

// at returns the store time that is d after an arbitrary start.
func at(d time.Duration) model.Time { return model.Time(1_700_000_000_000_000).Add(d) }

// view returns the cluster at a moment: the members, whose leases end 10 s later, and the owner of
// each shard (0 for free).
func view(now time.Duration, ms []store.Member, owners ...int) store.View {
	v := store.View{Now: at(now), Members: ms}
	for i := range v.Members {
		if v.Members[i].Expires == 0 {
			v.Members[i].Expires = at(now + 10*s)
		}
	}
	for i, n := range owners {
		o := store.ShardOwner{Shard: model.ShardID(i)}
		if n != 0 {
			o.Node, o.Epoch = nodeID(n), int64(n)
		}
		v.Owners = append(v.Owners, o)
	}
	return v
}

// newNode returns the membership of node n, which registered at mono 0 under epoch n.
func newNode(n int) *cluster.Membership {
	return cluster.New(cluster.Config{Self: store.NodeInfo{ID: nodeID(n)}}, int64(n), 0)
}

// renew lets the node renew at mono. The answer arrives immediately.
func renew(t *testing.T, m *cluster.Membership, mono time.Duration, v store.View) cluster.Actions {
	t.Helper()
	if a := m.Tick(mono); a.Renew == nil {
		t.Fatalf("no renewal at %s", mono)
	}
	return m.ApplyRenewal(mono, v, nil)
}

func acquiredShards(ids ...int) (ss []store.AcquiredShard) {
	for _, id := range ids {
		ss = append(ss, store.AcquiredShard{Shard: model.ShardID(id)})
	}
	return ss
}

func shardInts(ids []model.ShardID) (ns []int) {
	for _, id := range ids {
		ns = append(ns, int(id))
	}
	return ns
}

func shardIDs(ids ...int) (ss []model.ShardID) {
	for _, id := range ids {
		ss = append(ss, model.ShardID(id))
	}
	return ss
}

var errAway = store.Errorf(store.Away, "renew", "injected")

// A renewal also reads the store's clock. So even a node with the longest lease renews each minute.
func TestLongLeaseIsRenewedOften(t *testing.T) {
	t.Parallel()
	for ttl, want := range map[time.Duration]time.Duration{10 * s: 2 * s, 5 * time.Minute: time.Minute, cluster.Longest: time.Minute} {
		m := nodeFor(ttl)
		renew(t, m, 0, view(0, members(1), 1))
		if m.NextTick() != want {
			t.Errorf("with a lease of %s the next renewal is after %s, want %s", ttl, m.NextTick(), want)
		}
	}
}

// The lease starts when its renewal is sent, not when the answer arrives. The node relies on the
// lease for its length minus a margin.
func TestLease(t *testing.T) {
	t.Parallel()
	m := newNode(1)
	if m.ValidUntil() != 9*s || !m.IsServing(0) || !m.IsServing(9*s-1) || m.IsServing(9*s) {
		t.Fatalf("after the registration the lease holds until %s, want 9s", m.ValidUntil())
	}
	if a := m.Tick(0); a.Renew == nil || a.Renew.TTL != 10*s || a.Renew.Epoch != 1 || a.Renew.Node != nodeID(1) {
		t.Fatalf("first tick = %+v, want a renewal at once", a)
	}

	if a := m.Tick(5 * s); a.Renew != nil || m.NextTick() != math.MaxInt64 {
		t.Fatal("a second renewal while one is in flight")
	}
	m.ApplyRenewal(7*s, view(0, members(1), 1), nil) // a slow answer
	if m.ValidUntil() != 9*s {
		t.Errorf("the lease holds until %s, want 9s: it was sent at 0", m.ValidUntil())
	}
	if m.NextTick() != 7*s {
		t.Errorf("next tick at %s, want at once: the answer came late", m.NextTick())
	}
	renew(t, m, 7*s, view(7*s, members(1), 1))
	if m.ValidUntil() != 16*s || m.NextTick() != 9*s {
		t.Errorf("the lease holds until %s, next tick at %s; want 16s and 9s", m.ValidUntil(), m.NextTick())
	}

	// A failed renewal changes nothing, and the node tries again soon.
	m.Tick(9 * s)
	m.ApplyRenewal(9*s+100*time.Millisecond, store.View{}, errAway)
	if m.ValidUntil() != 16*s || m.NextTick() <= 9*s || m.NextTick() > 10*s {
		t.Errorf("after a failed renewal: until %s, next at %s", m.ValidUntil(), m.NextTick())
	}

	// A process that was paused notices by itself that its lease has ended.
	if m.IsServing(16*s) || m.IsServing(time.Hour) {
		t.Error("serves after its lease has ended")
	}

	// A node may renew an expired lease if no other node has fenced it.
	renew(t, m, time.Hour, view(time.Hour, members(1), 1))
	if !m.IsServing(time.Hour + 8*s) {
		t.Error("does not serve after it has renewed")
	}
}

func TestConfigDefaults(t *testing.T) {
	t.Parallel()
	m := cluster.New(cluster.Config{TTL: 20 * s}, 1, 3*s)
	if m.ValidUntil() != 21*s { // 3 + 20 − 2
		t.Errorf("valid until %s, want 21s", m.ValidUntil())
	}
	if m.Epoch() != 1 {
		t.Error("epoch")
	}
}

// A fenced node is lost: it no longer serves or asks for anything.
func TestFencedNodeIsLost(t *testing.T) {
	t.Parallel()

	lose := map[string]func(m *cluster.Membership) cluster.Actions{
		"by a renewal": func(m *cluster.Membership) cluster.Actions {
			m.Tick(s)
			return m.ApplyRenewal(s, store.View{}, store.Errorf(store.Fenced, "renew", "gone"))
		},
		"by an acquire": func(m *cluster.Membership) cluster.Actions {
			renew(t, m, s, view(s, members(1), 0, 0))
			m.RenewNow()
			if m.Tick(s).Renew == nil {
				t.Error("no renewal in flight")
			}
			return m.ApplyAcquire(nil, store.Errorf(store.Fenced, "acquire", "gone"))
		},
	}
	for name, f := range lose {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newNode(1)
			a := f(m)
			if a.Lost == nil || m.IsServing(s) {
				t.Fatalf("actions %+v, serving %v; want it lost", a, m.IsServing(s))
			}
			if a := m.Tick(2 * s); a.Lost == nil || a.Renew != nil {
				t.Errorf("a lost node ticks: %+v", a)
			}
			// This is the answer to a renewal that was in flight when the node was fenced.
			a = m.ApplyRenewal(2*s, view(s, members(1), 0, 0), nil)
			if a.Lost == nil || len(a.Acquire)+len(a.GiveUp)+len(a.Fence) > 0 || m.IsServing(2*s) {
				t.Errorf("a lost node plans: %+v, serving %v", a, m.IsServing(2*s))
			}
		})
	}
}

// A node acquires the free shards that are proposed for it, and no others.
func TestAcquiresFreeShards(t *testing.T) {
	t.Parallel()
	const n = 8
	mine := proposedFor(n, 1, 1, 2)
	m := newNode(1)
	a := renew(t, m, s, view(s, members(1, 2), make([]int, n)...))
	if !slices.Equal(a.Acquire, mine) || len(a.GiveUp) > 0 {
		t.Fatalf("acquire %v, want %v", a.Acquire, mine)
	}

	// While an acquire is in flight, the node acquires nothing else.
	m.RenewNow()
	if a := renew(t, m, 2*s, view(2*s, members(1, 2), make([]int, n)...)); len(a.Acquire) > 0 {
		t.Errorf("acquires %v while an acquire is in flight", a.Acquire)
	}
	m.ApplyAcquire(acquiredShards(int(mine[0])), nil) // the store granted only one of the shards
	if !slices.Equal(m.OwnedShards(), mine[:1]) {
		t.Errorf("owns %v, want %v", m.OwnedShards(), mine[:1])
	}

	// It takes the other free shards as soon as the acquire has ended, because requests for them
	// wait.
	owners := make([]int, n)
	owners[mine[0]] = 1
	if m.NextTick() > 2*s {
		t.Errorf("the next renewal is at %s, although shards are free", m.NextTick())
	}
	if a := renew(t, m, 2*s, view(2*s, members(1, 2), owners...)); !slices.Equal(a.Acquire, mine[1:]) {
		t.Errorf("then acquires %v, want the rest: %v", a.Acquire, mine[1:])
	}
	m.ApplyAcquire(acquiredShards(shardInts(mine[1:])...), nil)
	if m.NextTick() <= 2*s {
		t.Error("the node renews again, although no shard became free in the meantime")
	}
}

// proposedFor returns the shards that are proposed for the node self in a cluster of the given
// nodes.
func proposedFor(shards, self int, nodes ...int) (ids []model.ShardID) {
	for i, id := range cluster.Propose(shards, members(nodes...)) {
		if id == nodeID(self) {
			ids = append(ids, model.ShardID(i))
		}
	}
	return ids
}

// A node does not touch the shards of another node while that node is registered, regardless of the
// proposal. It takes them after the other node was fenced.
func TestShardsOfOthers(t *testing.T) {
	t.Parallel()
	m := newNode(1)
	if a := renew(t, m, s, view(s, members(1, 2), 2, 2, 2, 2, 2, 2, 2, 2)); len(a.Acquire) > 0 {
		t.Errorf("acquires %v of a live node", a.Acquire)
	}

	// The row of the other node is gone: it was fenced.
	if a := renew(t, m, 3*s, view(3*s, members(1), 2, 2, 2)); !slices.Equal(a.Acquire, shardIDs(0, 1, 2)) {
		t.Errorf("acquires %v of a fenced node, want all", a.Acquire)
	}
	m.ApplyAcquire(nil, errAway)

	// The other node has come back under another epoch, so this node may take the shards of the
	// former incarnation of that node.
	back := members(1, 2)
	back[1].Epoch = 99
	m.RenewNow()
	a := renew(t, m, 5*s, view(5*s, back, 2, 2, 2, 2, 2, 2, 2, 2))
	if want := proposedFor(8, 1, 1, 2); !slices.Equal(a.Acquire, want) {
		t.Errorf("acquires %v, want %v", a.Acquire, want)
	}
}

// A node gives up shards that are proposed for another live node. It asks the lanes for that only
// once.
func TestGivesUp(t *testing.T) {
	t.Parallel()
	m := newNode(1)
	renew(t, m, s, view(s, members(1), 0, 0, 0, 0))
	m.ApplyAcquire(acquiredShards(0, 1, 2, 3), nil)
	if a := renew(t, m, 3*s, view(3*s, members(1), 1, 1, 1, 1)); len(a.GiveUp)+len(a.Acquire) > 0 {
		t.Fatalf("alone it moves something: %+v", a)
	}

	theirs := proposedFor(4, 2, 1, 2)
	a := renew(t, m, 5*s, view(5*s, members(1, 2), 1, 1, 1, 1))
	if !slices.Equal(a.GiveUp, theirs) || len(theirs) == 0 {
		t.Fatalf("gives up %v, want %v", a.GiveUp, theirs)
	}
	if a := renew(t, m, 7*s, view(7*s, members(1, 2), 1, 1, 1, 1)); len(a.GiveUp) > 0 {
		t.Errorf("gives up %v again", a.GiveUp)
	}
	m.RemoveShards(theirs)

	for _, id := range theirs {
		if slices.Contains(m.OwnedShards(), id) {
			t.Errorf("still owns %d", id)
		}
	}

	// The other node leaves before it has taken the shards, so this node keeps them.
	owners := []int{1, 1, 1, 1}
	for _, id := range theirs {
		owners[id] = 0
	}
	if a := renew(t, m, 9*s, view(9*s, members(1), owners...)); !slices.Equal(a.Acquire, theirs) {
		t.Errorf("acquires %v, want %v", a.Acquire, theirs)
	}
}

// A node that can run nothing owns nothing while other nodes can run code, because it could only
// hand its runs to workers of those nodes.
func TestIdlersOwnNothing(t *testing.T) {
	t.Parallel()
	m := newNode(1)
	renew(t, m, s, view(s, members(1), 0, 0, 0, 0))
	m.ApplyAcquire(acquiredShards(0, 1, 2, 3), nil)

	serving := func(nodes ...int) []store.Member {
		ms := members(1, 2)
		for _, n := range nodes {
			ms[n-1].Serves = []store.Served{{Tenant: "default", Workflow: "w"}}
		}
		return ms
	}
	if a := renew(t, m, 3*s, view(3*s, serving(2), 1, 1, 1, 1)); !slices.Equal(a.GiveUp, shardIDs(0, 1, 2, 3)) {
		t.Errorf("gives up %v, want all", a.GiveUp)
	}
	m.RemoveShards(shardIDs(0, 1, 2, 3))
	if a := renew(t, m, 5*s, view(5*s, serving(1, 2), 0, 0, 0, 0)); !slices.Equal(a.Acquire, proposedFor(4, 1, 1, 2)) {
		t.Errorf("acquires %v, want its share", a.Acquire)
	}
	m.ApplyAcquire(nil, errAway)
	if a := renew(t, m, 7*s, view(7*s, serving(1), 0, 0, 0, 0)); !slices.Equal(a.Acquire, shardIDs(0, 1, 2, 3)) {
		t.Errorf("acquires %v, want all", a.Acquire)
	}
}

// Nodes with the code of workflows own runs. If there is no such node, nodes that only execute
// tasks own runs, no matter how little work their workers accept at the moment.
func TestTaskWorkersOwnNothing(t *testing.T) {
	t.Parallel()
	flow, ours, task := store.Served{Tenant: "default", Workflow: "w"}, store.Served{Tenant: "default", Workflow: "perdure.schedule"}, store.Served{Tenant: "default", Worker: "x", Draining: true}
	for _, c := range []struct {
		name        string
		mine, yours []store.Served
		want        []model.ShardID
	}{
		{"both have workflows", []store.Served{flow}, []store.Served{task, flow}, proposedFor(4, 1, 1, 2)},
		{"I execute tasks", []store.Served{task}, []store.Served{flow}, nil},
		{"you execute tasks", []store.Served{flow}, []store.Served{task}, shardIDs(0, 1, 2, 3)},
		{"both execute tasks", []store.Served{task}, []store.Served{task}, proposedFor(4, 1, 1, 2)},
		{"I execute tasks and run schedules", []store.Served{ours, task}, []store.Served{ours, flow}, nil},
		{"you run schedules", []store.Served{task, ours}, []store.Served{ours}, shardIDs(0, 1, 2, 3)},
		{"I run schedules, you ask", []store.Served{ours}, nil, shardIDs(0, 1, 2, 3)},
		{"you only ask", []store.Served{task}, nil, shardIDs(0, 1, 2, 3)},
		{"I only ask", nil, []store.Served{task}, nil},
		{"both only ask", nil, nil, proposedFor(4, 1, 1, 2)},
	} {
		ms := members(1, 2)
		ms[0].Serves, ms[1].Serves = c.mine, c.yours
		if a := renew(t, newNode(1), s, view(s, ms, 0, 0, 0, 0)); !slices.Equal(a.Acquire, c.want) {
			t.Errorf("%s: acquires %v, want %v", c.name, a.Acquire, c.want)
		}
	}
}

// A node does not act on a view that it requested before something changed. It asks for a fresh
// view immediately.
func TestStaleView(t *testing.T) {
	t.Parallel()
	m := newNode(1)
	renew(t, m, s, view(s, members(1), 0, 0))
	m.Tick(3 * s) // sent before the acquire is answered
	m.ApplyAcquire(acquiredShards(0, 1), nil)
	a := m.ApplyRenewal(4*s, view(3*s, members(1), 0, 0), nil)
	if len(a.Acquire)+len(a.GiveUp) > 0 || m.NextTick() > 4*s {
		t.Fatalf("acted on a stale view: %+v, next tick at %s", a, m.NextTick())
	}

	if m.ValidUntil() != 12*s {
		t.Errorf("the lease holds until %s, want 12s: the renewal itself counts", m.ValidUntil())
	}

	// The same holds for a shard that was freed while the renewal was in flight: the outdated view
	// still says that the node owns it.
	renew(t, m, 4*s, view(4*s, members(1, 2), 1, 1))
	m.RenewNow()
	m.Tick(5 * s)
	m.RemoveShards(shardIDs(0, 1))
	if a := m.ApplyRenewal(6*s, view(5*s, members(1, 2), 1, 1), nil); len(a.Acquire) > 0 {
		t.Errorf("takes %v back because of a stale view", a.Acquire)
	}

	// Mail is only a hint, so it may also come from an outdated view.
	m.Tick(6 * s)
	m.RemoveShards(nil)
	v := view(6*s, members(1, 2), 0, 0)
	v.Mail = true
	if a := m.ApplyRenewal(6*s, v, nil); !a.Mail {
		t.Error("mail is not passed on")
	}
}

// The answer to an acquire was lost. The store knows that the shard is ours, so the node acquires
// it again.
func TestLostAcquireReply(t *testing.T) {
	t.Parallel()
	m := newNode(1)
	renew(t, m, s, view(s, members(1), 0, 0))
	m.ApplyAcquire(nil, errors.New("connection lost"))
	if len(m.OwnedShards()) != 0 {
		t.Fatal("owns what it does not know to have")
	}

	a := renew(t, m, 3*s, view(3*s, members(1), 1, 1))
	if !slices.Equal(a.Acquire, shardIDs(0, 1)) {
		t.Fatalf("acquires %v, want both again", a.Acquire)
	}
	m.ApplyAcquire(acquiredShards(0, 1), nil)
	if !slices.Equal(m.OwnedShards(), shardIDs(0, 1)) {
		t.Errorf("owns %v", m.OwnedShards())
	}

	// The node acquires the shards again even if they are no longer proposed for it, because it
	// must own them to be able to free them.
	m = newNode(1)
	renew(t, m, s, view(s, members(1), 0, 0, 0, 0))
	m.ApplyAcquire(nil, errAway)
	theirs := proposedFor(4, 2, 1, 2)
	a = renew(t, m, 3*s, view(3*s, members(1, 2), 1, 1, 1, 1))
	if !slices.Equal(a.Acquire, shardIDs(0, 1, 2, 3)) {
		t.Fatalf("acquires %v, want all that the store says are ours", a.Acquire)
	}

	m.ApplyAcquire(acquiredShards(0, 1, 2, 3), nil)
	if a := renew(t, m, 5*s, view(5*s, members(1, 2), 1, 1, 1, 1)); !slices.Equal(a.GiveUp, theirs) {
		t.Errorf("gives up %v, want %v", a.GiveUp, theirs)
	}
}

// A node fences another node whose lease has expired by the store's clock. It makes one such call
// at a time. After that it takes the shards of the fenced node.
func TestFencesExpiredNodes(t *testing.T) {
	t.Parallel()
	m := newNode(1)
	ms := func(expires time.Duration) []store.Member {
		ms := members(1, 2)
		ms[1].Expires = at(expires)
		return ms
	}
	if a := renew(t, m, s, view(5*s, ms(5*s), 2, 2)); len(a.Fence) > 0 {
		t.Fatalf("fences a node whose lease ends this very moment: %+v", a.Fence)
	}

	a := renew(t, m, 3*s, view(6*s, ms(5*s), 2, 2))
	if len(a.Fence) != 1 || a.Fence[0] != (store.FenceRequest{Node: nodeID(2), Epoch: 2, Expires: at(5 * s)}) || len(a.Acquire) > 0 {
		t.Fatalf("actions = %+v, want node 2 fenced and nothing acquired before that", a)
	}
	if a := renew(t, m, 5*s, view(8*s, ms(5*s), 2, 2)); len(a.Fence) > 0 {
		t.Error("fences twice at a time")
	}
	m.ApplyFence(nodeID(2), false, errAway)
	if a := renew(t, m, 7*s, view(10*s, ms(5*s), 2, 2)); len(a.Fence) != 1 {
		t.Error("does not try again")
	}
	m.ApplyFence(nodeID(2), true, nil)
	if m.NextTick() != 0 {
		t.Errorf("next tick at %s, want at once", m.NextTick())
	}
	if a := renew(t, m, 8*s, view(11*s, members(1), 2, 2)); !slices.Equal(a.Acquire, shardIDs(0, 1)) {
		t.Errorf("acquires %v of the fenced node, want both", a.Acquire)
	}
}

// A node immediately fences a process of its own host that is provably gone. A node never fences
// itself.
func TestFencesProvenDead(t *testing.T) {
	t.Parallel()
	gone := map[model.NodeID]bool{nodeID(1): true, nodeID(2): true}
	m := cluster.New(cluster.Config{Self: store.NodeInfo{ID: nodeID(1)}, Gone: func(n store.NodeInfo) bool { return gone[n.ID] }}, 1, 0)
	a := renew(t, m, s, view(s, members(1, 2, 3), 2, 2, 3))
	if len(a.Fence) != 1 || a.Fence[0] != (store.FenceRequest{Node: nodeID(2), Epoch: 2, Expires: at(11 * s), Proven: true}) {
		t.Fatalf("fence = %+v, want node 2 with proof", a.Fence)
	}

	if len(a.Acquire) > 0 {
		t.Errorf("acquires %v before the fence", a.Acquire)
	}

	// By the store's clock the lease of the node itself has expired. The node continues until
	// another node fences it.
	own := members(1)
	own[0].Expires = at(0)
	m = newNode(1)
	if a := renew(t, m, 60*s, view(60*s, own, 0)); len(a.Fence) > 0 || !slices.Equal(a.Acquire, shardIDs(0)) {
		t.Errorf("actions = %+v", a)
	}
}

// A draining node gives everything up and takes nothing. Other nodes do not propose shards for it.
func TestDrain(t *testing.T) {
	t.Parallel()
	m := newNode(1)
	renew(t, m, s, view(s, members(1), 0, 0, 0))
	m.ApplyAcquire(acquiredShards(0, 1), nil)
	if m.HasDrained() {
		t.Fatal("drained before it was asked to")
	}

	m.Drain()
	if m.HasDrained() {
		t.Fatal("drained while it owns shards")
	}
	if m.NextTick() != 0 {
		t.Error("does not tell at once")
	}
	a := m.Tick(s)
	if a.Renew == nil || !a.Renew.Draining || !slices.Equal(a.Renew.Shards, shardIDs(0, 1)) {
		t.Fatalf("renewal = %+v, want it draining, with its shards", a.Renew)
	}

	a = m.ApplyRenewal(s, view(s, members(1), 1, 1, 0), nil)
	if !slices.Equal(a.GiveUp, shardIDs(0, 1)) || len(a.Acquire) > 0 {
		t.Fatalf("actions = %+v, want everything given up and nothing taken", a)
	}
	m.RemoveShards(shardIDs(0))
	if m.HasDrained() {
		t.Error("drained with one left")
	}
	m.RemoveShards(shardIDs(1))
	if !m.HasDrained() {
		t.Error("not drained")
	}

	// Another node proposes nothing for a draining node, and does not fence it.
	other := newNode(2)
	ms := members(1, 2)
	ms[0].Draining = true
	if a := renew(t, other, s, view(s, ms, 0, 0, 0)); !slices.Equal(a.Acquire, shardIDs(0, 1, 2)) || len(a.Fence) > 0 {
		t.Errorf("actions = %+v, want all shards for the one that stays", a)
	}
}

// An acquire is in flight when the node starts to drain. The node has not drained before the answer
// arrives.
func TestDrainDuringAcquire(t *testing.T) {
	t.Parallel()
	m := newNode(1)
	renew(t, m, s, view(s, members(1), 0))
	m.Drain()
	if m.HasDrained() {
		t.Fatal("drained while an acquire is in flight")
	}
	m.ApplyAcquire(acquiredShards(0), nil)
	if a := renew(t, m, 2*s, view(2*s, members(1), 1)); !slices.Equal(a.GiveUp, shardIDs(0)) {
		t.Errorf("gives up %v, want the shard that came late", a.GiveUp)
	}
}

// A caller that asks for a renewal while one is in flight gets another renewal, because the view
// that is on its way may be older than what the caller knows.
func TestRenewNowDuringARenewal(t *testing.T) {
	t.Parallel()
	for name, ask := range map[string]func(m *cluster.Membership){
		"renew now": (*cluster.Membership).RenewNow,
		"drain":     (*cluster.Membership).Drain,
		"serve":     func(m *cluster.Membership) { m.Serve([]store.Served{{Workflow: "w"}}) },
		"fence":     func(m *cluster.Membership) { m.ApplyFence(nodeID(2), true, nil) },
	} {
		m := newNode(1)
		m.Tick(0)
		ask(m)
		m.ApplyRenewal(s/10, view(0, members(1)), nil)
		if m.NextTick() > s/10 {
			t.Errorf("%s: the next renewal is at %s", name, m.NextTick())
		}
		renew(t, m, s/10, view(0, members(1)))
		if m.NextTick() != s/10+2*s {
			t.Errorf("%s: after that the next one is at %s", name, m.NextTick())
		}
	}
}

// What changed during a renewal that failed is no reason to renew twice, and no reason to ignore
// the view of the next renewal: that renewal is sent after the change.
func TestChangesDuringAFailedRenewal(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(m *cluster.Membership){
		"renew now":      (*cluster.Membership).RenewNow,
		"shards removed": func(m *cluster.Membership) { m.RemoveShards(nil) },
	} {
		m := newNode(1)
		m.Tick(0)
		change(m)
		m.ApplyRenewal(s/10, store.View{}, errAway)
		again := m.NextTick()
		a := renew(t, m, again, view(again, members(1), 0, 0))
		if !slices.Equal(a.Acquire, shardIDs(0, 1)) {
			t.Errorf("%s: the node acquires %v, want all free shards", name, a.Acquire)
		}
		if m.NextTick() != again+2*s {
			t.Errorf("%s: the next renewal is at %s, and the last one was at %s", name, m.NextTick(), again)
		}
	}
}

// A server has the same rank with and without workers, so that shards stay where they are when
// workers connect.
func TestServersKeepTheirRank(t *testing.T) {
	t.Parallel()
	server := store.Served{Tenant: model.EveryTenant, Workflow: "perdure.schedule"}
	workers := store.Served{Tenant: "t", Workflow: "order"}
	for _, serves := range [][]store.Served{{server}, {server, workers}} {
		if got, want := cluster.RankOf(&store.Member{Serves: serves}), cluster.RankOf(&store.Member{Serves: []store.Served{workers}}); got != want {
			t.Errorf("a node that serves %v has rank %d, want %d", serves, got, want)
		}
	}
	if cluster.RankOf(&store.Member{Serves: []store.Served{{Tenant: "t", Workflow: "perdure.schedule"}}}) >= cluster.RankOf(&store.Member{Serves: []store.Served{workers}}) {
		t.Error("a program that only starts executions owns shards beside one that runs them")
	}
}
