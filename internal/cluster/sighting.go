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
}

// Doubt tells whether the store's clock has jumped. Then a lease that has expired by it counts as expired only when
// its node has not renewed it for a whole lease of this node's own time: otherwise the first node that renews after
// a jump would fence all the others.
func (m *Membership) Doubt(doubt bool) { m.doubt = doubt }

// watch notes the leases of others.
func (m *Membership) watch(mono time.Duration) {
	seen := make(map[model.NodeID]sighting, len(m.view.Members))
	for i := range m.view.Members {
		n := &m.view.Members[i]
		s, known := m.seen[n.ID]
		if !known || s.epoch != n.Epoch || s.expires != n.Expires {
			s = sighting{n.Epoch, n.Expires, mono}
		}
		seen[n.ID] = s
	}
	m.seen = seen
}

// expired reports whether the lease of a node is over.
func (m *Membership) expired(mono time.Duration, n *store.Member) bool {
	return n.Expires < m.view.Now && (!m.doubt || mono-m.seen[n.ID].since >= m.cfg.TTL)
}

// ages is how many leases long a node must be silent until it is given up although its lease lasts for longer.
const ages = 3

// abandoned reports whether a node is gone whose lease will not expire for a long time, because the store's clock went
// back: no renewal gave it that much time, and it has not renewed since. It has stopped serving by its own clock.
func (m *Membership) abandoned(mono time.Duration, n *store.Member) bool {
	return n.Expires > m.view.Now.Add(ages*m.cfg.TTL) && mono-m.seen[n.ID].since >= ages*m.cfg.TTL
}
