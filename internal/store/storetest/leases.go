package storetest

import (
	"errors"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

var leaseTests = []test{
	{name: "epochs strictly increase", run: testEpochs},
	{name: "members show who is there", run: testMembers},
	{name: "renew extends the lease", run: testRenew},
	{name: "an expired lease may be renewed until another node fences it", run: testRenewExpired},
	{name: "renew of a node that is not ours", run: testRenewFenced},
	{name: "a live lease is not fenced", run: testFenceLive},
	{name: "an expired lease is fenced", run: testFenceExpired},
	{name: "a node that is proven dead is fenced at once", run: testFenceProven},
	{name: "a node that has renewed is not fenced because of its last lease", run: testFenceRenewed},
	{name: "an abandoned lease is fenced before its end", run: testFenceAbandoned},
	{name: "register again replaces", run: testRegisterAgain},
	{name: "unregister frees", run: testUnregister},
	{name: "an order to drain is stored", run: testSetDrained},
	{name: "a sole node removes all others", run: testSole},
}

// brief is a lease that expires while the test runs.
const brief = 40 * time.Millisecond

// member returns a node as the store shows it. ok is false if the node does not exist.
func (x *suite) member(id model.NodeID) (m store.Member, now model.Time, ok bool) {
	x.Helper()
	v := try(x.Store.Members(x.Context())).or(x)
	i := slices.IndexFunc(v.Members, func(m store.Member) bool { return m.ID == id })
	if i < 0 {
		return m, v.Now, false
	}
	return v.Members[i], v.Now, true
}

// expire waits until a lease has expired by the store's clock.
func (x *suite) expire(n *Node) {
	x.Helper()
	m, now, ok := x.member(n.ID)
	if !ok {
		x.Fatalf("node %s is not there", n.ID)
	}
	if x.o.Advance != nil {
		x.o.Advance(x.Store, m.Expires.Sub(now)+time.Millisecond)
	}
	x.eventually("the lease to expire", func() bool {
		m, now, ok = x.member(n.ID)
		return !ok || now > m.Expires
	})
}

// eventually waits for a condition.
func (x *suite) eventually(what string, done func() bool) {
	x.Helper()
	const patience = 20 * time.Second
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); !done(); <-tick.C {
		if time.Now().After(end) {
			x.Fatalf("waited %s for %s", patience, what)
		}
	}
}

func testEpochs(x *suite) {
	last := int64(0)
	for range 5 {
		n := x.Join(2)
		if n.Epoch <= last {
			x.Fatalf("epoch %d after epoch %d", n.Epoch, last)
		}
		epoch, _, err := x.Store.Refence(x.Context(), n.Lanes[1].Ref)
		if err != nil || epoch <= n.Epoch {
			x.Fatalf("refence: epoch %d after %d, %v", epoch, n.Epoch, err)
		}
		last = epoch
		n.Fence()
	}

	n := x.Join(1)
	if n.Epoch <= last {
		x.Fatalf("epoch %d after epoch %d, when everybody was gone", n.Epoch, last)
	}
}

func testMembers(x *suite) {
	n := x.NodeID()
	info := store.NodeInfo{ID: n, Host: "h", BootID: "b", Namespace: "ns", PID: 1, PIDStart: 2, Version: "v"}
	if x.Store.Info().Shared {
		info.LinkAddress, info.LinkKey = "127.0.0.1:4711", "a1b2"
		info.Weight, info.Drained, info.Groups, info.Home = 250, true, []string{"default", "gpu"}, x.NodeID()
	}
	r := try(x.Store.Register(x.Context(), info, 1, time.Hour)).or(x)
	m, now, ok := x.member(n)
	if !ok {
		x.Fatal("a registered node is not there")
	}

	x.Want("info", info, m.NodeInfo)
	if m.Epoch != r.Epoch || m.Draining {
		x.Errorf("member %+v, want epoch %d and not draining", m, r.Epoch)
	}
	if left := m.Expires.Sub(r.Now); left < time.Hour-time.Minute || left > time.Hour+time.Minute || m.TTL != time.Hour {
		x.Errorf("the lease of an hour ends in %s and has the length %s", left, m.TTL)
	}
	if now < r.Now {
		x.Errorf("store time went from %s to %s", r.Now, now)
	}
	v := try(x.Store.Renew(x.Context(), store.RenewRequest{Node: n, Epoch: r.Epoch, TTL: time.Hour, Draining: true})).or(x)
	if len(v.Members) != 1 || !v.Members[0].Draining {
		x.Errorf("members after draining: %+v", v.Members)
	}
	x.Want("info in the view", info, v.Members[0].NodeInfo)
	v = try(x.Store.Renew(x.Context(), store.RenewRequest{Node: n, Epoch: r.Epoch, TTL: time.Hour})).or(x)
	if v.Members[0].Draining {
		x.Error("still draining")
	}
	other := x.Join(1)
	v = other.Renew(time.Hour)
	if len(v.Members) != 2 || len(v.Owners) != x.Store.Info().Shards {
		x.Errorf("%d members and %d owners, want 2 and one per shard", len(v.Members), len(v.Owners))
	}

	for i, o := range v.Owners {
		if o.Shard != model.ShardID(i) {
			x.Fatalf("owner %d is of shard %d", i, o.Shard)
		}
	}
}

func testRenew(x *suite) {
	n := x.JoinFor(1, time.Minute)
	before, _, _ := x.member(n.ID)
	v := n.Renew(time.Hour)
	after, _, _ := x.member(n.ID)
	if after.Expires <= before.Expires || after.Expires.Sub(v.Now) < time.Hour-time.Minute {
		x.Errorf("renewed at %s for an hour: expires at %s, before %s", v.Now, after.Expires, before.Expires)
	}
	if before.TTL != time.Minute || after.TTL != time.Hour {
		x.Errorf("a lease of a minute has the length %s, and %s after a renewal for an hour", before.TTL, after.TTL)
	}
	i := slices.IndexFunc(v.Members, func(m store.Member) bool { return m.ID == n.ID })
	if i < 0 || v.Members[i].Expires != after.Expires || v.Members[i].TTL != after.TTL {
		x.Errorf("the view does not show the renewed lease: %+v", v.Members)
	}

	// A renewed lease lasts ttl from now on, whatever the lease was before.
	short := x.JoinFor(1, brief)
	for range 5 {
		short.Renew(time.Hour)
		if ok, err := x.Store.FenceNode(x.Context(), store.FenceRequest{Node: short.ID, Epoch: short.Epoch}); ok || err != nil {
			x.Fatalf("a renewed node was fenced: %v, %v", ok, err)
		}
	}
}

func testRenewExpired(x *suite) {
	n, other := x.JoinFor(1, brief), x.Join(1)
	n.Acquire(3)
	x.expire(n)
	if _, _, ok := x.member(n.ID); !ok {
		x.Fatal("an expired node is gone although no node fenced it")
	}

	// Other nodes cannot take its shards, because no node has fenced it.
	if got := other.Acquire(3); len(got) != 0 {
		x.Errorf("acquired %v from a node that is not fenced", got)
	}
	n.Lanes[0].Write(func(*store.Batch) {}) // the fence is unchanged
	n.Renew(time.Hour)
	if ok, err := x.Store.FenceNode(x.Context(), store.FenceRequest{Node: n.ID, Epoch: n.Epoch}); ok || err != nil {
		x.Errorf("fenced after the renewal: %v, %v", ok, err)
	}
	n.Lanes[0].Write(func(*store.Batch) {})
}

func testRenewFenced(x *suite) {
	n := x.Join(1)
	for name, r := range map[string]store.RenewRequest{
		"older epoch":  {Node: n.ID, Epoch: n.Epoch - 1, TTL: time.Hour},
		"newer epoch":  {Node: n.ID, Epoch: n.Epoch + 1, TTL: time.Hour},
		"unknown node": {Node: x.NodeID(), Epoch: n.Epoch, TTL: time.Hour},
	} {
		if _, err := x.Store.Renew(x.Context(), r); !errors.Is(err, store.ErrFenced) {
			x.Errorf("%s: %v, want fenced", name, err)
		}
	}

	n.Renew(time.Hour)
	n.Fence()
	_, err := x.Store.Renew(x.Context(), store.RenewRequest{Node: n.ID, Epoch: n.Epoch, TTL: time.Hour})
	x.WantClass(err, store.Fenced)
	if _, _, ok := x.member(n.ID); ok {
		x.Error("a fenced node is back")
	}
}

func testFenceLive(x *suite) {
	n := x.Join(2)
	n.Acquire(3)
	for name, epoch := range map[string]int64{"its epoch": n.Epoch, "an older epoch": n.Epoch - 1, "a newer epoch": n.Epoch + 1} {
		if ok, err := x.Store.FenceNode(x.Context(), store.FenceRequest{Node: n.ID, Epoch: epoch}); ok || err != nil {
			x.Errorf("fencing a live node at %s: %v, %v", name, ok, err)
		}
	}

	// A proof of death applies to only one incarnation.
	for name, epoch := range map[string]int64{"an older epoch": n.Epoch - 1, "a newer epoch": n.Epoch + 1} {
		if ok, err := x.Store.FenceNode(x.Context(), store.FenceRequest{Node: n.ID, Epoch: epoch, Proven: true}); ok || err != nil {
			x.Errorf("fencing %s with a proof: %v, %v", name, ok, err)
		}
	}

	for _, l := range n.Lanes {
		l.Write(func(*store.Batch) {})
	}
	n.Renew(time.Hour)
	if got := x.Join(1).Acquire(3); len(got) != 0 {
		x.Errorf("acquired %v from a live node", got)
	}
}

func testFenceExpired(x *suite) {
	n, other := x.JoinFor(2, brief), x.Join(1)
	n.Acquire(3, 4)
	x.expire(n)

	for range 2 { // the second call changes nothing
		if ok, err := x.Store.FenceNode(x.Context(), store.FenceRequest{Node: n.ID, Epoch: n.Epoch}); !ok || err != nil {
			x.Fatalf("fencing an expired node: %v, %v", ok, err)
		}
	}

	for _, l := range n.Lanes {
		l.Refuse(l.Batch(), store.Fenced)
	}
	_, err := x.Store.Renew(x.Context(), store.RenewRequest{Node: n.ID, Epoch: n.Epoch, TTL: time.Hour})
	x.WantClass(err, store.Fenced)
	if got := other.Acquire(3, 4); len(got) != 2 {
		x.Errorf("acquired %v, want both shards of the fenced node", got)
	}
	other.Lanes[0].Write(func(*store.Batch) {})
}

func testFenceProven(x *suite) {
	n, other := x.Join(1), x.Join(1)
	n.Acquire(3)
	l, s := n.Lanes[0], x.Subject()
	l.Write(func(b *store.Batch) { b.Starts = []store.StartRow{s.StartRow()} })
	n.Fence()
	n.Fence()
	b := l.Batch()
	b.Events = []store.EventRow{s.Event(1)}
	l.Refuse(b, store.Fenced)
	if got := other.Acquire(3); len(got) != 1 {
		x.Errorf("acquired %v, want shard 3", got)
	}
	if e := x.events(s.RunKey); len(e) != 0 {
		x.Errorf("events of a fenced node: %v", e)
	}

	// FenceNode treats a node that never existed like a node that is gone.
	if ok, err := x.Store.FenceNode(x.Context(), store.FenceRequest{Node: x.NodeID(), Epoch: 1}); !ok || err != nil {
		x.Errorf("fencing an unknown node: %v, %v", ok, err)
	}
}

// A request to fence a node is late: the node has renewed since the caller saw its lease.
func testFenceRenewed(x *suite) {
	n := x.JoinFor(1, brief)
	seen, _, _ := x.member(n.ID)
	x.expire(n)
	n.Renew(brief)
	last, _, _ := x.member(n.ID)
	x.expire(n) // the next lease has expired too, but another end is enough to spare the node

	late := store.FenceRequest{Node: n.ID, Epoch: n.Epoch, Expires: seen.Expires}
	for _, abandoned := range []bool{false, true} {
		late.Abandoned = abandoned
		if ok, err := x.Store.FenceNode(x.Context(), late); ok || err != nil {
			x.Errorf("fencing a node that has renewed: %v, %v; abandoned: %v", ok, err, abandoned)
		}
	}
	n.Lanes[0].Write(func(*store.Batch) {})

	late.Expires, late.Abandoned = last.Expires, false
	if ok, err := x.Store.FenceNode(x.Context(), late); !ok || err != nil {
		x.Errorf("fencing a node with its last lease: %v, %v", ok, err)
	}
	n.Lanes[0].Refuse(n.Lanes[0].Batch(), store.Fenced)
}

func testFenceAbandoned(x *suite) {
	n := x.Join(1)
	seen, _, _ := x.member(n.ID)
	request := store.FenceRequest{Node: n.ID, Epoch: n.Epoch, Expires: seen.Expires, Abandoned: true}

	live, unseen, older := request, request, request
	live.Abandoned, unseen.Expires, older.Epoch = false, 0, n.Epoch-1
	for name, r := range map[string]store.FenceRequest{"a live lease": live, "a lease that was not seen": unseen, "an older epoch": older} {
		if ok, err := x.Store.FenceNode(x.Context(), r); ok || err != nil {
			x.Errorf("fencing %s: %v, %v", name, ok, err)
		}
	}

	if ok, err := x.Store.FenceNode(x.Context(), request); !ok || err != nil {
		x.Errorf("fencing an abandoned lease: %v, %v", ok, err)
	}
	n.Lanes[0].Refuse(n.Lanes[0].Batch(), store.Fenced)
}

func testRegisterAgain(x *suite) {
	n := x.Join(2)
	n.Acquire(3)
	n.Lanes[0].Write(func(*store.Batch) {})

	// The node registers again, as after a lost answer: it does not know its epoch.
	r := try(x.Store.Register(x.Context(), n.Info, 1, time.Hour)).or(x)
	if r.Epoch <= n.Epoch {
		x.Fatalf("epoch %d after epoch %d", r.Epoch, n.Epoch)
	}
	for _, l := range n.Lanes {
		l.Refuse(l.Batch(), store.Fenced)
	}
	_, err := x.Store.Renew(x.Context(), store.RenewRequest{Node: n.ID, Epoch: n.Epoch, TTL: time.Hour})
	x.WantClass(err, store.Fenced)
	again := &Node{f: n.f, ID: n.ID, Epoch: r.Epoch}
	lane := &Lane{f: n.f, Ref: store.LaneRef{Node: n.ID, Epoch: r.Epoch}}
	lane.Write(func(*store.Batch) {})
	again.Renew(time.Hour)
	if m := x.Contents().Members; len(m) != 1 {
		x.Errorf("members %v, want one", m)
	}
	if got := again.Acquire(3); len(got) != 1 {
		x.Errorf("acquired %v, want shard 3", got)
	}
}

func testUnregister(x *suite) {
	n, other := x.Join(1), x.Join(1)
	n.Acquire(3, 4, 5)
	other.Acquire(8)
	n.Lanes[0].Write(func(b *store.Batch) { b.Free = []model.ShardID{4} })
	if err := x.Store.Unregister(x.Context(), n.ID, n.Epoch-1); err != nil {
		x.WantClass(err, store.Fenced)
	}
	n.Renew(time.Hour) // an older epoch belongs to another incarnation
	if err := x.Store.Unregister(x.Context(), n.ID, n.Epoch); err != nil {
		x.Fatalf("unregister: %v", err)
	}

	x.Want("members", []model.NodeID{other.ID}, x.Contents().Members)
	x.Want("owners", []store.ShardOwner{{Shard: 8, Node: other.ID, Epoch: other.Epoch}}, x.Contents().Owners)
	n.Lanes[0].Refuse(n.Lanes[0].Batch(), store.Fenced)
	_, err := x.Store.Renew(x.Context(), store.RenewRequest{Node: n.ID, Epoch: n.Epoch, TTL: time.Hour})
	x.WantClass(err, store.Fenced)
	if got := other.Acquire(3, 4, 5); len(got) != 3 {
		x.Errorf("acquired %v, want all three", got)
	}

	// A second call takes nothing from the next owner.
	if err := x.Store.Unregister(x.Context(), n.ID, n.Epoch); err != nil {
		x.WantClass(err, store.Fenced)
	}
	if got := x.Contents().Owners; len(got) != 4 {
		x.Errorf("owners %v, want four shards of the other node", got)
	}
	if ok, err := x.Store.FenceNode(x.Context(), store.FenceRequest{Node: n.ID, Epoch: n.Epoch}); !ok || err != nil {
		x.Errorf("fencing a node that left: %v, %v", ok, err)
	}
}

func testSetDrained(x *suite) {
	n, other := x.Join(1), x.Join(1)
	found, err := x.Store.SetDrained(x.Context(), n.ID, true)
	if store.ClassOf(err) == store.Refused && !x.Store.Info().Shared {
		return // only one process can open the store
	}
	if err != nil || !found {
		x.Fatalf("drain: found %v, %v", found, err)
	}

	// All views show the order, and renewals of the node do not change it.
	for range 2 {
		v := n.Renew(time.Hour)
		for _, m := range v.Members {
			if m.Drained != (m.ID == n.ID) || m.Draining {
				x.Errorf("member %s: drained %v, draining %v", m.ID, m.Drained, m.Draining)
			}
		}
	}
	if m, _, _ := x.member(n.ID); !m.Drained {
		x.Error("members do not show the order")
	}

	// The order may be repeated and withdrawn.
	for _, drained := range []bool{true, false, false} {
		if found, err := x.Store.SetDrained(x.Context(), n.ID, drained); err != nil || !found {
			x.Errorf("drained %v: found %v, %v", drained, found, err)
		}
		if m, _, _ := x.member(n.ID); m.Drained != drained {
			x.Errorf("drained is %v, want %v", m.Drained, drained)
		}
	}

	// SetDrained finds no node that is gone. An order for such a node does not apply to a later
	// node with the same id.
	if _, err := x.Store.SetDrained(x.Context(), other.ID, true); err != nil {
		x.Fatalf("drain: %v", err)
	}
	other.Fence()
	if found, err := x.Store.SetDrained(x.Context(), other.ID, true); err != nil || found {
		x.Errorf("a node that is gone: found %v, %v", found, err)
	}
	try(x.Store.Register(x.Context(), other.Info, 1, time.Hour)).or(x)
	if m, _, _ := x.member(other.ID); m.Drained {
		x.Error("a new registration is drained")
	}
}

// A process that has the store to itself does not wait for the leases of earlier processes.
func testSole(x *suite) {
	dead, alive := x.JoinFor(2, 100*365*24*time.Hour), x.Join(1)
	dead.Acquire(3, 4)
	alive.Acquire(5)
	info := store.NodeInfo{ID: x.NodeID(), Host: "h", Sole: true}
	r, err := x.Store.Register(x.Context(), info, 1, time.Hour)
	if x.Store.Info().Shared {
		x.WantClass(err, store.Refused)
		dead.Renew(time.Hour)
		alive.Renew(time.Hour)
		return
	}
	if err != nil {
		x.Fatalf("register: %v", err)
	}
	info.Sole = false
	sole := &Node{f: x.Fixture, Info: info, ID: info.ID, Epoch: r.Epoch}
	v := sole.Renew(time.Hour)
	if len(v.Members) != 1 {
		x.Fatalf("members %+v, want the sole node", v.Members)
	}
	x.Want("info", info, v.Members[0].NodeInfo)

	// Further commits of the others fail, and all shards are free.
	for _, l := range append(dead.Lanes, alive.Lanes...) {
		l.Refuse(l.Batch(), store.Fenced)
	}
	for _, n := range []*Node{dead, alive} {
		_, err := x.Store.Renew(x.Context(), store.RenewRequest{Node: n.ID, Epoch: n.Epoch, TTL: time.Hour})
		x.WantClass(err, store.Fenced)
	}
	if got := sole.Acquire(3, 4, 5, 6); len(got) != 4 {
		x.Errorf("acquired %v, want all four", got)
	}
	lane := &Lane{f: x.Fixture, Ref: store.LaneRef{Node: sole.ID, Epoch: r.Epoch}}
	lane.Write(func(*store.Batch) {})

	// The same node registers again, as it does if the answer was lost.
	info.Sole = true
	again := try(x.Store.Register(x.Context(), info, 1, time.Hour)).or(x)
	if again.Epoch <= r.Epoch {
		x.Errorf("epoch %d after epoch %d", again.Epoch, r.Epoch)
	}
	lane.Refuse(lane.Batch(), store.Fenced)
	if m := x.Contents().Members; len(m) != 1 {
		x.Errorf("members %v, want one", m)
	}
}
