package engine_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/notify"
	"github.com/perdure/perdure/internal/peerlink/lan"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/memory"
)

// fence ends the incarnation of a node, and waits until the node has registered again. The node
// learns from a commit that it is fenced, so it registers before other nodes take its shards.
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
	go func() { _, _ = m.Send(r.t.Context(), startOf("none", "commit")) }()
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

// A server loses its lease while one of its own workers runs the body of a step, and registers
// again. Another worker has the code too, but the run goes back to the worker that runs the body.
func TestServerWithARunningBodyLosesItsLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newServers(t)
		server := r.serve()
		w := newFar(t, "w", time.Minute)
		w.connect(server.Engine)
		time.Sleep(time.Second)
		r.ownAll(server)
		keys := r.keysOf(server, 20)
		r.startKeys(server, keys...)
		time.Sleep(time.Second)
		other := newFar(t, "other", time.Second)
		other.connect(server.Engine)
		time.Sleep(time.Second)

		r.fence(server)
		r.finish(server, keys...)
		if w.bodies() != len(keys) || other.bodies() != 0 {
			t.Errorf("%d bodies began on the worker that held the runs, and %d on the other one", w.bodies(), other.bodies())
		}
		if lost := w.lost.Load(); int(lost) != len(keys) {
			t.Errorf("the worker was told of %d runs that they are lost", lost)
		}
		r.close()
	})
}

// A node whose runs are on workers of other nodes loses its lease, and registers again. It asks
// these nodes before it hands over the runs, so no body begins a second time.
func TestOwnerOfRunningBodiesLosesItsLease(t *testing.T) {
	t.Parallel()
	for _, linked := range []bool{true, false} {
		t.Run(fmt.Sprint("linked ", linked), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := &ring{t: t, st: memory.New(memory.Options{}), hints: &notify.Local{}}
				if linked {
					r.lan = &lan.LAN{}
				}
				owner := r.join(0, nil)
				newCoder(t, owner.Engine, "flow0", 0, time.Second)
				var coders []*coder
				for range 2 {
					coders = append(coders, newCoder(t, r.join(0, nil).Engine, "flow1", 0, time.Minute))
				}
				for _, m := range r.nodes[1:] { // the owner keeps all shards
					if ok, err := r.st.SetDrained(t.Context(), m.Node(), true); !ok || err != nil {
						t.Fatal(ok, err)
					}
				}
				r.ownAll(owner)
				const keys = 30
				for i := range keys {
					if _, err := owner.Send(t.Context(), startOf("flow1", fmt.Sprint("k", i))); err != nil {
						t.Error(err)
					}
				}
				time.Sleep(time.Second)

				r.fence(owner)
				for i := range keys {
					r.awaitRun(r.nodes[1].Engine, startOf("flow1", fmt.Sprint("k", i)).To)
				}
				begun := map[string]int{}
				for _, c := range coders {
					for key, n := range c.begun {
						begun[key] += n
					}
				}
				for key, n := range begun {
					if n != 1 {
						t.Errorf("the body of %s began %d times", key, n)
					}
				}
				r.close()
			})
		})
	}
}

// awaitRun waits until an execution has completed.
func (r *ring) awaitRun(e *engine.Engine, a model.Address) {
	for {
		res, err := e.Await(r.t.Context(), a, model.RunID{})
		if err == nil && res.Outcome.Status == model.Completed {
			return
		}
		time.Sleep(time.Second)
	}
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
