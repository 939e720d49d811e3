package cluster

import (
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// sighting is the lease of another node, and since when this one has seen it unchanged.
type sighting struct {
	epoch   int64
	expires model.Time
	since   time.Duration
	odd     bool          // the store's clock was wrong when it was written
	lasts   time.Duration // no lease of the node lasts for longer than this
}

// Longest is the longest lease that a node may have. Nodes of one store may have leases of
// different lengths, and a lease does not tell its own.
const Longest = time.Hour

// left is how long a lease may last that is seen for the first time. When that is longer than any
// lease, the store's clock went back since it was written, and the usual length has to do.
func (m *Membership) left(n *store.Member) time.Duration {
	left := n.Expires.Sub(m.view.Now)
	if left > m.cfg.Longest {
		return m.cfg.TTL
	}

	return left
}

// Doubt tells whether the store's clock has jumped. Then a lease that has expired by it counts as
// expired only when its node has not renewed it for as long as it lasts, by this node's own time:
// otherwise the first node that renews after a jump would fence all the others. The same holds for
// a jump by that is not large enough for doubt, but longer than what keeps the end of a lease by
// the store's clock apart from its end by the clock of the node that has it.
func (m *Membership) Doubt(doubt bool, by time.Duration) {
	m.doubt = doubt || by.Abs() > m.cfg.Margin/2
}

// Distrust tells at mono, before the first view, that the store's clock may have jumped just before
// this node has joined: it is far from that of the machine. Then others may live whose leases have
// expired by it.
func (m *Membership) Distrust(mono time.Duration) { m.unsure = mono + m.cfg.TTL }

// watch notes the leases of others.
func (m *Membership) watch(mono time.Duration) {
	// What was written since a view by a wrong clock may have been written by that clock too.
	if m.doubt || m.doubted {
		m.unsure = mono + m.cfg.TTL
	}
	m.doubted = m.doubt

	// A lease that was written since the last view lasts for longer than that view, or the store's
	// clock has been back in between. If it is over already, this node has not looked for longer
	// than a lease, and cannot tell what the clock did in that time.
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
				s.lasts = m.left(n)
			case !m.doubt && !s.odd: // it was written after the last view
				s.lasts = min(n.Expires.Sub(m.lastView), m.cfg.Longest)
			}
			s.lasts = max(s.lasts, m.cfg.TTL)
		}
		seen[n.ID] = s
	}

	m.seen = seen
}

// expired reports whether the lease of a node is over. Leases that were written while the store's
// clock was wrong, or may have been, count as over when they have not been renewed for as long as a
// lease lasts.
func (m *Membership) expired(mono time.Duration, n *store.Member) bool {
	s := m.seen[n.ID]

	return n.Expires < m.view.Now && (mono >= m.unsure && !s.odd || mono-s.since >= s.lasts)
}

// ages is how many leases of its own a node waits in addition before it gives up another whose
// lease seems to last.
const ages = 3

// abandoned reports whether a node is gone whose lease will not expire for a long time, because the
// store's clock went back: no renewal gave it that much time, and it has not renewed since. It has
// stopped serving by its own clock.
func (m *Membership) abandoned(mono time.Duration, n *store.Member) bool {
	s := m.seen[n.ID]
	silence := s.lasts + ages*m.cfg.TTL

	return n.Expires > m.view.Now.Add(silence) && mono-s.since >= silence
}
