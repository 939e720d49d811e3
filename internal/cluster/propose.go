package cluster

import (
	"bytes"
	"math/bits"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// The weights of nodes. A node with twice the weight of another one should own twice as many
// shards.
const (
	DefaultWeight = 100
	MaxWeight     = 10_000
)

// Propose distributes shards to nodes by rendezvous hashing: each node draws a number for each
// shard, and the node with the highest number gets the shard. Every node computes the same result.
// When a node joins or leaves, or joins again with another weight, only shards that this node gains
// or loses move. Without nodes, every proposal is zero.
//
// A node of an older build has weight 0 and does not know weights. While there is such a node, all
// nodes have the same weight. Otherwise that node and the other nodes would not agree.
func Propose(shards int, nodes []store.Member) []model.NodeID {
	proposed := make([]model.NodeID, shards)
	distribute(proposed, 0, nodes)
	return proposed
}

// distribute proposes the owners of consecutive shards. first is the number of the first shard.
func distribute(proposed []model.NodeID, first int, nodes []store.Member) {
	if len(nodes) == 0 {
		return
	}

	draws := make([]uint64, len(nodes))
	weighted := false
	for i := range nodes {
		draws[i] = hashNode(nodes[i].ID)
		weighted = weighted || nodes[i].Weight != nodes[0].Weight
	}

	choose := highest
	if weighted && !hasOlder(nodes) {
		choose = heaviest
	}
	for i := range proposed {
		proposed[i] = nodes[choose(draws, nodes, first+i)].ID
	}
}

// hasOlder reports whether a node is of a build that knows neither weights nor orders to drain.
func hasOlder(nodes []store.Member) bool {
	for i := range nodes {
		if nodes[i].Weight <= 0 {
			return true
		}
	}
	return false
}

// highest returns the node that draws the highest number for a shard.
func highest(hashes []uint64, _ []store.Member, shard int) (at int) {
	var best uint64
	for i, h := range hashes {
		if score := draw(h, shard); i == 0 || score > best {
			best, at = score, i
		}
	}
	return at
}

// heaviest returns the node with the highest number among nodes of different weight. It compares
// -weight / log(draw) instead of the draw, so that a node wins with a probability in proportion to
// its weight. It computes with products of integers, because floating-point results could differ
// between machines.
func heaviest(hashes []uint64, nodes []store.Member, shard int) (at int) {
	var best uint64
	for i, h := range hashes {
		cost := distance(draw(h, shard))
		if i == 0 {
			best = cost
			continue
		}

		// This is cost / weight < best / (weight of the best node), without a division.
		hi, lo := bits.Mul64(cost, uint64(nodes[at].Weight))
		bestHi, bestLo := bits.Mul64(best, uint64(nodes[i].Weight))
		switch {
		case hi < bestHi || hi == bestHi && lo < bestLo:
			best, at = cost, i
		case hi == bestHi && lo == bestLo && bytes.Compare(nodes[i].ID[:], nodes[at].ID[:]) < 0:
			best, at = cost, i
		}
	}
	return at
}

// hashNode is the part of a draw that depends on the node only.
func hashNode(n model.NodeID) uint64 {
	h := uint64(14695981039346656037)
	for _, b := range n {
		h = (h ^ uint64(b)) * 1099511628211
	}
	return h
}

// draw is a well-mixed hash of node and shard.
func draw(h uint64, shard int) uint64 {
	h ^= uint64(shard) * 0x9e3779b97f4a7c15
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// logSteps is how many parts the table of logarithms has, and logBits is how many bits of its
// numbers are after the point.
const (
	logSteps = 1 << 12
	logBits  = 57
)

// logarithms has log2(1 + i/logSteps), with logBits bits after the point.
var logarithms = tabulate()

// distance is -log2(x / 2^64), with logBits bits after the point. It interpolates in a table.
func distance(x uint64) uint64 {
	if x == 0 {
		return 64 << logBits // the worst draw; log2(0) has no value
	}
	exponent := uint64(63 - bits.LeadingZeros64(x))
	mantissa := x << (63 - exponent) << 1 // the bits after the leading 1
	index, rest := mantissa>>52, mantissa<<12
	low, high := logarithms[index], logarithms[index+1]
	between, _ := bits.Mul64(high-low, rest)
	return (64-exponent)<<logBits - (low + between)
}

// tabulate computes the logarithms bit by bit, because the result must be the same on every
// machine: squaring a number between 1 and 2 doubles its logarithm.
func tabulate() (table [logSteps + 1]uint64) {
	for i := 1; i < logSteps; i++ {
		x := uint64(1)<<63 + uint64(i)<<(63-12) // fixed point, with 63 bits after the point
		for bit := logBits - 1; bit >= 0; bit-- {
			hi, lo := bits.Mul64(x, x) // fixed point, with 126 bits after the point
			if hi >= 1<<63 {           // at least 2
				table[i] |= 1 << bit
				x = hi
			} else {
				x = hi<<1 | lo>>63
			}
		}
	}
	table[logSteps] = 1 << logBits
	return table
}
