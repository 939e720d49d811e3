package cluster_test

import (
	"testing"
	"time"

	"github.com/perdure/perdure/internal/cluster"
	"github.com/perdure/perdure/internal/store"
)

// other returns the view that node 1 has of node 2, whose lease ends at expires.
func other(now, expires time.Duration) store.View {
	ms := members(1, 2)
	ms[0].Expires, ms[1].Expires = at(now+10*s), at(expires)

	return view(now, ms, 1, 2)
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
// That holds for a node that has seen the dead node renew. It also holds for a node that has not,
// because no lease is that long.
func TestStepBackKeepsNoDeadNode(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for _, c := range []struct {
		name  string
		sees  bool
		waits time.Duration
	}{{"sees a renewal", true, 42 * s}, {"sees none", false, 40 * s}} {
		m := newNode(1)
		mono := time.Duration(0)
		if c.sees {
			renew(t, m, 0, other(day, day+10*s))
			renew(t, m, 2*s, other(day+2*s, day+12*s))
			mono = 4 * s
			m.Doubt(true, 0)
		}

		var fences []cluster.FenceTarget
		begun := mono
		for ; len(fences) == 0 && mono < 2*time.Hour; mono += 2 * s {
			fences = renew(t, m, mono, other(mono, day+12*s)).Fence
		}
		waited := mono - 2*s - begun
		if len(fences) != 1 || !fences[0].Proven || waited > c.waits || waited < c.waits-4*s {
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

// Processes of one store may have leases of different lengths. A process with a long lease renews
// it rarely, and is alive.
func TestLongLeaseIsNotAbandoned(t *testing.T) {
	t.Parallel()
	m := newNode(1) // its lease lasts 10 s
	const long, every = 300 * s, 60 * s
	for mono := time.Duration(0); mono < 20*time.Minute; mono += 2 * s {
		renewed := mono / every * every
		if a := renew(t, m, mono, other(mono, renewed+long)); len(a.Fence) != 0 {
			t.Fatalf("fences %v at %s; it renewed its lease of %s at %s", a.Fence, mono, long, renewed)
		}
	}
}

// The same holds after the store's clock has jumped forward, so that every lease that was not
// renewed since then has expired.
func TestJumpFencesNoLongLease(t *testing.T) {
	t.Parallel()
	m := newNode(1) // its lease lasts 10 s
	const day, long, every = 24 * time.Hour, 300 * s, 60 * s
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
		if a := renew(t, m, mono, other(mono+jump, expires)); len(a.Fence) != 0 {
			t.Fatalf("fences %v at %s; it renewed its lease of %s at %s", a.Fence, mono, long, renewed)
		}
	}
}

// The store's clock jumps, and a node joins before the others have renewed. The new node has no
// earlier view to compare with, but the clock of its machine is right.
func TestJumpBeforeJoiningFencesNobody(t *testing.T) {
	t.Parallel()
	for _, lives := range []bool{true, false} {
		m := newNode(1)
		m.Distrust(0)
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
