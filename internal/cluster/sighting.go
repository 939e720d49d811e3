package cluster

import (
	"cmp"
	"math"
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// sighting is what this node knows about the lease of a node in the view.
type sighting struct {
	epoch   int64
	expires model.Time
	since   time.Duration // when this node first saw this end of the lease, by its own clock
	odd     bool          // the store's clock may have been wrong since the lease was written
	lasts   time.Duration // length of the lease
}

// Longest is the longest lease that a node may have.
const Longest = time.Hour

// marginShare is how many times longer a lease is than its margin. The margin is how long before
// the end of its lease a node stops serving.
const marginShare = 10

// Doubt tells the membership what the latest reading of the store's clock has shown. The parameter
// doubt is true if the clock has jumped. After a jump, a lease that has expired by the store's
// clock is not enough to treat a node as dead. The node must also have been silent for the length
// of its lease, by this node's own clock. Without this rule the first node that renews after a jump
// would fence all others. The parameter by is how far the store's clock was ahead of this node's
// clock, or behind it. If the margin of a lease is less than twice that difference, the difference
// counts as a jump for that lease, even if doubt is false.
func (m *Membership) Doubt(doubt bool, by time.Duration) {
	m.off = by.Abs()
	if doubt {
		m.off = math.MaxInt64
	}
}

// Distrust tells the membership how far the store's clock was ahead of the clock of the machine, or
// behind it, when this node joined. The store's clock may have jumped just before that. In that
// case nodes may be alive although their leases have expired by that clock. The clocks of two
// machines are never the same, so only a difference of more than half a lease counts as a jump. The
// caller calls Distrust before the first view.
func (m *Membership) Distrust(by time.Duration) {
	// By the rule of Doubt, a difference counts if it is more than half a margin. Divided by
	// marginShare, it counts only if it is more than half a lease.
	m.wasOff = by.Abs() / marginShare
}

// watch notes the leases of all nodes in the view.
func (m *Membership) watch(mono time.Duration) {
	// If the clock was wrong at the last view, it may also have been wrong when nodes wrote leases
	// between that view and this one.
	off := max(m.off, m.wasOff)
	m.wasOff = m.off

	seen := make(map[model.NodeID]sighting, len(m.view.Members))
	for i := range m.view.Members {
		n := &m.view.Members[i]
		// A node of an older release does not state the length of its lease.
		ttl := cmp.Or(n.TTL, m.cfg.TTL)
		wrong := off > ttl/marginShare/2

		s := m.seen[n.ID]
		if s.epoch != n.Epoch {
			s = sighting{}
		}
		if s.expires != n.Expires {
			// If a lease was written after the last view, the time from that view to the end of the
			// lease is at least the length of the lease, unless the store's clock went back in
			// between. A new lease that has already expired is odd too. Then the last view is older
			// than the lease, and this node does not know what the clock did since then.
			early := m.lastView != 0 && n.Expires < max(m.lastView.Add(ttl), m.view.Now)
			odd := wrong || early
			s = sighting{epoch: n.Epoch, expires: n.Expires, since: mono, odd: odd, lasts: m.lengthOf(n, s.lasts, odd)}
		}
		s.odd = s.odd || wrong
		seen[n.ID] = s
	}

	m.seen, m.lastView = seen, m.view.Now
}

// lengthOf returns the length of the lease of a node. If a node of an older release has written the
// lease, the length is an estimate, and at least the length of the leases of this node. last is the
// previous estimate, zero if there is none.
func (m *Membership) lengthOf(n *store.Member, last time.Duration, odd bool) time.Duration {
	if n.TTL > 0 {
		return n.TTL
	}

	left := n.Expires.Sub(m.view.Now)
	switch {
	case last == 0 && left <= Longest:
		last = left
	case last == 0:
		// No lease is that long, so the store's clock went back after the lease was written.
	case !odd:
		// The node has written the lease after the last view, so the lease cannot be longer than
		// the time from that view to its end.
		last = min(n.Expires.Sub(m.lastView), Longest)
	}

	return max(last, m.cfg.TTL)
}

// isExpired reports whether the lease of a node has expired by the store's clock. For an odd lease
// there is a second condition: by this node's own clock, the node has not renewed for the length of
// its lease.
func (m *Membership) isExpired(mono time.Duration, n *store.Member) bool {
	s := m.seen[n.ID]

	return n.Expires < m.view.Now && (!s.odd || mono-s.since >= s.lasts)
}

// ages is how many lengths of its lease a node must be silent before this node treats it as gone
// although its lease has not expired by the store's clock.
const ages = 4

// isAbandoned reports whether a node is gone although its lease will not expire for a long time,
// because the store's clock went back. No renewal gives a node that much time, so the lease was
// written before the clock went back, and the node has not renewed it since. By its own clock that
// node has stopped serving.
func (m *Membership) isAbandoned(mono time.Duration, n *store.Member) bool {
	s := m.seen[n.ID]
	silence := ages * s.lasts

	return n.Expires > m.view.Now.Add(silence) && mono-s.since >= silence
}
