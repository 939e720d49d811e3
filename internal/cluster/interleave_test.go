package cluster_test

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/cluster"
	"github.com/perdure/perdure/internal/store"
)

// TestNeverTwoOwners explores every interleaving of a small cluster: two nodes, one shard, a lease
// of three units of time. Calls of one node may be slow, and up to two of these things go wrong: a
// call fails without effect; a call takes effect but its answer is lost; a call takes effect after
// its caller has given up; the node dies; its clock falls behind by as much as the margin allows.
// The other node is prompt: its calls take no time and do not fail. At no moment may both nodes
// serve the shard. In short mode, only one thing goes wrong.
func TestNeverTwoOwners(t *testing.T) {
	t.Parallel()
	fates := 2
	if testing.Short() {
		fates = 1
	}
	for owner, name := range []string{"free shard", "shard of node 1", "shard of node 2"} {
		for slow := range 2 {
			t.Run(fmt.Sprintf("%s, node %d is slow", name, slow+1), func(t *testing.T) {
				t.Parallel()
				w := newSmall(owner)
				w.fates, w.nodes[1-slow].prompt = fates, true
				explore(t, w)
			})
		}
	}
}

func explore(t *testing.T, first *small) {
	seen := map[uint64]bool{first.print(): true}
	todo := []*small{first}
	var served [2]bool
	for len(todo) > 0 {
		w := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, next := range w.nextStates() {
			a, b := next.isServing(0), next.isServing(1)
			if a && b {
				t.Fatalf("both nodes serve the shard:\n%s", strings.Join(next.trace(), "\n"))
			}
			served[0], served[1] = served[0] || a, served[1] || b
			if k := next.print(); !seen[k] {
				seen[k] = true
				todo = append(todo, next)
			}
		}

		if len(seen) > 2_000_000 {
			t.Fatal("the model is not small")
		}
	}

	if !served[0] || !served[1] {
		t.Errorf("nodes that ever served: %v; the exploration shows nothing", served)
	}
	t.Logf("%d states", len(seen))
}

const (
	ttl    = 3
	margin = 1
)

// small is a state of the small cluster. Its store is a few variables, and behaves as package store
// promises.
type small struct {
	now   int
	nodes [2]smallNode
	owner int // the owner of the shard: 0 for none, otherwise node + 1
	fates int // how many more things may go wrong
	// until is when the exploration ends. The time is long enough for a node to lose its lease and
	// for the other node to take the shard.
	until int

	parent *small
	did    string
}

type smallNode struct {
	m          *cluster.Membership
	registered bool
	expires    int // when the lease ends, in store time
	behind     int // how far its own clock has fallen behind
	dead       bool
	prompt     bool // its calls take no time and do not fail

	// The state of each call: 0 for no call, 1 for sent, 2 for executed (the answer is on its way).
	renew, acquire, fence int
	view                  store.View
	renewErr, acquireErr  error
	acquired, fenced      bool
	freeing               int // 1: the lanes are freeing the shard; 2: the store call is in flight
	orphan                string
}

func newSmall(owner int) *small {
	w := &small{owner: owner, until: 5}
	for i := range w.nodes {
		n := &w.nodes[i]
		n.m = cluster.New(cluster.Config{
			Self: store.NodeInfo{ID: nodeID(i + 1), PID: i}, TTL: ttl * s, RenewEvery: 2 * s, Margin: margin * s,
		}, int64(i+1), 0)
		n.registered, n.expires = true, ttl
	}
	if owner > 0 {
		w.nodes[owner-1].m.ApplyAcquire(acquiredShards(0), nil)
	}
	return w
}

func (w *small) mono(i int) time.Duration { return time.Duration(w.now-w.nodes[i].behind) * s }

// isServing reports whether a node answers for the shard now.
func (w *small) isServing(i int) bool {
	n := &w.nodes[i]
	return !n.dead && n.m.IsServing(w.mono(i)) && n.m.HasShard(0) && !n.m.IsLeaving(0)
}

// print returns a hash that distinguishes states.
func (w *small) print() uint64 {
	b := append(make([]byte, 0, 128), byte(w.now), byte(w.owner), byte(w.fates))
	flag := func(f bool) {
		if f {
			b = append(b, 1)
		} else {
			b = append(b, 0)
		}
	}
	for i := range w.nodes {
		n := &w.nodes[i]
		b = append(b, byte(n.behind), byte(n.renew), byte(n.acquire), byte(n.fence), byte(n.freeing), byte(len(n.orphan)))
		for _, f := range [...]bool{
			n.registered, n.dead, n.renew == 2 && n.renewErr != nil, n.acquire == 2 && n.acquireErr != nil, n.acquire == 2 && n.acquired,
			n.fence == 2 && n.fenced,
		} {
			flag(f)
		}

		if n.registered {
			b = append(b, byte(n.expires))
		}
		if !n.dead {
			b = n.m.Fingerprint(b, w.mono(i))
		}

		if n.renew == 2 {
			for _, m := range n.view.Members {
				b = append(b, m.ID[15], byte(m.Expires.Sub(n.view.Now)/s))
			}
			b = append(b, byte(n.view.Now.Sub(at(0))/s))
			for _, o := range n.view.Owners {
				b = append(b, o.Node[15])
			}
		}
	}

	h := fnv.New64a()
	_, _ = h.Write(b)
	return h.Sum64()
}

func (w *small) trace() (steps []string) {
	for x := w; x.parent != nil; x = x.parent {
		steps = append(steps, fmt.Sprintf("%2d  %s", x.now, x.did))
	}
	slices.Reverse(steps)
	return steps
}

// then returns the state after a change.
func (w *small) then(did string, change func(c *small)) *small {
	c := *w
	for i := range c.nodes {
		c.nodes[i].m = w.nodes[i].m.Clone()
	}
	c.parent, c.did = w, did
	change(&c)
	return &c
}

// nextStates returns all states that can follow this one.
func (w *small) nextStates() (next []*small) {
	if w.now < w.until {
		next = append(next, w.then("time passes", func(c *small) { c.now++ }))
	}
	for i := range w.nodes {
		next = append(next, w.stepsOf(i)...)
	}
	return next
}

// promptStep returns the states after the next act of a prompt node. The act is a renewal and
// everything that follows from it, in one step.
func (w *small) promptStep(i int) (next []*small) {
	n := &w.nodes[i]
	if n.m.NextTick() > w.mono(i) {
		return nil
	}
	return []*small{w.then(fmt.Sprintf("node %d: renews", i+1), func(c *small) {
		n := &c.nodes[i]
		if n.m.Tick(c.mono(i)).Renew == nil {
			return
		}
		v, err := c.execRenew(i)
		a := n.m.ApplyRenewal(c.mono(i), v, err)
		if len(a.Fence) > 0 {
			n.m.ApplyFence(nodeID(2-i), c.execFence(1-i), nil)
		}

		if len(a.Acquire) > 0 {
			ok, err := c.execAcquire(i)
			n.m.ApplyAcquire(acquiredShards(0)[:btoi(ok)], err)
		}

		if len(a.GiveUp) > 0 && n.registered && c.owner == i+1 {
			c.owner = 0
			n.m.RemoveShards(shardIDs(0))
		}
	})}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (w *small) stepsOf(i int) (next []*small) {
	n := &w.nodes[i]
	if n.prompt {
		return w.promptStep(i)
	}
	add := func(did string, change func(c *small, n *smallNode)) {
		next = append(next, w.then(fmt.Sprintf("node %d: %s", i+1, did), func(c *small) { change(c, &c.nodes[i]) }))
	}

	wrong := func(did string, change func(c *small, n *smallNode)) {
		if w.fates > 0 {
			add(did, func(c *small, n *smallNode) { c.fates--; change(c, n) })
		}
	}

	if n.orphan != "" {
		add("an orphaned "+n.orphan+" takes effect", func(c *small, n *smallNode) {
			switch n.orphan {
			case "renewal":
				_, _ = c.execRenew(i) // the answer is lost
			case "acquire":
				_, _ = c.execAcquire(i)
			}
			n.orphan = ""
		})
	}

	if n.dead {
		return next
	}
	wrong("dies", func(_ *small, n *smallNode) {
		*n = smallNode{m: n.m, registered: n.registered, expires: n.expires, dead: true}
	})
	if n.behind < margin {
		wrong("its clock stands still for a moment", func(_ *small, n *smallNode) { n.behind++ })
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
		add("the renewal is executed", func(c *small, n *smallNode) { n.renew = 2; n.view, n.renewErr = c.execRenew(i) })
		if n.orphan == "" {
			wrong("the renewal times out", func(c *small, n *smallNode) {
				n.renew, n.orphan = 0, "renewal"
				n.m.ApplyRenewal(c.mono(i), store.View{}, errAway)
			})
		}
	case 2:
		add("the answer to the renewal arrives", func(c *small, n *smallNode) {
			n.renew = 0
			a := n.m.ApplyRenewal(c.mono(i), n.view, n.renewErr)
			if len(a.Acquire) > 0 {
				n.acquire = 1
			}
			if len(a.Fence) > 0 {
				n.fence = 1
			}
			if len(a.GiveUp) > 0 {
				n.freeing = 1
			}
		})
		wrong("the answer to the renewal is lost", func(c *small, n *smallNode) {
			n.renew = 0
			n.m.ApplyRenewal(c.mono(i), store.View{}, errAway)
		})
	}

	switch n.acquire {
	case 1:
		add("the acquire is executed", func(c *small, n *smallNode) { n.acquire = 2; n.acquired, n.acquireErr = c.execAcquire(i) })
		if n.orphan == "" {
			wrong("the acquire times out", func(_ *small, n *smallNode) { n.acquire, n.orphan = 0, "acquire"; n.m.ApplyAcquire(nil, errAway) })
		}
	case 2:
		add("the answer to the acquire arrives", func(_ *small, n *smallNode) {
			n.acquire = 0
			var ids []store.AcquiredShard
			if n.acquired {
				ids = acquiredShards(0)
			}
			n.m.ApplyAcquire(ids, n.acquireErr)
		})
		wrong("the answer to the acquire is lost", func(_ *small, n *smallNode) { n.acquire = 0; n.m.ApplyAcquire(nil, errAway) })
	}

	switch n.fence {
	case 1:
		add("the fence is executed", func(c *small, n *smallNode) { n.fence = 2; n.fenced = c.execFence(1 - i) })
		wrong("the fence fails", func(_ *small, n *smallNode) { n.fence = 0; n.m.ApplyFence(nodeID(2-i), false, errAway) })
	case 2:
		add("the answer to the fence arrives", func(_ *small, n *smallNode) { n.fence = 0; n.m.ApplyFence(nodeID(2-i), n.fenced, nil) })
		wrong("the answer to the fence is lost", func(_ *small, n *smallNode) { n.fence = 0; n.m.ApplyFence(nodeID(2-i), false, errAway) })
	}

	switch n.freeing {
	case 1:
		add("the last commit frees the shard", func(c *small, n *smallNode) {
			if n.registered && c.owner == i+1 { // the commits of a fenced node fail
				c.owner, n.freeing = 0, 2
			} else {
				n.freeing = 0
			}
		})
	case 2:
		add("hears that the shard is free", func(_ *small, n *smallNode) { n.freeing = 0; n.m.RemoveShards(shardIDs(0)) })
	}

	return next
}

// The calls that a node makes to the store.

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
				NodeInfo: store.NodeInfo{ID: nodeID(j + 1)}, Epoch: int64(j + 1), Expires: at(time.Duration(w.nodes[j].expires) * s), TTL: ttl * s,
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

func (w *small) execFence(j int) bool {
	n := &w.nodes[j]
	if n.registered && n.expires > w.now {
		return false
	}
	n.registered = false
	return true
}
