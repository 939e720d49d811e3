package cluster_test

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/cluster"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// grouped returns a view of nodes with a number of shards and groups. No shard has an owner.
func grouped(shards int, groups []model.Group, ms []store.Member) *store.View {
	v := &store.View{Members: ms, Groups: groups, Owners: make([]store.ShardOwner, shards)}
	for i := range v.Owners {
		v.Owners[i].Shard = model.ShardID(i)
	}
	return v
}

// Shards of a group go only to nodes that serve it, and every shard of a group that some node
// serves is proposed for a node. The shards of each group are distributed as if there were no other
// groups.
func TestGroupsGoToTheirNodes(t *testing.T) {
	t.Parallel()
	names := []string{model.DefaultGroup, "gpu", "video"}
	rapid.Check(t, func(t *rapid.T) {
		groups := []model.Group{{Name: "gpu", Shards: rapid.IntRange(1, 40).Draw(t, "gpu")}, {Name: "video", Shards: rapid.IntRange(1, 40).Draw(t, "video")}}
		ms := weighted(rapid.SliceOfN(rapid.IntRange(1, 500), 0, 8).Draw(t, "weights")...)
		for i := range ms {
			ms[i].Groups = rapid.SliceOfNDistinct(rapid.SampledFrom(names), 0, 3, func(s string) string { return s }).Draw(t, "groups")
		}
		base := rapid.IntRange(1, 60).Draw(t, "default")
		v := grouped(base+groups[0].Shards+groups[1].Shards, groups, ms)
		proposed := cluster.Assign(v, slices.Clone(ms))

		for _, r := range v.Layout().Ranges() {
			var serve []store.Member
			for i := range ms {
				if ms[i].TakesGroup(r.Group) {
					serve = append(serve, ms[i])
				}
			}
			alone := cluster.Propose(r.First+r.Count, serve)
			for s := r.First; s < r.First+r.Count; s++ {
				if proposed[s] != alone[s] {
					t.Fatalf("shard %d of group %s is proposed for %s, want %s of its %d nodes", s, r.Group, proposed[s], alone[s], len(serve))
				}
			}
		}
	})
}

// The shards of a store without groups are distributed as in builds that did not know groups. It
// does not matter which groups the nodes name.
func TestOneGroupChangesNothing(t *testing.T) {
	t.Parallel()
	ms := weighted(100, 100, 50, 300)
	want := cluster.Propose(256, ms)
	ms[1].Groups = []string{model.DefaultGroup}
	ms[2].Groups = []string{"gpu", model.DefaultGroup}
	if got := cluster.Assign(grouped(256, nil, ms), slices.Clone(ms)); !slices.Equal(got, want) {
		t.Error("the proposal differs from that without groups")
	}
}

// There are 2,048 shards in four groups, and 50 nodes of different weights. Each node serves one or
// two groups. When a node joins, restarts or leaves, the smallest possible number of shards moves,
// and this number is about the fair share of the node. A node moves only shards of its own groups.
func TestMovesOfGroupsAreMinimal(t *testing.T) {
	t.Parallel()
	const shards, nodes = 2048, 50
	groups := []model.Group{{Name: "gpu", Shards: 512}, {Name: "video", Shards: 256}, {Name: "eu", Shards: 256}}
	names := []string{model.DefaultGroup, "gpu", "video", "eu"}
	weights := make([]int, nodes)
	for i := range weights {
		weights[i] = []int{100, 100, 50, 200, 400}[i%5]
	}
	all := weighted(weights...)
	for i := range all {
		all[i].Groups = []string{names[i%4]}
		if i%3 == 0 {
			all[i].Groups = append(all[i].Groups, names[(i+1)%4])
		}
	}

	layout := grouped(shards, groups, nil).Layout()
	assign := func(ms []store.Member) []model.NodeID {
		return cluster.Assign(grouped(shards, groups, ms), slices.Clone(ms))
	}
	share := func(ms []store.Member, n *store.Member) (sum float64) {
		for _, r := range layout.Ranges() {
			total := 0
			for i := range ms {
				if ms[i].TakesGroup(r.Group) {
					total += ms[i].Weight
				}
			}
			if n.TakesGroup(r.Group) {
				sum += float64(r.Count) * float64(n.Weight) / float64(total)
			}
		}
		return sum
	}

	// The first nodes serve all groups, so that every shard has an owner all the time.
	present := all[:4]
	proposed := assign(present)
	moved, least, fair := 0, 0, 0.0
	step := func(ms []store.Member, of *store.Member, part float64) {
		next := assign(ms)
		for s := range next {
			if next[s] != proposed[s] && !of.TakesGroup(layout.GroupOf(model.ShardID(s))) {
				t.Fatalf("shard %d of group %s moved for a node that serves %v", s, layout.GroupOf(model.ShardID(s)), of.Groups)
			}
		}
		m, l := moves(proposed, next)
		moved, least, fair = moved+m, least+l, fair+part
		proposed = next
	}

	for n := len(present) + 1; n <= nodes; n++ { // the nodes join
		step(all[:n], &all[n-1], share(all[:n], &all[n-1]))
	}
	for i := range nodes { // each node restarts with another id
		part := share(all, &all[i])
		step(slices.Delete(slices.Clone(all), i, i+1), &all[i], part)
		all[i].ID[3] ^= 0x55
		step(all, &all[i], part)
	}
	for n := nodes - 1; n >= len(present); n-- { // the nodes leave
		step(all[:n], &all[n], share(all[:n+1], &all[n]))
	}

	t.Logf("%d moves, at least %d, %.0f for fair shares", moved, least, fair)
	if moved != least {
		t.Errorf("%d shards moved, and %d moves are enough for the same shares", moved, least)
	}
	if math.Abs(float64(moved)/fair-1) > 0.05 {
		t.Errorf("%d shards moved, which is not within 5 %% of the fair shares of the nodes, %.0f", moved, fair)
	}
}

// A node takes only the free shards of its own groups. It does not touch the shards of a group that
// no node serves.
func TestNodeTakesShardsOfItsGroups(t *testing.T) {
	t.Parallel()
	v := view(0, members(1, 2), 0, 0, 0, 0, 0)
	v.Groups = []model.Group{{Name: "gpu", Shards: 2}, {Name: "video", Shards: 1}} // gpu has the shards 2 and 3, and video has the shard 4
	v.Members[0].Groups = []string{"gpu"}
	one, two := newNode(1), newNode(2)
	if a := renew(t, one, 0, v); !slices.Equal(a.Acquire, shardIDs(2, 3)) {
		t.Errorf("the node of group gpu takes %v, want 2 and 3", a.Acquire)
	}
	if a := renew(t, two, 0, v); !slices.Equal(a.Acquire, shardIDs(0, 1)) {
		t.Errorf("the node of the default group takes %v, want 0 and 1", a.Acquire)
	}

	// The node gives up a shard of a group that it does not serve, although no other node serves
	// that group.
	one.ApplyAcquire(acquiredShards(2, 3, 4), nil)
	owned := view(2*s, members(1, 2), 2, 2, 1, 1, 1)
	owned.Groups, owned.Members = v.Groups, v.Members
	if a := renew(t, one, 2*s, owned); !slices.Equal(a.GiveUp, shardIDs(4)) {
		t.Errorf("it gives up %v, want shard 4", a.GiveUp)
	}
}

// If an operator has drained all other nodes of a group, the last node cannot be drained, even if
// there are nodes of other groups.
func TestDrainOfTheLastNodeOfAGroup(t *testing.T) {
	t.Parallel()
	v := drained(view(0, members(1, 2, 3), 2, 3, 1, 1))
	v.Groups = []model.Group{{Name: "gpu", Shards: 2}}
	v.Members[0].Groups = []string{"gpu"}
	const want = "no other node that is not drained takes shards of group gpu and can run as much as it does"
	if why := cluster.MayDrain(&v, nodeID(1)); why != want {
		t.Errorf("drain of the only node of the group: %q, want %q", why, want)
	}
	if why := cluster.MayDrain(&v, nodeID(2)); why != "" {
		t.Errorf("drain of a node of the default group: %q", why)
	}
	v.Members[1].Groups = []string{"gpu", model.DefaultGroup}
	if why := cluster.MayDrain(&v, nodeID(1)); why != "" {
		t.Errorf("drain while another node serves the group: %q", why)
	}
}

func BenchmarkAssignGroups(b *testing.B) {
	weights := make([]int, 50)
	for i := range weights {
		weights[i] = 1 + i
	}
	ms := weighted(weights...)
	for i := range ms {
		ms[i].Groups = []string{model.DefaultGroup, "gpu", "video", "eu"}[:1+i%4]
	}
	v := grouped(2048, []model.Group{{Name: "gpu", Shards: 512}, {Name: "video", Shards: 512}, {Name: "eu", Shards: 512}}, ms)
	for b.Loop() {
		cluster.Assign(v, ms)
	}
}
