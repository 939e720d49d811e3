package feed_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/engine/feed"
	"github.com/perdure/perdure/internal/model"
)

// watchMany returns a hub that follows another node, and an inlet that has taken its first portion.
// Each tenant has a watcher, as long as the node takes further watchers. The watchers of the other
// tenants have left.
func watchMany(t testing.TB, tenants int) (*feed.Hub, *feed.Inlet) {
	t.Helper()
	begun := time.Now()
	h := feed.New(feed.Config{Shards: 2, Now: func() time.Duration { return time.Since(begun) }, Linger: time.Hour})
	for i := range tenants {
		w := mustWatch(t, h, fmt.Sprint("t", i))
		if i >= feed.DefaultWatchers-1 {
			w.Close()
		}
	}
	h.SetPeers([]model.NodeID{nodeOf(2)})
	inlets, _, _ := h.Following()
	d, _, _ := inlets[0].Next(func() {})
	mustTake(t, inlets[0], 1, feed.Piece{Kind: feed.PieceRestart, Version: d.Version, Shards: shards(0, 1)})
	return h, inlets[0]
}

func mustWatch(t testing.TB, h *feed.Hub, tenant string) *feed.Watcher {
	t.Helper()
	w, err := h.Watch(tenant, model.ChangeFilter{}, "")
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func mustTake(t testing.TB, in *feed.Inlet, number int64, p feed.Piece) {
	t.Helper()
	if err := in.Take(&feed.Portion{Number: number, Pieces: []feed.Piece{p}}); err != nil {
		t.Fatal(err)
	}
}

// scheduled is a piece with a change of a tenant.
func scheduled(tenant string) feed.Piece {
	return feed.Piece{Kind: feed.PieceChanges, Changes: []model.Change{{
		Class: model.ClassTask, Kind: model.ChangeScheduled, Address: model.Address{Tenant: tenant, Type: "w", Key: "k"},
	}}}
}

// A piece that concerns one tenant wakes only the watchers of that tenant, and so does the first
// watch of a tenant. Waking a watcher allocates memory, so the test counts that.
func TestOneTenantWakesNoOthers(t *testing.T) {
	const tenants, most = 1000, 100
	h, in := watchMany(t, tenants)
	number := int64(1)
	take := func(p feed.Piece) {
		number++
		mustTake(t, in, number, p)
	}
	for what, do := range map[string]func(){
		"a change":     func() { take(scheduled("t1")) },
		"lost changes": func() { take(feed.Piece{Kind: feed.PieceLost, Tenant: "t1"}) },
		"a first watch": func() {
			mustWatch(t, h, fmt.Sprint("new", number)).Close()
			d, _, _ := in.Next(func() {})
			take(feed.Piece{Kind: feed.PieceTenants, Version: d.Version})
		},
	} {
		if n := testing.AllocsPerRun(10, do); n > most {
			t.Errorf("%s of one of %d tenants: %.0f allocations, want at most %d", what, tenants, n, most)
		}
	}
}

// BenchmarkTake measures how long the hub is locked while it takes a portion of another node with
// one piece.
func BenchmarkTake(b *testing.B) {
	const tenants = 10_000
	piece := func(p feed.Piece) func(int64) feed.Piece { return func(int64) feed.Piece { return p } }
	for _, c := range []struct {
		name  string
		piece func(n int64) feed.Piece
	}{
		{"changes", func(n int64) feed.Piece { return scheduled(fmt.Sprint("t", n%tenants)) }},
		{"lost", piece(feed.Piece{Kind: feed.PieceLost, Tenant: "t1"})},
		{"claim", piece(feed.Piece{Kind: feed.PieceClaim, Shards: shards(0)})},
	} {
		b.Run(c.name, func(b *testing.B) {
			_, in := watchMany(b, tenants)
			for n := int64(2); b.Loop(); n++ {
				mustTake(b, in, n, c.piece(n))
			}
		})
	}
}
