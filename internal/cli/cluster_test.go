package cli_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/node"
	"github.com/perdure/perdure/internal/pgtest"
)

type nodeJSON struct {
	Node, State    string
	Shards, Weight int
}

type shardJSON struct {
	Shard         int
	Group         string
	Owner, Target string
	Moves         bool
}

func decode[T any](t *testing.T, out string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	return v
}

// Two nodes of different weight share the shards of a database. A drain moves all shards of one
// node to the other, and an undrain moves them back. The last node that is not drained cannot be
// drained.
func TestClusterCommands(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	open := func(weight int) string {
		n, err := node.Open(t.Context(), node.Config{URL: url, Shards: 128, Weight: weight, AllowUnsafe: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = n.Close() })
		nodes, err := n.Admin(model.DefaultTenant).Nodes(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for i := range nodes {
			if nodes[i].Self {
				return nodes[i].ID.String()
			}
		}
		t.Fatal("the node is not there")
		return ""
	}
	light, heavy := open(100), open(300)

	do := on(t, url)
	// settled waits until every shard is where it should be, and counts the shards of a node.
	settled := func(of string) int {
		t.Helper()
		for range time.Tick(50 * time.Millisecond) {
			owned, moves := 0, 0
			for _, s := range decode[[]shardJSON](t, do("", 0, "cluster", "shards", "-o", "json")) {
				if s.Owner == of {
					owned++
				}
				if s.Moves || s.Owner == "" {
					moves++
				}
			}
			if moves == 0 {
				return owned
			}
			if t.Context().Err() != nil {
				break
			}
		}
		return -1
	}

	// Ids of nodes are random, and so is the exact share of a node. The share of three quarters is
	// about 96 shards.
	if n := settled(heavy); n <= 64 || n == 128 {
		t.Errorf("the node with weight 300 owns %d of 128 shards, want about 96", n)
	}
	for _, n := range decode[[]nodeJSON](t, do("", 0, "cluster", "nodes", "-o", "json")) {
		if want := map[string]int{light: 100, heavy: 300}[n.Node]; n.Weight != want || n.State != "live" {
			t.Errorf("%+v, want weight %d", n, want)
		}
	}
	do("all 128 shards are where they should be", 0, "cluster", "rebalance", "--dry-run")

	do("drained node "+heavy, 0, "cluster", "drain", heavy[:len(heavy)-3])
	if n := settled(heavy); n != 0 {
		t.Errorf("the drained node owns %d shards", n)
	}
	for _, n := range decode[[]nodeJSON](t, do("", 0, "cluster", "nodes", "-o", "json")) {
		if n.Node == heavy && n.State != "drained" || n.Node == light && (n.State != "live" || n.Shards != 128) {
			t.Errorf("after the drain: %+v", n)
		}
	}
	do("no other node that is not drained", 4, "cluster", "drain", light)

	do("undrained node "+heavy, 0, "cluster", "undrain", heavy)
	if n := settled(heavy); n <= 64 {
		t.Errorf("the node owns %d shards again", n)
	}
	do("asked to drain node "+light, 0, "cluster", "drain", light, "--no-wait")
	if n := settled(light); n != 0 {
		t.Errorf("the drained node owns %d shards", n)
	}
	do("there is no node", 3, "cluster", "drain", "node_00000000000000000000000000")
}

type groupJSON struct {
	Group         string
	Shards, Owned int
	Nodes         []string
}

// The commands show which shard groups a database has and which nodes serve them. They name a group
// that no node serves.
func TestClusterGroups(t *testing.T) {
	t.Parallel()
	// The command migrates only on a server that keeps what it acknowledges.
	server := pgtest.Start(t, pgtest.Options{Fsync: true, Settings: map[string]string{"synchronous_commit": "on"}})
	url := server.NewDatabase(t)
	do := on(t, url)
	do("", 0, "migrate", "--shards", "8")
	do("12 shards and the shard groups gpu=4", 0, "migrate", "--groups", "gpu=4")
	do("up to date", 0, "migrate", "--groups", "gpu=4")
	do("has 4 shards, which cannot change: 5 are wanted", 4, "migrate", "--groups", "gpu=5")
	do("not a shard group of the form name=shards", 2, "migrate", "--groups", "gpu")

	open := func(groups ...string) *node.Node {
		n, err := node.Open(t.Context(), node.Config{URL: url, Groups: groups})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = n.Close() })
		return n
	}
	open()
	groups := func() (of [2]groupJSON) {
		copy(of[:], decode[[]groupJSON](t, do("", 0, "cluster", "groups", "-o", "json")))
		return of
	}
	// owned waits until the two groups have this many shards with an owner.
	owned := func(first, second int) {
		t.Helper()
		for range time.Tick(50 * time.Millisecond) {
			if g := groups(); g[0].Owned == first && g[1].Owned == second || t.Context().Err() != nil {
				break
			}
		}
	}
	owned(8, 0)
	if g := groups(); g[0].Group != "default" || g[0].Shards != 8 || len(g[0].Nodes) != 1 || g[1].Group != "gpu" || g[1].Shards != 4 || len(g[1].Nodes) != 0 {
		t.Errorf("groups %+v, want that a node serves the first and no node the second", g)
	}
	for _, command := range [][]string{{"cluster", "shards"}, {"cluster", "rebalance", "--dry-run"}} {
		do("no live node serves the shard group gpu; its 4 shards have no owner", 0, command...)
	}
	do("no live node serves the shard group gpu; what belongs to its 4 shards waits", 9, "doctor")
	do("uses the store; its lease", 4, "migrate", "--groups", "eu=1")

	open("gpu", "default")
	owned(8, 4)
	do("all 12 shards are where they should be", 0, "cluster", "rebalance", "--dry-run")
	do("live nodes serve all 2 shard groups: default, gpu", 0, "doctor")
	do("gpu, default", 0, "cluster", "nodes")
	for _, s := range decode[[]shardJSON](t, do("", 0, "cluster", "shards", "-o", "json")) {
		if want := map[bool]string{true: "default", false: "gpu"}[s.Shard < 8]; s.Group != want {
			t.Errorf("shard %d is of group %q, want %q", s.Shard, s.Group, want)
		}
	}
}
