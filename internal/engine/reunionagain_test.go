package engine_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/store"
)

// fence ends the incarnation of a node, and waits until the node has registered again.
func (r *ring) fence(m *member) {
	r.t.Helper()
	id := m.Node()
	v, err := r.st.Members(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	i := slices.IndexFunc(v.Members, func(n store.Member) bool { return n.ID == id })
	if ok, err := r.st.FenceNode(r.t.Context(), store.FenceRequest{Node: id, Epoch: v.Members[i].Epoch, Proven: true}); !ok || err != nil {
		r.t.Fatal(ok, err)
	}
	for deadline := time.Now().Add(time.Minute); m.Node() == id || m.Node().IsZero(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatal("the node does not register again")
		}
	}
}

// A server waits for the worker of a server that died, and loses its lease. When it has registered
// again and owns the shards again, it still waits for the worker.
func TestReunionOfAServerThatLosesItsLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newServers(t)
		first := r.serve()
		w, other := newFar(t, "w", 2*time.Minute), newFar(t, "other", time.Second)
		w.connect(first.Engine)
		time.Sleep(time.Second)
		r.startKeys(first, "a")
		time.Sleep(time.Second)
		first.cut.Store(true)
		next := r.serve()
		r.ownAll(next)
		other.connect(next.Engine)
		time.Sleep(time.Second)

		r.fence(next)
		r.ownAll(next)
		time.Sleep(reunionTime / 2)
		w.connect(next.Engine)
		r.finish(next, "a")
		if w.bodies() != 1 || other.bodies() != 0 {
			t.Errorf("the body began %d times on the worker that held it, and %d times on another one", w.bodies(), other.bodies())
		}
		first.cut.Store(false)
		r.close()
	})
}
