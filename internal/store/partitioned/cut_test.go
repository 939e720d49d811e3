package partitioned_test

import (
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/pgproxy"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/storetest"
)

// cutScene is a scene whose member is behind a proxy, with a node b. Then a node a registers, and
// its connection is cut at the commit in the member. The server gets that commit when the test
// closes release.
//
// The transaction holds locks until then. So b registers first: a later registration would wait
// until the server gives up the transaction.
func cutScene(t *testing.T) (c *scene, a, b *storetest.Node, arrive func()) {
	t.Helper()
	d := newDatabases(t, []model.Group{{Name: "eu", Shards: 1}}, "eu")
	d.divide(t)
	target, err := url.Parse(d.member.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := pgproxy.New(t, target.Host)
	d.member.URL = proxy.URL(d.member.URL)
	d.home.Lease = 10 * time.Minute // the server ends an idle transaction after half of that
	home, member := d.parts(t)
	c = newScene(t, home, member)
	b = c.Join(2)
	if !c.isThere(b.ID) {
		t.Fatal("the node is not registered in the member")
	}

	release := make(chan struct{})
	trigger := proxy.Inject(pgproxy.Rule{Fault: pgproxy.Orphan, Until: release})
	a = c.Join(2)
	<-trigger.Hit()
	return c, a, b, func() {
		t.Helper()
		close(release)
		select {
		case <-trigger.Done():
		case <-time.After(time.Minute):
			t.Fatal("the registration has not arrived")
		}
		if !trigger.Reply().Committed() {
			t.Fatalf("the registration was not committed: %v", trigger.Reply())
		}
	}
}

// isThere reports whether a node is registered in the member.
func (c *scene) isThere(id model.NodeID) bool {
	c.Helper()
	v, err := c.member.Part.Members(c.Context())
	if err != nil {
		c.Fatal(err)
	}
	return slices.ContainsFunc(v.Members, func(m store.Member) bool { return m.ID == id })
}

// A registration whose connection was cut arrives after the node was fenced, and after another node
// has taken the shard. The node gets no shard, and the next Acquire removes it from the member.
func TestRegistrationThatArrivesAfterItsConnectionWasCut(t *testing.T) {
	t.Parallel()
	c, a, b, arrive := cutScene(t)
	a.Fence()
	c.eventually("the shard", func() bool {
		got, err := c.Store.Acquire(t.Context(), b.ID, b.Epoch, []model.ShardID{1})
		return err == nil && len(got) == 1
	})

	arrive()
	if !c.isThere(a.ID) {
		t.Fatal("the late registration is not there: the test proves nothing")
	}
	if got, err := c.Store.Acquire(t.Context(), a.ID, a.Epoch, []model.ShardID{1}); err == nil {
		t.Errorf("a fenced node has acquired %v", shardsOf(got))
	}
	if !c.mayWrite(b, 1) {
		t.Error("the owner cannot write")
	}
	c.eventually("the late registration to be removed", func() bool {
		b.Acquire(1)
		return !c.isThere(a.ID)
	})
	if c.mayWrite(a, 1) || !c.mayWrite(b, 1) {
		t.Error("the fenced node writes, or the owner does not")
	}
}

// A node that lives registers again after its connection was cut. The second registration waits in
// the database for the first one, so neither arrives after the node has taken a shard. A node
// that is fenced later stays fenced.
func TestRegistrationIsRepeatedAfterItsConnectionWasCut(t *testing.T) {
	t.Parallel()
	c, a, b, arrive := cutScene(t)
	acquire := func() []model.ShardID {
		a.Renew(time.Hour, 0, 1) // which tries to register the node, too
		got, err := c.Store.Acquire(t.Context(), a.ID, a.Epoch, []model.ShardID{0, 1})
		if err != nil {
			t.Fatal(err)
		}
		return shardsOf(got)
	}
	if got := acquire(); slices.Contains(got, 1) {
		t.Errorf("acquired %v while a registration is under way", got)
	}

	arrive()
	c.eventually("the shard of the member", func() bool { return slices.Contains(acquire(), 1) })
	if !c.mayWrite(a, 1) {
		t.Error("the owner cannot write")
	}
	a.Fence()
	c.eventually("the shard to move", func() bool {
		got, err := c.Store.Acquire(t.Context(), b.ID, b.Epoch, []model.ShardID{1})
		return err == nil && len(got) == 1
	})
	if c.mayWrite(a, 1) || c.isThere(a.ID) {
		t.Error("a fenced node is registered in the member")
	}
	if !c.mayWrite(b, 1) {
		t.Error("the new owner cannot write")
	}
}
