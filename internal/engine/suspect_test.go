package engine_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/model"
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
		r.isolate(victim)
		time.AfterFunc(50*time.Millisecond, func() { dead.Store(true) })

		time.Sleep(time.Second)
		v, err := r.st.Members(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(v.Members) != 1 || slices.ContainsFunc(v.Owners, func(o store.ShardOwner) bool { return o.Node != v.Members[0].ID }) {
			t.Errorf("after a second there are %d nodes, want one that owns all shards; owners: %+v", len(v.Members), v.Owners)
		}
		r.close()
	})
}

// latePuts is a store in which requests arrive late.
type latePuts struct {
	store.Store
	may chan struct{} // closed when they may arrive
}

func (s latePuts) PutInbox(ctx context.Context, rows []store.InboxRow) error {
	<-s.may
	return s.Store.PutInbox(ctx, rows)
}

// A node stores requests for the shards of a dead process. They arrive in the store after the node
// itself has taken over these shards and has read their mail. The node still finds them at once,
// although its next renewal, which reports waiting mail, is minutes away.
func TestRequestsThatArriveAfterTheTakeover(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var dead atomic.Bool
		puts := latePuts{memory.New(memory.Options{}), make(chan struct{})}
		r := &ring{
			t: t, st: puts, hints: notify.NoHub{}, lan: &lan.LAN{}, lease: time.Hour,
			gone: func(n store.NodeInfo) bool { return dead.Load() && n.LinkAddress == "node1" },
		}
		for range 2 {
			w := &quick{answerer: &answerer{}, ended: map[string]time.Time{}}
			w.session = r.join(0, nil).Join(w, model.Offer{Tenant: model.DefaultTenant, Workflows: []string{"quick"}})
		}
		survivor, victim := r.nodes[0], r.nodes[1]
		// Without hints, nodes move shards only when they renew their leases.
		time.Sleep(2 * time.Hour)

		r.isolate(victim)
		var wg sync.WaitGroup
		for i := range 40 { // on the shards of both
			wg.Go(func() {
				m := start(fmt.Sprint(i))
				m.To.Type = "quick"
				if _, err := survivor.ExecuteToEnd(t.Context(), m); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(100 * time.Millisecond)
		dead.Store(true)
		time.Sleep(10 * time.Second)
		if n, _ := r.owned(survivor); n != r.st.Info().Shards {
			t.Fatalf("the node owns %d of %d shards", n, r.st.Info().Shards)
		}

		began := time.Now()
		close(puts.may)
		wg.Wait()
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("the node found its own requests after %s", took)
		}
		r.close()
	})
}

// isolate lets a node lose its store and its connections. Nodes can no longer connect.
func (r *ring) isolate(m *member) {
	m.cut.Store(true)
	r.lan.Bend(func(c net.Conn) net.Conn { _ = c.Close(); return c })
	r.lan.Break()
}
