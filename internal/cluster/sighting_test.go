package cluster_test

import (
	"testing"
	"time"

	"github.com/perdure/perdure/internal/store"
)

// other is the cluster of node 1, which looks, and node 2, whose lease ends at a time.
func other(now, expires time.Duration) store.View {
	ms := members(1, 2)
	ms[0].Expires, ms[1].Expires = at(now+10*s), at(expires)

	return view(now, ms, 1, 2)
}

// While the store's clock is in doubt, another node is fenced only when it has not renewed for a whole lease by this node's own time.
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
	// It dies; its lease ends by the store's clock, and it has been silent for a lease.
	for mono := 6 * s; mono < 14*s; mono += 2 * s {
		if a := renew(t, m, mono, other(day+mono+9*s, day+13*s)); len(a.Fence) != 0 {
			t.Errorf("fences %v at %s", a.Fence, mono)
		}
	}
	if a := renew(t, m, 14*s, other(day+24*s, day+13*s)); len(a.Fence) != 1 || a.Fence[0].Proven {
		t.Errorf("fences %v, want node 2, whose lease is over by both clocks", a.Fence)
	}
}

// Without doubt the store's clock decides at once, also for a node that was just opened.
func TestExpiredLeaseIsFencedAtOnce(t *testing.T) {
	t.Parallel()
	m := newNode(1)
	if a := renew(t, m, 0, other(0, -s)); len(a.Fence) != 1 {
		t.Errorf("fences %v, want node 2", a.Fence)
	}
}

// The store's clock went back by a day: the lease of a dead node does not last for a day.
func TestStepBackKeepsNoDeadNode(t *testing.T) {
	t.Parallel()
	m := newNode(1)
	const day = 24 * time.Hour
	mono := time.Duration(0)
	for ; mono < 30*s; mono += 2 * s {
		if a := renew(t, m, mono, other(mono, day)); len(a.Fence) != 0 {
			t.Fatalf("fences %v after %s", a.Fence, mono)
		}
	}
	if a := renew(t, m, mono, other(mono, day)); len(a.Fence) != 1 || !a.Fence[0].Proven {
		t.Errorf("fences %v after %s, want node 2 as proven dead: no lease lasts for a day", a.Fence, mono)
	}
}

// A lease that was written while the store's clock was back is over by it as soon as the clock is right again. Its node lives: neither a node that has seen the jump nor
// one that has not fences it.
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

// A jump that is too small to put the store's clock in doubt may be longer than what a lease has left.
func TestSmallJumpFencesNobody(t *testing.T) {
	t.Parallel()
	m := newNode(1)
	renew(t, m, 0, other(0, 9*s))
	m.Doubt(false, 8*s)
	if a := renew(t, m, 2*s, other(10*s, 9*s)); len(a.Fence) != 0 {
		t.Errorf("fences %v after a jump of 8 s", a.Fence)
	}
}

// A node that has seen the store's clock jump back stands still until the clock is right again. The other one has renewed its lease
// meanwhile by the wrong clock, and lives.
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
