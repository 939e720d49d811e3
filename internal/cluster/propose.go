package cluster

import (
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// Propose distributes shards to nodes by rendezvous hashing. Every node computes the same, and when
// a node joins or leaves, only its own shards move. Without nodes, every proposal is zero.
func Propose(shards int, nodes []store.Member) []model.NodeID {
	proposed := make([]model.NodeID, shards)
	for s := range proposed {
		var best uint64
		for i := range nodes {
			if score := weight(nodes[i].ID, s); i == 0 || score > best {
				best, proposed[s] = score, nodes[i].ID
			}
		}
	}
	return proposed
}

// weight is a well-mixed hash of node and shard.
func weight(n model.NodeID, shard int) uint64 {
	h := uint64(14695981039346656037)
	for _, b := range n {
		h = (h ^ uint64(b)) * 1099511628211
	}
	h ^= uint64(shard) * 0x9e3779b97f4a7c15
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
