package engine_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/cluster"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// owned returns how many shards a node owns according to the store, and the row of the node.
func (r *ring) owned(m *member) (shards int, row store.Member) {
	r.t.Helper()
	v, err := r.st.Members(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	for _, o := range v.Owners {
		if o.Node == m.Node() {
			shards++
		}
	}
	for _, n := range v.Members {
		if n.ID == m.Node() {
			row = n
		}
	}
	return shards, row
}

func (r *ring) setDrained(m *member, drained bool) {
	r.t.Helper()
	if found, err := r.st.SetDrained(r.t.Context(), m.Node(), drained); err != nil || !found {
		r.t.Fatalf("drained %v: found %v, %v", drained, found, err)
	}
	m.Rebalance()
}

// flow submits tasks at the given nodes in turn until stop is closed, and reports how many tasks it
// has submitted.
func (r *ring) flow(nodes []*member, stop <-chan struct{}) <-chan int {
	sent := make(chan int, 1)
	go func() {
		n := 0
		for ; ; n++ {
			select {
			case <-stop:
				sent <- n
				return
			case <-time.After(10 * time.Millisecond):
			}
			if _, err := nodes[n%len(nodes)].Send(r.t.Context(), submit(fmt.Sprint(n), model.TaskSpec{})); err != nil {
				r.t.Errorf("task %d: %v", n, err)
			}
		}
	}()
	return sent
}

// awaitNode waits for at most 30 seconds, until the given function accepts what the store says
// about the node.
func (r *ring) awaitNode(m *member, what string, is func(owned int, row store.Member) bool) {
	r.t.Helper()
	owned, row := r.owned(m)
	for range 30 {
		if is(owned, row) {
			return
		}
		time.Sleep(time.Second)
		owned, row = r.owned(m)
	}
	r.t.Errorf("the node has not %s: it owns %d shards, its row is %+v", what, owned, row)
}

// A drained node hands over its shards while callers use both nodes, and no call fails. Its worker,
// which is the only one, continues to execute the tasks, each once, because the node lends its
// slots to the new owner.
func TestDrainedNodeHandsOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, c := newRing(t), newCounter()
		defer r.close()
		a := r.join(100, c.worker(20*time.Millisecond))
		b := r.join(0, c.worker(0))
		settle()

		stop := make(chan struct{})
		sent := r.flow([]*member{a, b}, stop)
		time.Sleep(time.Second)
		r.setDrained(a, true)
		r.awaitNode(a, "handed its shards over", func(owned int, row store.Member) bool {
			return owned == 0 && row.Drained && !row.Draining
		})

		r.setDrained(a, false)
		r.awaitNode(a, "got shards again after the drain was withdrawn", func(owned int, row store.Member) bool {
			return owned > 0 && !row.Drained
		})
		close(stop)
		tasks := <-sent
		r.awaitAll(b, tasks)
		c.onceEach(t, tasks)
	})
}

// A drained node that loses its lease is still drained in its next incarnation.
func TestDrainOutlivesTheLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, c := newRing(t), newCounter()
		defer r.close()
		a, _ := r.join(10, c.worker(0)), r.join(10, c.worker(0))
		settle()
		r.setDrained(a, true)
		settle()
		before := a.Node()
		a.cut.Store(true)
		time.Sleep(30 * time.Second)
		a.cut.Store(false)
		time.Sleep(30 * time.Second)

		n, row := r.owned(a)
		if a.Node() == before || row.ID.IsZero() {
			t.Fatal("the node has not registered again")
		}
		if n != 0 || !row.Drained {
			t.Errorf("it owns %d shards, drained is %v", n, row.Drained)
		}
	})
}

// Nodes register with their weight.
func TestNodesHaveTheDefaultWeight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRing(t)
		defer r.close()
		m := r.join(1, newCounter().worker(0))
		if _, row := r.owned(m); row.Weight != cluster.DefaultWeight {
			t.Errorf("weight %d", row.Weight)
		}
	})
}
