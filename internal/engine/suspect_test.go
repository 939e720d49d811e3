package engine_test

import (
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/notify"
	"github.com/perdure/perdure/internal/peerlink/lan"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/memory"
)

// A process dies. Another process of the same machine loses the connection to it, and takes over
// its shards immediately, although the next renewal of the lease is minutes away.
func TestDeathIsNoticedWhenTheConnectionBreaks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var dead atomic.Bool
		r := &ring{
			t: t, st: memory.New(memory.Options{}), hints: &notify.Local{}, lan: &lan.LAN{}, lease: time.Hour,
			gone: func(n store.NodeInfo) bool { return dead.Load() && n.LinkAddress == "node1" },
		}
		for range 2 {
			newAnswerer(r.join(0, nil).Engine)
		}
		victim := r.nodes[1]
		time.Sleep(20 * time.Minute)

		// The kernel closes the connections before it says that the process has ended.
		victim.cut.Store(true)
		r.lan.Bend(func(c net.Conn) net.Conn { _ = c.Close(); return c })
		r.lan.Break()
		time.AfterFunc(50*time.Millisecond, func() { dead.Store(true) })

		time.Sleep(time.Second)
		v, err := r.st.Members(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(v.Members) != 1 || slices.ContainsFunc(v.Owners, func(o store.ShardOwner) bool { return o.Node != v.Members[0].ID }) {
			t.Errorf("after a second there are %d nodes, and some shards belong to a dead one", len(v.Members))
		}
		for _, m := range r.nodes {
			m.stop()
			<-m.done
		}
	})
}
