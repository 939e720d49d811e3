package cluster

import (
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// sighting is what this node knows about the lease of a node in the view.
type sighting struct {
	epoch   int64
	expires model.Time
	since   time.Duration // when this node first saw this end of the lease, by its own clock
	odd     bool          // the store's clock may have been wrong when the lease was written
	lasts   time.Duration // estimated length of the node's leases; at least the TTL of this node
}

// Longest is the longest lease that a node may have. Nodes of one store may have leases of
// different lengths, and a lease does not state its length.
const Longest = time.Hour

// remainingLease returns how long a lease that is seen for the first time may last. If that is
// longer than any lease can be, the store's clock went back after the lease was written. In that
// case the usual length is the best guess.
func (m *Membership) remainingLease(n *store.Member) time.Duration {
	left := n.Expires.Sub(m.view.Now)
	if left > m.cfg.Longest {
		return m.cfg.TTL
	}

	return left
}

// Doubt tells the membership what the latest reading of the store's clock has shown. The parameter
// doubt is true if the clock has jumped. After a jump, a lease that has expired by the store's
// clock is not enough to treat a node as dead. The node must also have been silent for the length
// of its lease, as far as this node knows that length, by this node's own clock. Without this rule
// the first node that renews after a jump would fence all others. The parameter by is how far the
// store's clock was ahead of this node's clock, or behind it. If that is more than half of the
// margin, it counts as a jump even if doubt is false. The margin is how long before the end of its
// lease a node stops serving.
func (m *Membership) Doubt(doubt bool, by time.Duration) {
	m.doubt = doubt || by.Abs() > m.cfg.Margin/2
}

// Distrust tells the membership that the store's clock may have jumped just before this node
// joined. In that case nodes may be alive although their leases have expired by that clock. The
// caller calls Distrust, before the first view, if the store's clock differs much from the clock of
// the machine.
func (m *Membership) Distrust(mono time.Duration) { m.unsure = mono + m.cfg.TTL }

// watch notes the leases of all nodes in the view.
func (m *Membership) watch(mono time.Duration) {
	// If the clock was wrong at the last view, it may also have been wrong when nodes wrote leases
	// between that view and this one.
	if m.doubt || m.doubted {
		m.unsure = mono + m.cfg.TTL
	}
	m.doubted = m.doubt

	// A lease that was written since the last view ends no earlier than the time of that view plus
	// the TTL of its node, unless the store's clock went back in between. watch does not know that
	// TTL and uses the TTL of this node. So a shorter lease can be odd although the clock was
	// right. A new lease that has already expired is odd too. Then the last view is older than a
	// TTL, and this node does not know what the clock did since then.
	least := max(m.lastView.Add(m.cfg.TTL), m.view.Now)
	defer func() { m.lastView = m.view.Now }()

	seen := make(map[model.NodeID]sighting, len(m.view.Members))
	for i := range m.view.Members {
		n := &m.view.Members[i]
		s, known := m.seen[n.ID]
		if !known || s.epoch != n.Epoch || s.expires != n.Expires {
			known = known && s.epoch == n.Epoch
			s = sighting{epoch: n.Epoch, expires: n.Expires, since: mono, odd: m.lastView != 0 && n.Expires < least, lasts: s.lasts}
			switch {
			case !known:
				s.lasts = m.remainingLease(n)
			case !m.doubt && !s.odd:
				// The node has written the lease after the last view, so the lease cannot be longer
				// than the time from that view to its end.
				s.lasts = min(n.Expires.Sub(m.lastView), m.cfg.Longest)
			}
			s.lasts = max(s.lasts, m.cfg.TTL)
		}
		seen[n.ID] = s
	}

	m.seen = seen
}

// isExpired reports whether the lease of a node has expired by the store's clock. While that clock
// is in doubt, for a TTL of this node after that, and for an odd lease, there is a second
// condition: by this node's own clock, the node has not renewed for the estimated length of its
// lease.
func (m *Membership) isExpired(mono time.Duration, n *store.Member) bool {
	s := m.seen[n.ID]

	return n.Expires < m.view.Now && (mono >= m.unsure && !s.odd || mono-s.since >= s.lasts)
}

// ages is a part of the silence after which this node treats another node as gone although its
// lease has not expired by the store's clock. During the silence the other node has not renewed.
// The silence is as long as the estimated length of its lease, plus ages times the TTL of this
// node.
const ages = 3

// isAbandoned reports whether a node is gone although its lease will not expire for a long time,
// because the store's clock went back. No renewal gives a node that much time, so the lease was
// written before the clock went back, and the node has not renewed it since. By its own clock that
// node has stopped serving.
func (m *Membership) isAbandoned(mono time.Duration, n *store.Member) bool {
	s := m.seen[n.ID]
	silence := s.lasts + ages*m.cfg.TTL

	return n.Expires > m.view.Now.Add(silence) && mono-s.since >= silence
}
