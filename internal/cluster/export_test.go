package cluster

import (
	"fmt"
	"maps"
	"time"

	"github.com/perdure/perdure/internal/model"
)

// Clone is an independent copy, for exploring what can happen next.
func (m *Membership) Clone() *Membership {
	c := *m
	c.fencing, c.owned, c.leaving = maps.Clone(m.fencing), maps.Clone(m.owned), maps.Clone(m.leaving)
	return &c
}

// Fingerprint tells states apart that can behave differently from now on. Times are relative to mono.
func (m *Membership) Fingerprint(mono time.Duration) string {
	next := max(m.nextRenew-mono, 0)
	return fmt.Sprint(m.epoch, m.draining, max(m.validUntil-mono, 0), next, m.renewing, m.sentAt-mono, m.acquires, m.stale, m.lost != nil,
		len(m.fencing), m.Owned(), sortedShards(m.leaving))
}

// Leaves reports whether the lanes have been told to give the shard up.
func (m *Membership) Leaves(s model.ShardID) bool { return m.leaving[s] }

// Owns reports whether the shard is ours as far as the node knows.
func (m *Membership) Owns(s model.ShardID) bool { return m.owned[s] }
