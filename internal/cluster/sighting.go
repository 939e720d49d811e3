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
	odd     bool // the store's clock was wrong when it was written
}

// Doubt tells whether the store's clock has jumped. Then a lease that has expired by it counts as expired only when
// its node has not renewed it for a whole lease of this node's own time: otherwise the first node that renews after
// a jump would fence all the others. The same holds for a jump by that is not large enough for doubt, but longer than what keeps
// the end of a lease by the store's clock apart from its end by the clock of the node that has it.
func (m *Membership) Doubt(doubt bool, by time.Duration) {
	m.doubt = doubt || by.Abs() > m.cfg.Margin/2
}

// watch notes the leases of others.
func (m *Membership) watch(mono time.Duration) {
	// What was written since a view by a wrong clock may have been written by that clock too.
	if m.doubt || m.doubted {
		m.unsure = mono + m.cfg.TTL
	}
	m.doubted = m.doubt
	// A lease that was written since the last view lasts for longer than that view, or the store's clock has been back
	// in between.
	least := m.lastView.Add(m.cfg.TTL)
	defer func() { m.lastView = m.view.Now }()
	seen := make(map[model.NodeID]sighting, len(m.view.Members))
	for i := range m.view.Members {
		n := &m.view.Members[i]
		s, known := m.seen[n.ID]
		if !known || s.epoch != n.Epoch || s.expires != n.Expires {
			s = sighting{epoch: n.Epoch, expires: n.Expires, since: mono, odd: m.lastView != 0 && n.Expires < least}
		}
		seen[n.ID] = s
	}
	m.seen = seen
}

// expired reports whether the lease of a node is over. Leases that were written while the store's clock was wrong, or may have been,
// count as over when they have not been renewed for as long as a lease lasts.
func (m *Membership) expired(mono time.Duration, n *store.Member) bool {
	s := m.seen[n.ID]

	return n.Expires < m.view.Now && (mono >= m.unsure && !s.odd || mono-s.since >= m.cfg.TTL)
}

// ages is how many leases long a node must be silent until it is given up although its lease lasts for longer.
const ages = 3

// abandoned reports whether a node is gone whose lease will not expire for a long time, because the store's clock went
// back: no renewal gave it that much time, and it has not renewed since. It has stopped serving by its own clock.
func (m *Membership) abandoned(mono time.Duration, n *store.Member) bool {
	return n.Expires > m.view.Now.Add(ages*m.cfg.TTL) && mono-m.seen[n.ID].since >= ages*m.cfg.TTL
}
