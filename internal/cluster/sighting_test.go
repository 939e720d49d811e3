package cluster_test

import (
	"testing"
	"time"

	"github.com/perdure/perdure/internal/cluster"
	"github.com/perdure/perdure/internal/store"
)

// other returns the view that node 1 has of node 2, whose lease of 10 s ends at expires.
func other(now, expires time.Duration) store.View { return leased(now, expires, 10*s) }

// leased returns the view that node 1 has of node 2, whose lease of length ttl ends at expires. The
// length is zero if node 2 is of an older release.
func leased(now, expires, ttl time.Duration) store.View {
	ms := members(1, 2)
	ms[0].Expires, ms[1].Expires, ms[1].TTL = at(now+10*s), at(expires), ttl

	return view(now, ms, 1, 2)
}

// nodeFor returns the membership of node 1, whose leases have the length ttl.
func nodeFor(ttl time.Duration) *cluster.Membership {
	return cluster.New(cluster.Config{Self: store.NodeInfo{ID: nodeID(1)}, TTL: ttl}, 1, 0)
}

// While the store's clock is in doubt, another node is fenced only when it has not renewed for a
// whole lease by this node's own clock.
func TestJumpFencesNobody(t *testing.T) {
	t.Parallel()
	m := newNode(1)
	if a := renew(t, m, 0, other(0, 9*s)); len(a.Fence) != 0 {
		t.Fatalf("fences %v", a.Fence)
	}
	const day = 24 * time.Hour
	m.Doubt(true, 0)
	if a := renew(t, m, 2*s, other(day+2*s, 9*s)); len(a.Fence) != 0 {
		t.Errorf("fences %v at the first renewal after a jump", a.Fence)
	}
	if a := renew(t, m, 4*s, other(day+4*s, day+13*s)); len(a.Fence) != 0 {
		t.Errorf("fences %v, which has renewed since the jump", a.Fence)
	}

	// The other node dies. Its lease ends by the store's clock, and it has not renewed for the
	// length of a lease.
	for mono := 6 * s; mono < 14*s; mono += 2 * s {
		if a := renew(t, m, mono, other(day+mono+9*s, day+13*s)); len(a.Fence) != 0 {
			t.Errorf("fences %v at %s", a.Fence, mono)
		}
	}

	if a := renew(t, m, 14*s, other(day+24*s, day+13*s)); len(a.Fence) != 1 || a.Fence[0].Proven {
		t.Errorf("fences %v, want node 2, whose lease is over by both clocks", a.Fence)
	}
}

// While the store's clock is not in doubt, a node fences another node as soon as the lease of that
// node has expired by the store's clock. That holds even for a node that has just started.
func TestExpiredLeaseIsFencedAtOnce(t *testing.T) {
	t.Parallel()
	m := newNode(1)
	if a := renew(t, m, 0, other(0, -s)); len(a.Fence) != 1 {
		t.Errorf("fences %v, want node 2", a.Fence)
	}
}

// The store's clock went back by a day, but the lease of a dead node does not last a day longer.
// That holds for a node that has seen the dead node renew, and for a node that has not. If the dead
// node is of an older release, the others estimate the length of its lease, and no lease is as long
// as a day.
func TestStepBackKeepsNoDeadNode(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for _, c := range []struct {
		name       string
		sees       bool
		ttl, waits time.Duration
	}{
		{"sees a renewal", true, 10 * s, 40 * s},
		{"sees none", false, 10 * s, 40 * s},
		{"sees a renewal of an older release", true, 0, 48 * s},
		{"sees none of an older release", false, 0, 40 * s},
	} {
		m := newNode(1)
		mono := time.Duration(0)
		if c.sees {
			renew(t, m, 0, leased(day, day+10*s, c.ttl))
			renew(t, m, 2*s, leased(day+2*s, day+12*s, c.ttl))
			mono = 4 * s
			m.Doubt(true, 0)
		}

		var fences []store.FenceRequest
		begun := mono
		for ; len(fences) == 0 && mono < 2*time.Hour; mono += 2 * s {
			fences = renew(t, m, mono, leased(mono, day+12*s, c.ttl)).Fence
		}
		waited := mono - 2*s - begun
		want := store.FenceRequest{Node: nodeID(2), Epoch: 2, Expires: at(day + 12*s), Abandoned: true}
		if len(fences) != 1 || fences[0] != want || waited > c.waits || waited < c.waits-4*s {
			t.Errorf("%s: fences %v after %s, want node 2 as proven dead after %s", c.name, fences, waited, c.waits)
		}
	}
}

// A lease that was written while the store's clock was behind has expired as soon as the clock is
// right again. The node of that lease is alive, so no other node fences it, whether that other node
// has seen the jump or not.
func TestJumpBackForAWhileFencesNobody(t *testing.T) {
	t.Parallel()
	for _, sees := range []bool{true, false} {
		m := newNode(1)
		renew(t, m, 0, other(0, 9*s))
		if sees {
			m.Doubt(true, 0)
			renew(t, m, 2*s, other(-58*s, -49*s))
			m.Doubt(false, 0)
		}
		for mono := 4 * s; mono < 12*s; mono += 2 * s {
			if a := renew(t, m, mono, other(mono, -49*s)); len(a.Fence) != 0 {
				t.Errorf("fences %v at %s, saw the jump: %v", a.Fence, mono, sees)
			}
		}
		if a := renew(t, m, 14*s, other(14*s, -49*s)); len(a.Fence) != 1 {
			t.Errorf("fences %v after a lease of silence, saw the jump: %v", a.Fence, sees)
		}
	}
}

// A jump that is too small to put the store's clock in doubt may be longer than the rest of a
// lease.
func TestSmallJumpFencesNobody(t *testing.T) {
	t.Parallel()
	m := newNode(1)
	renew(t, m, 0, other(0, 9*s))
	m.Doubt(false, 8*s)
	if a := renew(t, m, 2*s, other(10*s, 9*s)); len(a.Fence) != 0 {
		t.Errorf("fences %v after a jump of 8 s", a.Fence)
	}
}

// Nodes of one store may have leases of different lengths. A node with a long lease renews it
// rarely, and is alive.
func TestLongLeaseIsNotAbandoned(t *testing.T) {
	t.Parallel()
	const long, every = 300 * s, 60 * s
	for _, ttl := range []time.Duration{long, 0} {
		m := newNode(1) // its lease lasts 10 s
		for mono := time.Duration(0); mono < 20*time.Minute; mono += 2 * s {
			renewed := mono / every * every
			if a := renew(t, m, mono, leased(mono, renewed+long, ttl)); len(a.Fence) != 0 {
				t.Fatalf("fences %v at %s; it renewed its lease of %s, stated as %s, at %s", a.Fence, mono, long, ttl, renewed)
			}
		}
	}
}

// The same holds after the store's clock has jumped forward, so that every lease that was not
// renewed since then has expired.
func TestJumpFencesNoLongLease(t *testing.T) {
	t.Parallel()
	const day, long, every = 24 * time.Hour, 300 * s, 60 * s
	for _, ttl := range []time.Duration{long, 0} {
		m := newNode(1) // its lease lasts 10 s
		for mono := time.Duration(0); mono < 5*time.Minute; mono += 2 * s {
			jump, renewed := time.Duration(0), mono/every*every
			if mono >= 130*s {
				jump = day
				m.Doubt(true, day)
			}
			expires := renewed + long
			if renewed >= 130*s {
				expires += day
			}
			if a := renew(t, m, mono, leased(mono+jump, expires, ttl)); len(a.Fence) != 0 {
				t.Fatalf("fences %v at %s; it renewed its lease of %s, stated as %s, at %s", a.Fence, mono, long, ttl, renewed)
			}
		}
	}
}

// A node with a short lease renews it at 5 s and dies. A node with a longer lease fences the dead
// node when the short lease has ended. If the store's clock has jumped, that node waits for the
// length of the short lease after 12 s, when it first saw the lease.
func TestShortLeaseIsNotProlonged(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ jump, fenced time.Duration }{{0, 16 * s}, {24 * time.Hour, 22 * s}} {
		m := nodeFor(60 * s)
		renew(t, m, 0, other(0, 9*s))
		m.Doubt(c.jump != 0, c.jump)
		mono := 12 * s
		for ; mono < 2*time.Minute; mono += s {
			m.RenewNow()
			if a := renew(t, m, mono, other(c.jump+mono, c.jump+15*s)); len(a.Fence) != 0 {
				break
			}
		}
		if mono != c.fenced {
			t.Errorf("after a jump of %s it fences node 2 at %s, want %s", c.jump, mono, c.fenced)
		}
	}
}

// The store's clock goes back for a while. In that time a node with a long lease renews it, by the
// wrong clock, so its lease expires soon after the clock is right again. A node with a short lease
// does not fence that node, whose next renewal comes a minute later.
func TestJumpBackForAWhileFencesNoLongLease(t *testing.T) {
	t.Parallel()
	const long, back = 300 * s, 288 * s
	m := newNode(1) // its lease lasts 10 s
	renew(t, m, 0, leased(0, long, long))
	m.Doubt(true, -back)
	const expires = 2*s - back + long
	renew(t, m, 2*s, leased(2*s-back, expires, long))
	m.Doubt(false, 0)
	for mono := 4 * s; mono < 2*s+long; mono += 2 * s {
		if a := renew(t, m, mono, leased(mono, expires, long)); len(a.Fence) != 0 {
			t.Fatalf("fences %v at %s; it renewed its lease of %s at 2s", a.Fence, mono, long)
		}
	}

	if a := renew(t, m, 2*s+long, leased(2*s+long, expires, long)); len(a.Fence) != 1 {
		t.Errorf("fences %v after %s of silence, want node 2", a.Fence, long)
	}
}

// A jump may be small for the lease of this node, and longer than the margin of another node.
func TestSmallJumpIsLongForAShortLease(t *testing.T) {
	t.Parallel()
	m := nodeFor(60 * s)
	renew(t, m, 0, other(0, 9*s))
	m.Doubt(false, 2500*time.Millisecond)
	m.RenewNow()
	if a := renew(t, m, 7*s, other(9500*time.Millisecond, 9*s)); len(a.Fence) != 0 {
		t.Errorf("fences %v, which has its lease until 8 s by its own clock", a.Fence)
	}
	m.RenewNow()
	if a := renew(t, m, 10*s, other(12500*time.Millisecond, 9*s)); len(a.Fence) != 1 {
		t.Errorf("fences %v after a lease of silence, want node 2", a.Fence)
	}
}

// The store's clock jumps, and a node joins before the others have renewed. The new node has no
// earlier view to compare with, but the clock of its machine is right.
func TestJumpBeforeJoiningFencesNobody(t *testing.T) {
	t.Parallel()
	for _, lives := range []bool{true, false} {
		m := newNode(1)
		m.Distrust(time.Hour)
		for mono := time.Duration(0); mono < 10*s; mono += 2 * s {
			expires := -time.Hour
			if lives && mono > 0 {
				expires = mono + 8*s
			}
			if a := renew(t, m, mono, other(mono, expires)); len(a.Fence) != 0 {
				t.Errorf("fences %v at %s, lives: %v", a.Fence, mono, lives)
			}
		}

		if lives {
			continue
		}
		if a := renew(t, m, 10*s, other(10*s, -time.Hour)); len(a.Fence) != 1 {
			t.Errorf("fences %v after a lease of silence, want node 2", a.Fence)
		}
	}
}

// As in the previous test, but the lease of the other node is longer or shorter than the lease of
// the new node. The new node compares the jump with the length of the other node's lease.
func TestJumpBeforeJoiningAndOtherLengths(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ mine, ttl, jump, waits time.Duration }{
		{mine: 10 * s, ttl: 60 * s, jump: time.Hour, waits: 60 * s},
		{mine: 60 * s, ttl: 10 * s, jump: time.Hour, waits: 10 * s},
		{mine: 60 * s, ttl: 10 * s, jump: 20 * s, waits: 10 * s},
		{mine: 10 * s, ttl: 60 * s, jump: 20 * s},
	} {
		m := nodeFor(c.mine)
		m.Distrust(c.jump)
		mono := time.Duration(0)
		for ; mono < 2*time.Minute; mono += s {
			m.RenewNow()
			if a := renew(t, m, mono, leased(mono+c.jump, -s, c.ttl)); len(a.Fence) != 0 {
				break
			}
		}
		if mono != c.waits {
			t.Errorf("%+v: the other node is fenced after %s, want %s", c, mono, c.waits)
		}
	}
}

// A node that has seen the store's clock jump back is paused until the clock is right again. During
// the pause the other node, which is alive, has renewed its lease by the wrong clock.
func TestJumpThatEndsWhileANodeStandsStill(t *testing.T) {
	t.Parallel()
	m := newNode(1)
	renew(t, m, 0, other(0, 9*s))
	m.Doubt(true, 0)
	renew(t, m, 2*s, other(-58*s, -49*s))
	m.Doubt(false, 0)
	if a := renew(t, m, 14*s, other(14*s, -39*s)); len(a.Fence) != 0 {
		t.Errorf("fences %v, whose lease was written by the wrong clock", a.Fence)
	}

	for mono := 16 * s; mono < 24*s; mono += 2 * s {
		if a := renew(t, m, mono, other(mono, -39*s)); len(a.Fence) != 0 {
			t.Errorf("fences %v at %s", a.Fence, mono)
		}
	}

	if a := renew(t, m, 26*s, other(26*s, -39*s)); len(a.Fence) != 1 {
		t.Errorf("fences %v after a lease of silence", a.Fence)
	}
}

// As in the previous test, but the clock was behind by less than a lease. The lease that the other
// node has written by that clock has not expired when the clock is right again, but it ends five
// seconds too early.
func TestSmallJumpThatEndsWhileANodeStandsStill(t *testing.T) {
	t.Parallel()
	m := newNode(1)
	renew(t, m, 0, other(0, 9*s))
	m.Doubt(true, 0)
	renew(t, m, 2*s, other(-3*s, 7*s))
	m.Doubt(false, 0)
	for mono := 11 * s; mono < 21*s; mono += 2 * s {
		if a := renew(t, m, mono, other(mono, 15*s)); len(a.Fence) != 0 {
			t.Errorf("at %s it fences %v, which has its lease until 20 s by its own clock", mono, a.Fence)
		}
	}
	if a := renew(t, m, 21*s, other(21*s, 15*s)); len(a.Fence) != 1 {
		t.Errorf("fences %v after a lease of silence", a.Fence)
	}
}

// A node is paused for longer than a lease. In that time the store's clock goes back by less than a
// lease, another node renews, and the clock jumps forward again. The lease that the paused node
// then finds has expired. But it was written after the last view, so it may have been written by a
// wrong clock.
func TestSmallJumpWhileANodeStandsStill(t *testing.T) {
	t.Parallel()
	m := newNode(1)
	renew(t, m, 0, other(0, 9*s))
	if a := renew(t, m, 14*s, other(14*s, 12*s)); len(a.Fence) != 0 {
		t.Errorf("fences %v, whose lease may have been written by a wrong clock", a.Fence)
	}
	if a := renew(t, m, 22*s, other(22*s, 12*s)); len(a.Fence) != 0 {
		t.Errorf("fences %v at 22 s", a.Fence)
	}
	if a := renew(t, m, 25*s, other(25*s, 12*s)); len(a.Fence) != 1 {
		t.Errorf("fences %v after a lease of silence", a.Fence)
	}
}
