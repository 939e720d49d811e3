package cluster_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/cluster"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// weighted returns members with well-mixed ids and the given weights.
func weighted(weights ...int) (ms []store.Member) {
	for i, w := range weights {
		h := uint64(i+1) * 0x9e3779b97f4a7c15
		var id model.NodeID
		for b := range id {
			h = (h ^ h>>29) * 0xbf58476d1ce4e5b9
			id[b] = byte(h >> 56)
		}
		ms = append(ms, store.Member{NodeInfo: store.NodeInfo{ID: id, Weight: w}, Epoch: int64(i + 1)})
	}
	return ms
}

func countOf(proposed []model.NodeID) map[model.NodeID]int {
	count := map[model.NodeID]int{}
	for _, id := range proposed {
		count[id]++
	}
	return count
}

// Shards are distributed in proportion to the weights, within four standard deviations.
func TestProposeFollowsWeights(t *testing.T) {
	t.Parallel()
	const shards = 4096
	for _, weights := range [][]int{{100, 200}, {1, 10_000}, {1, 2, 3, 4}, {50, 100, 100, 400, 100, 100, 100, 50, 30, 7}} {
		ms := weighted(weights...)
		total := 0
		for _, w := range weights {
			total += w
		}
		count := countOf(cluster.Propose(shards, ms))
		for i, w := range weights {
			fair := float64(shards) * float64(w) / float64(total)
			if got := float64(count[ms[i].ID]); math.Abs(got-fair) > 4*math.Sqrt(fair)+1 {
				t.Errorf("weights %v: node %d has %.0f shards, want about %.0f", weights, i, got, fair)
			}
		}
	}
}

// Equal weights give the same proposal as no weights. So the nodes of a cluster agree even if some
// of them are of an older build without weights.
func TestEqualWeightsChangeNothing(t *testing.T) {
	t.Parallel()
	ms := weighted(0, 0, 0, 0, 0)
	want := cluster.Propose(256, ms)
	for _, weights := range [][]int{{1, 1, 1, 1, 1}, {100, 100, 100, 100, 100}, {0, 100, 500, 1, 100}} {
		if !slices.Equal(cluster.Propose(256, weighted(weights...)), want) {
			t.Errorf("weights %v change the proposal", weights)
		}
	}
}

// The weighted proposal is the same for all builds and machines.
func TestWeightedProposeNeverChanges(t *testing.T) {
	t.Parallel()
	ms := members(1, 2, 3)
	ms[0].Weight, ms[1].Weight, ms[2].Weight = 100, 200, 50
	var got []int
	for _, id := range cluster.Propose(16, ms) {
		got = append(got, int(id[15]))
	}
	want := []int{2, 2, 1, 1, 2, 2, 2, 2, 2, 1, 1, 2, 1, 1, 2, 1}
	if !slices.Equal(got, want) {
		t.Errorf("proposal = %v, want %v", got, want)
	}
}

// When the weight of a node changes, shards move only to it or from it.
func TestWeightMovesOnlyItsShards(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ms := weighted(rapid.SliceOfN(rapid.IntRange(1, cluster.MaxWeight), 2, 12).Draw(t, "weights")...)
		before := cluster.Propose(512, ms)
		i := rapid.IntRange(0, len(ms)-1).Draw(t, "node")
		old := ms[i].Weight
		ms[i].Weight = rapid.IntRange(1, cluster.MaxWeight).Draw(t, "weight")
		for s, id := range cluster.Propose(512, ms) {
			grows := ms[i].Weight >= old
			if id != before[s] && (grows && id != ms[i].ID || !grows && before[s] != ms[i].ID) {
				t.Fatalf("weight %d to %d: shard %d moved from %s to %s", old, ms[i].Weight, s, before[s], id)
			}
		}
	})
}

// moves counts the shards that two proposals give to different nodes. It also returns the smallest
// possible number of moves, given how many shards each node has in both proposals.
func moves(before, after []model.NodeID) (moved, least int) {
	had := countOf(before)
	for id, n := range countOf(after) {
		least += max(0, n-had[id])
	}
	for s := range after {
		if after[s] != before[s] {
			moved++
		}
	}
	return moved, least
}

// There are 2,048 shards and 50 nodes of different weights. Nodes join, leave and change their
// weight one after the other. Each time the smallest possible number of shards moves, and this
// number is about the fair share of the node.
func TestMovesAreMinimal(t *testing.T) {
	t.Parallel()
	const shards, nodes = 2048, 50
	weights := make([]int, nodes)
	for i := range weights {
		weights[i] = []int{100, 100, 50, 200, 400}[i%5]
	}
	all := weighted(weights...)
	proposed := cluster.Propose(shards, all[:1])
	moved, least, fair := 0, 0, 0.0
	step := func(ms []store.Member, share float64) {
		next := cluster.Propose(shards, ms)
		m, l := moves(proposed, next)
		moved, least, fair = moved+m, least+l, fair+share*shards
		proposed = next
	}
	share := func(ms []store.Member, w int) float64 {
		total := 0
		for i := range ms {
			total += ms[i].Weight
		}
		return float64(w) / float64(total)
	}

	for n := 2; n <= nodes; n++ { // the nodes join
		step(all[:n], share(all[:n], all[n-1].Weight))
	}
	for i := range nodes { // each node restarts with another id
		without := slices.Delete(slices.Clone(all), i, i+1)
		step(without, share(all, all[i].Weight))
		all[i].ID[3] ^= 0x55
		step(all, share(all, all[i].Weight))
	}
	for n := nodes - 1; n > 0; n-- { // the nodes leave
		step(all[:n], share(all[:n+1], all[n].Weight))
	}

	t.Logf("%d moves, at least %d, %.0f for fair shares", moved, least, fair)
	if moved != least {
		t.Errorf("%d shards moved, and %d moves are enough for the same shares", moved, least)
	}
	if math.Abs(float64(moved)/fair-1) > 0.05 {
		t.Errorf("%d shards moved, which is not within 5 %% of the fair shares of the nodes, %.0f", moved, fair)
	}
}

func BenchmarkPropose(b *testing.B) {
	for _, one := range []struct {
		name    string
		weights func(i int) int
	}{{"equal", func(int) int { return 100 }}, {"weighted", func(i int) int { return 1 + i }}} {
		b.Run(one.name, func(b *testing.B) {
			weights := make([]int, 50)
			for i := range weights {
				weights[i] = one.weights(i)
			}
			ms := weighted(weights...)
			for b.Loop() {
				cluster.Propose(2048, ms)
			}
		})
	}
}

// drained marks nodes of a view as drained by an operator.
func drained(v store.View, ns ...int) store.View {
	for i := range v.Members {
		v.Members[i].Weight = cluster.DefaultWeight
		v.Members[i].Drained = slices.ContainsFunc(ns, func(n int) bool { return v.Members[i].ID == nodeID(n) })
	}
	return v
}

// A drained node gives its shards up and takes none. The other node takes them when they are free.
// The drained node stays a member and renews its lease.
func TestDrainedNode(t *testing.T) {
	t.Parallel()
	// With fewer shards, all of them might belong to the other node even without the order to
	// drain.
	shards := []int{0, 1, 2, 3, 4, 5, 6, 7}
	owned := func(now time.Duration, ms []store.Member, by int) store.View {
		return view(now, ms, slices.Repeat([]int{by}, len(shards))...)
	}
	m, other := newNode(1), newNode(2)
	renew(t, m, 0, drained(owned(0, members(1), 0), 0))
	m.ApplyAcquire(acquiredShards(shards...), nil)

	a := renew(t, m, 2*s, drained(owned(2*s, members(1, 2), 1), 1))
	if !slices.Equal(a.GiveUp, shardIDs(shards...)) || len(a.Acquire) != 0 {
		t.Fatalf("actions %+v, want that it gives all shards up", a)
	}
	if a := renew(t, other, 2*s, drained(owned(2*s, members(1, 2), 1), 1)); len(a.Acquire) != 0 {
		t.Errorf("the other node takes %v before they are free", a.Acquire)
	}

	m.RemoveShards(shardIDs(shards...))
	a = renew(t, m, 4*s, drained(owned(4*s, members(1, 2), 0), 1))
	if len(a.Acquire) != 0 || m.HasDrained() || !m.IsServing(5*s) {
		t.Errorf("actions %+v: a drained node takes shards, or does not stay a member", a)
	}
	if a := renew(t, other, 4*s, drained(owned(4*s, members(1, 2), 0), 1)); !slices.Equal(a.Acquire, shardIDs(shards...)) {
		t.Errorf("the other node takes %v, want all", a.Acquire)
	}

	// The operator withdraws the order.
	proposed := cluster.Propose(8, drained(view(0, members(1, 2)), 0).Members)
	v := drained(view(6*s, members(1, 2), 2, 2, 0, 0, 0, 0, 0, 0), 0)
	for _, shard := range renew(t, m, 6*s, v).Acquire {
		if proposed[shard] != nodeID(1) || shard < 2 {
			t.Errorf("takes shard %d, which is not free or not proposed for it", shard)
		}
	}
}

// If all nodes are drained, they keep their shards.
func TestAllNodesDrained(t *testing.T) {
	t.Parallel()
	m := newNode(1)
	renew(t, m, 0, drained(view(0, members(1), 0, 0), 1))
	m.ApplyAcquire(acquiredShards(0, 1), nil)
	if a := renew(t, m, 2*s, drained(view(2*s, members(1), 1, 1), 1)); len(a.GiveUp) != 0 {
		t.Errorf("the only node gives up %v", a.GiveUp)
	}
	both := drained(view(0, members(1, 2), 0, 0, 0, 0, 0, 0, 0, 0), 1, 2)
	none := drained(view(0, members(1, 2), 0, 0, 0, 0, 0, 0, 0, 0))
	if got, want := cluster.Plan(&both), cluster.Plan(&none); !slices.Equal(got, want) {
		t.Errorf("all drained: %v, want as if none were: %v", got, want)
	}
}

// A drained node with code keeps its shards if the only other node cannot run anything.
func TestDrainKeepsCode(t *testing.T) {
	t.Parallel()
	v := drained(view(0, members(1, 2), 1, 1, 1, 1), 1)
	v.Members[0].Serves = []store.Served{{Tenant: "t", Workflow: "order"}}
	if moves := cluster.Plan(&v); len(moves) != 0 {
		t.Errorf("shards move to a node without code: %v", moves)
	}
	if why := cluster.MayDrain(&v, nodeID(1)); why == "" {
		t.Error("the only node with code may be drained")
	}
	if why := cluster.MayDrain(&v, nodeID(2)); why != "" {
		t.Errorf("a node without shards may not be drained: %s", why)
	}
}

// Nodes of an older build know neither weights nor drains. An older node would wait for a drained
// node to take shards. So orders to drain have no effect until all older nodes are gone.
func TestOlderNodesKnowNoDrain(t *testing.T) {
	t.Parallel()
	v := drained(view(0, members(1, 2), 0, 0, 0, 0, 0, 0, 0, 0), 1)
	v.Members[1].Weight = 0
	none := view(0, members(1, 2), 0, 0, 0, 0, 0, 0, 0, 0)
	if got, want := cluster.Plan(&v), cluster.Plan(&none); !slices.Equal(got, want) {
		t.Errorf("plan %v, want that of the older build: %v", got, want)
	}
	if why := cluster.MayDrain(&v, nodeID(1)); why == "" {
		t.Error("a node may be drained while an older one is there")
	}
}

// Plan returns the moves that the nodes of a view make by themselves.
func TestPlan(t *testing.T) {
	t.Parallel()
	v := drained(view(0, members(1, 2), 1, 1, 0, 2), 1)
	v.Owners[3].Epoch = 7 // an earlier registration
	want := []cluster.Move{
		{Shard: 0, From: nodeID(1), To: nodeID(2)}, {Shard: 1, From: nodeID(1), To: nodeID(2)}, {Shard: 2, To: nodeID(2)}, {Shard: 3, To: nodeID(2)},
	}
	if got := cluster.Plan(&v); !slices.Equal(got, want) {
		t.Errorf("plan %v, want %v", got, want)
	}

	// A node that stops, or whose lease has expired, gets no shards.
	v.Members[1].Draining = true
	for _, m := range cluster.Plan(&v) {
		if m.To == nodeID(2) {
			t.Errorf("%v to a node that stops", m)
		}
	}
	v.Members[1].Draining, v.Members[1].Expires = false, v.Now-1
	for _, m := range cluster.Plan(&v) {
		if m.To == nodeID(2) {
			t.Errorf("%v to a node without a lease", m)
		}
	}
	if why := cluster.MayDrain(&v, nodeID(1)); why == "" {
		t.Error("the only live node may be drained")
	}
}
