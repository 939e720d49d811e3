package cluster_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/cluster"
	"github.com/perdure/perdure/internal/store"
)

// TestNeverTwoOwners explores every interleaving of a small cluster: two nodes, one shard, a lease of four units of time. Every
// call to the store may be slow, may fail without effect, may take effect and have its answer lost, or may take effect after its caller has
// given up on it; nodes may die; the clock of a node may fall behind by as much as the margin allows. At no moment may both nodes
// serve the shard.
func TestNeverTwoOwners(t *testing.T) {
	t.Parallel()
	for _, v := range []struct {
		name  string
		begin func() *small
		until int
	}{
		{"free shard", func() *small { return newSmall(0) }, 9},
		{"shard on the wrong node", func() *small { return newSmall(1 + loser) }, 9},
		{"shard on the right node", func() *small { return newSmall(2 - loser) }, 9},
	} {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			first := v.begin()
			seen := map[string]bool{first.print(): true}
			todo := []*small{first}
			both, moved := 0, false
			for len(todo) > 0 {
				w := todo[len(todo)-1]
				todo = todo[:len(todo)-1]
				for _, next := range w.steps(v.until) {
					if next.serving(0) && next.serving(1) {
						t.Fatalf("both nodes serve the shard:\n%s", strings.Join(next.trace(), "\n"))
					}
					if next.serving(0) {
						both |= 1
					}
					if next.serving(1) {
						both |= 2
					}
					moved = moved || next.moved
					if k := next.print(); !seen[k] {
						seen[k] = true
						todo = append(todo, next)
					}
				}
				if len(seen) > 3_000_000 {
					t.Fatal("the model is not small")
				}
			}
			if both != 3 {
				t.Errorf("only the nodes %b ever served: the exploration shows nothing", both)
			}
			t.Logf("%d states", len(seen))
		})
	}
}

const (
	ttl    = 4
	margin = 1
)

// loser is the node (0 or 1) that the shard is not proposed for.
var loser = func() int {
	if cluster.Propose(1, members(1, 2))[0] == nodeID(1) {
		return 1
	}
	return 0
}()

// small is a state of the small cluster. The store is a few variables; it does what the port promises.
type small struct {
	now   int
	nodes [2]smallNode
	owner int // of the shard: 0 free, else node + 1
	moved bool

	parent *small
	did    string
}

type smallNode struct {
	m          *cluster.Membership
	registered bool
	expires    int // store time
	behind     int // how far its own clock has fallen behind
	dead       bool

	// Calls: 0 none, 1 sent, 2 executed (the answer is on its way).
	renew, acquire, fence int
	view                  store.View
	err                   error // of the executed renewal or acquire
	acquired              bool
	fenced                bool
	proven                bool
	freeing               int // 1 the lanes are told, 2 the store is
	orphan                string
}

func newSmall(owner int) *small {
	w := &small{owner: owner}
	for i := range w.nodes {
		n := &w.nodes[i]
		n.m = cluster.New(cluster.Config{
			Self: store.NodeInfo{ID: nodeID(i + 1), PID: i}, TTL: ttl * s, RenewEvery: 2 * s, Margin: margin * s,
		}, int64(i+1), 0)
		n.registered, n.expires = true, ttl
	}
	if owner > 0 {
		w.nodes[owner-1].m.Acquired(got(0), nil)
	}
	return w
}

func (w *small) mono(i int) time.Duration { return time.Duration(w.now-w.nodes[i].behind) * s }

// serving reports whether a node answers for the shard now.
func (w *small) serving(i int) bool {
	n := &w.nodes[i]
	return !n.dead && n.m.Serving(w.mono(i)) && n.m.Owns(0) && !n.m.Leaves(0)
}

func (w *small) print() string {
	var b strings.Builder
	fmt.Fprint(&b, w.now, w.owner)
	for i := range w.nodes {
		n := &w.nodes[i]
		fmt.Fprint(&b, "|", n.registered, n.expires, n.behind, n.dead, n.renew, n.acquire, n.fence, n.err != nil, n.acquired, n.fenced, n.proven, n.freeing, n.orphan, " ")
		if !n.dead {
			b.WriteString(n.m.Fingerprint(w.mono(i)))
		}
		if n.renew == 2 {
			fmt.Fprint(&b, n.view.Now, len(n.view.Members), n.view.Owners)
			for _, m := range n.view.Members {
				fmt.Fprint(&b, m.Expires, m.Draining)
			}
		}
	}
	return b.String()
}

func (w *small) trace() (steps []string) {
	for x := w; x.parent != nil; x = x.parent {
		steps = append(steps, fmt.Sprintf("%2d  %s", x.now, x.did))
	}
	slices.Reverse(steps)
	return steps
}

// then is the state after a change.
func (w *small) then(did string, change func(c *small)) *small {
	c := *w
	for i := range c.nodes {
		c.nodes[i].m = w.nodes[i].m.Clone()
	}
	c.parent, c.did = w, did
	change(&c)
	return &c
}

// steps are all states that can come next.
func (w *small) steps(until int) (next []*small) {
	if w.now < until {
		next = append(next, w.then("time passes", func(c *small) { c.now++ }))
	}
	for i := range w.nodes {
		next = append(next, w.stepsOf(i)...)
	}
	return next
}

func (w *small) stepsOf(i int) (next []*small) {
	n := &w.nodes[i]
	add := func(did string, change func(c *small, n *smallNode)) {
		next = append(next, w.then(fmt.Sprintf("node %d: %s", i+1, did), func(c *small) { change(c, &c.nodes[i]) }))
	}
	if n.orphan != "" {
		add("an orphaned "+n.orphan+" takes effect", func(c *small, n *smallNode) {
			switch n.orphan {
			case "renewal":
				c.execRenew(i)
			case "acquire":
				c.execAcquire(i)
			}
			n.orphan = ""
		})
	}
	if n.dead {
		return next
	}
	if w.now > 0 && w.now < 3 {
		add("dies", func(_ *small, n *smallNode) { n.dead = true })
	}
	if n.behind < margin {
		add("its clock stands still for a moment", func(_ *small, n *smallNode) { n.behind++ })
	}
	if n.renew == 0 && n.m.NextTick() <= w.mono(i) {
		add("sends a renewal", func(c *small, n *smallNode) {
			if a := n.m.Tick(c.mono(i)); a.Renew != nil {
				n.renew = 1
			}
		})
	}
	switch n.renew {
	case 1:
		add("the renewal is executed", func(c *small, n *smallNode) { n.renew = 2; n.view, n.err = c.execRenew(i) })
		if n.orphan == "" {
			add("the renewal times out", func(c *small, n *smallNode) {
				n.renew, n.orphan = 0, "renewal"
				n.m.Renewed(c.mono(i), store.View{}, errAway)
			})
		}
	case 2:
		add("the answer to the renewal arrives", func(c *small, n *smallNode) {
			n.renew = 0
			a := n.m.Renewed(c.mono(i), n.view, n.err)
			if len(a.Acquire) > 0 {
				n.acquire = 1
			}
			if len(a.Fence) > 0 {
				n.fence, n.proven = 1, a.Fence[0].Proven
			}
			if len(a.GiveUp) > 0 {
				n.freeing = 1
			}
		})
		add("the answer to the renewal is lost", func(c *small, n *smallNode) {
			n.renew = 0
			n.m.Renewed(c.mono(i), store.View{}, errAway)
		})
	}
	switch n.acquire {
	case 1:
		add("the acquire is executed", func(c *small, n *smallNode) { n.acquire = 2; n.acquired, n.err = c.execAcquire(i) })
		if n.orphan == "" {
			add("the acquire times out", func(_ *small, n *smallNode) { n.acquire, n.orphan = 0, "acquire"; n.m.Acquired(nil, errAway) })
		}
	case 2:
		add("the answer to the acquire arrives", func(c *small, n *smallNode) {
			n.acquire = 0
			var ids []store.AcquiredShard
			if n.acquired {
				ids = got(0)
			}
			n.m.Acquired(ids, n.err)
			c.moved = c.moved || n.acquired
		})
		add("the answer to the acquire is lost", func(_ *small, n *smallNode) { n.acquire = 0; n.m.Acquired(nil, errAway) })
	}
	switch n.fence {
	case 1:
		add("the fence is executed", func(c *small, n *smallNode) { n.fence = 2; n.fenced = c.execFence(1-i, n.proven) })
		add("the fence fails", func(_ *small, n *smallNode) { n.fence = 0; n.m.Fenced(nodeID(2-i), false, errAway) })
	case 2:
		add("the answer to the fence arrives", func(_ *small, n *smallNode) { n.fence = 0; n.m.Fenced(nodeID(2-i), n.fenced, nil) })
		add("the answer to the fence is lost", func(_ *small, n *smallNode) { n.fence = 0; n.m.Fenced(nodeID(2-i), false, errAway) })
	}
	switch n.freeing {
	case 1:
		add("the last commit frees the shard", func(c *small, n *smallNode) {
			if n.registered && c.owner == i+1 { // a fenced node commits nothing
				c.owner, n.freeing = 0, 2
			} else {
				n.freeing = 0
			}
		})
	case 2:
		add("hears that the shard is free", func(_ *small, n *smallNode) { n.freeing = 0; n.m.Freed(shardIDs(0)) })
	}
	return next
}

// What the store does.

func (w *small) execRenew(i int) (store.View, error) {
	n := &w.nodes[i]
	if !n.registered {
		return store.View{}, store.ErrFenced
	}
	n.expires = w.now + ttl
	v := store.View{Now: at(time.Duration(w.now) * s), Owners: []store.ShardOwner{{}}}
	for j := range w.nodes {
		if w.nodes[j].registered {
			v.Members = append(v.Members, store.Member{
				NodeInfo: store.NodeInfo{ID: nodeID(j + 1)}, Epoch: int64(j + 1), Expires: at(time.Duration(w.nodes[j].expires) * s),
			})
		}
	}
	if w.owner > 0 {
		v.Owners[0].Node, v.Owners[0].Epoch = nodeID(w.owner), int64(w.owner)
	}
	return v, nil
}

func (w *small) execAcquire(i int) (bool, error) {
	if !w.nodes[i].registered {
		return false, store.ErrFenced
	}
	if w.owner == 0 || w.owner == i+1 || !w.nodes[w.owner-1].registered {
		w.owner = i + 1
		return true, nil
	}
	return false, nil
}

func (w *small) execFence(j int, proven bool) bool {
	n := &w.nodes[j]
	if n.registered && !proven && n.expires > w.now {
		return false
	}
	n.registered = false
	return true
}
