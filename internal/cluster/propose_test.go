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

func nodeID(n int) model.NodeID { return model.NodeID{0: 1, 5: byte(n * 37), 15: byte(n)} }

func members(ns ...int) (ms []store.Member) {
	for _, n := range ns {
		ms = append(ms, store.Member{NodeInfo: store.NodeInfo{ID: nodeID(n)}, Epoch: int64(n)})
	}
	return ms
}

var genMembers = rapid.Custom(func(t *rapid.T) (ms []store.Member) {
	for range rapid.IntRange(0, 12).Draw(t, "nodes") {
		var id model.NodeID
		copy(id[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
		if !slices.ContainsFunc(ms, func(m store.Member) bool { return m.ID == id }) {
			ms = append(ms, store.Member{NodeInfo: store.NodeInfo{ID: id}})
		}
	}
	return ms
})

// Every node computes the same proposal. It depends neither on the order of the list of nodes nor
// on other facts about them.
func TestProposeIsStable(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ms := genMembers.Draw(t, "members")
		shards := rapid.IntRange(1, 300).Draw(t, "shards")
		want := cluster.Propose(shards, ms)
		other := rapid.Permutation(ms).Draw(t, "order")
		for i := range other {
			other[i].Epoch, other[i].Expires, other[i].Host = 7, 9, "x"
		}
		if got := cluster.Propose(shards, other); !slices.Equal(got, want) {
			t.Fatalf("another order gives another proposal")
		}

		for s, id := range want {
			if len(ms) == 0 != id.IsZero() {
				t.Fatalf("shard %d is proposed for %v of %d nodes", s, id, len(ms))
			}
			if len(ms) > 0 && !slices.ContainsFunc(ms, func(m store.Member) bool { return m.ID == id }) {
				t.Fatalf("shard %d is proposed for a stranger", s)
			}
		}
	})
}

// As few shards as possible move. When a node leaves, only its own shards move. When a node joins,
// only the shards that the node gets move.
func TestProposeMovesOnlyWhatItMust(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ms := genMembers.Filter(func(ms []store.Member) bool { return len(ms) >= 2 }).Draw(t, "members")
		const shards = 256
		all := cluster.Propose(shards, ms)
		gone := rapid.IntRange(0, len(ms)-1).Draw(t, "gone")
		less := cluster.Propose(shards, slices.Delete(slices.Clone(ms), gone, gone+1))
		for s := range shards {
			if all[s] != ms[gone].ID && less[s] != all[s] {
				t.Fatalf("shard %d moved from %s to %s when %s left", s, all[s], less[s], ms[gone].ID)
			}
			if all[s] == ms[gone].ID && less[s] == all[s] {
				t.Fatalf("shard %d stays with a node that left", s)
			}
		}
	})
}

// Shards are distributed about evenly, also among ids that differ in few bits, such as ids of nodes
// that start together.
func TestProposeIsBalanced(t *testing.T) {
	t.Parallel()
	for _, nodes := range []int{2, 3, 5, 10} {
		for _, shards := range []int{256, 1024, 4096} {
			for _, similar := range []bool{true, false} {
				var ms []store.Member
				for n := range nodes {
					id := nodeID(n + 1)
					if similar {
						id = model.NodeID{0: 1, 1: 0x93, 15: byte(n)}
					}
					ms = append(ms, store.Member{NodeInfo: store.NodeInfo{ID: id}})
				}

				count := map[model.NodeID]int{}
				for _, id := range cluster.Propose(shards, ms) {
					count[id]++
				}

				fair := float64(shards) / float64(nodes)
				for id, n := range count {
					if math.Abs(float64(n)-fair) > 4*math.Sqrt(fair) { // four standard deviations
						t.Errorf("%s has %d of %d shards among %d nodes, want about %.0f", id, n, shards, nodes, fair)
					}
				}

				if len(count) != nodes {
					t.Errorf("only %d of %d nodes have shards", len(count), nodes)
				}
			}
		}
	}
}

// The proposal is the same for all builds. Otherwise nodes of two versions would fight over shards.
func TestProposeNeverChanges(t *testing.T) {
	t.Parallel()
	proposed := cluster.Propose(16, members(1, 2, 3))
	var got []int
	for _, id := range proposed {
		got = append(got, int(id[15]))
	}
	want := []int{2, 2, 1, 1, 2, 1, 3, 3, 1, 1, 1, 2, 1, 1, 3, 1}
	if !slices.Equal(got, want) {
		t.Errorf("proposal = %v, want %v", got, want)
	}
}
