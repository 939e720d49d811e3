package cluster

import (
	"maps"
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// Assign exports assign.
var Assign = assign

// Clone returns an independent copy, to explore what can happen next.
func (m *Membership) Clone() *Membership {
	c := *m
	c.fencing, c.owned, c.leaving = maps.Clone(m.fencing), maps.Clone(m.owned), maps.Clone(m.leaving)
	return &c
}

// Fingerprint appends an encoding of the state. Two states with the same encoding behave the same
// from now on. Times are relative to mono, in seconds.
func (m *Membership) Fingerprint(b []byte, mono time.Duration) []byte {
	seconds := func(t time.Duration) byte { return byte(max(t-mono, -100*time.Second) / time.Second) }
	if m.lost != nil {
		return append(b, 0)
	}
	sent := mono
	if m.renewing {
		sent = m.sentAt
	}

	b = append(b, byte(m.epoch), seconds(max(m.validUntil, mono)), seconds(max(m.nextRenew, mono)), seconds(sent), byte(len(m.fencing)))
	for _, f := range [...]bool{m.draining, m.renewing, m.acquires, m.missed, m.stale, m.again, m.owned[0], m.leaving[0]} {
		b = append(b, 0)
		if f {
			b[len(b)-1] = 1
		}
	}

	return b
}

// IsLeaving reports whether the lanes are giving the shard up.
func (m *Membership) IsLeaving(s model.ShardID) bool { return m.leaving[s] }

// HasShard reports whether the node owns the shard, as far as the node knows.
func (m *Membership) HasShard(s model.ShardID) bool { return m.owned[s] }

// RankOf returns the rank of a node.
func RankOf(n *store.Member) int { return int(rankOf(n)) }
