package engine_test

import (
	"context"
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

// A server gave a run to another worker, because the first one had been silent for too long. Then
// the server died. The first worker comes back to the next server before the other one. The run
// continues on the other one, which got it later.
func TestReunionWithTwoHolders(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newServers(t)
		first := r.serve()
		silent, w := newFar(t, "silent", 24*time.Hour), newFar(t, "w", time.Minute)
		silent.connect(first.Engine)
		time.Sleep(time.Second)
		r.startKeys(first, "a")
		time.Sleep(time.Second)
		w.connect(first.Engine)
		time.Sleep(time.Second)
		over, cancel := context.WithCancel(t.Context())
		cancel()
		_ = silent.line.session.Leave(over) // as a server does after the grace period
		time.Sleep(time.Second)

		first.cut.Store(true)
		next := r.serve()
		r.ownAll(next)
		silent.connect(next.Engine)
		time.Sleep(time.Second)
		w.connect(next.Engine)
		back := time.Now()
		r.finish(next, "a")
		if d := time.Since(back); d > 2*time.Minute {
			t.Errorf("the execution ended after %s: the worker that got it earlier has it", d)
		}
		first.cut.Store(false)
		r.close()
	})
}
