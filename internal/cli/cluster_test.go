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

// Two nodes of different weight share the shards of a database. A drain moves all shards of one to
// the other and back, and the last one cannot be drained.
func TestClusterCommands(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	open := func(weight int) string {
		n, err := node.Open(t.Context(), node.Config{URL: url, Shards: 64, Weight: weight, AllowUnsafe: true})
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

	if n := settled(heavy); n < 36 || n > 60 { // 48 are three of four parts
		t.Errorf("the node with weight 300 owns %d of 64 shards, want about 48", n)
	}
	for _, n := range decode[[]nodeJSON](t, do("", 0, "cluster", "nodes", "-o", "json")) {
		if want := map[string]int{light: 100, heavy: 300}[n.Node]; n.Weight != want || n.State != "live" {
			t.Errorf("%+v, want weight %d", n, want)
		}
	}
	do("all 64 shards are where they should be", 0, "cluster", "rebalance", "--dry-run")

	do("drained node "+heavy, 0, "cluster", "drain", heavy[:len(heavy)-3])
	if n := settled(heavy); n != 0 {
		t.Errorf("the drained node owns %d shards", n)
	}
	for _, n := range decode[[]nodeJSON](t, do("", 0, "cluster", "nodes", "-o", "json")) {
		if n.Node == heavy && n.State != "drained" || n.Node == light && (n.State != "live" || n.Shards != 64) {
			t.Errorf("after the drain: %+v", n)
		}
	}
	do("no other node that is not drained", 4, "cluster", "drain", light)

	do("undrained node "+heavy, 0, "cluster", "undrain", heavy)
	if n := settled(heavy); n < 36 {
		t.Errorf("the node owns %d shards again", n)
	}
	do("asked to drain node "+light, 0, "cluster", "drain", light, "--no-wait")
	if n := settled(light); n != 0 {
		t.Errorf("the drained node owns %d shards", n)
	}
	do("there is no node", 3, "cluster", "drain", "node_00000000000000000000000000")
}
