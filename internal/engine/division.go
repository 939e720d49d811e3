package engine

import (
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// division says which shards are in which of several stores. A nil division is one store.
type division struct {
	parts int
	of    []int // the part of each shard
}

// newDivision returns the division of the shards of a store into parts. It returns nil if the store
// has only one part.
func newDivision(info *store.Info) *division {
	if info.Parts() == 1 {
		return nil
	}
	return &division{info.Parts(), info.PartsOfShards()}
}

// count returns the number of parts.
func (d *division) count() int {
	if d == nil {
		return 1
	}
	return d.parts
}

// partOf returns the part of a shard.
func (d *division) partOf(s model.ShardID) int {
	if d == nil || int(s) >= len(d.of) {
		return 0
	}
	return d.of[s]
}

// laneOf returns the lane of a shard, of the given number of lanes. Lane i has shards of the part
// whose number is i modulo the number of parts.
func (d *division) laneOf(s model.ShardID, lanes int) int {
	if d == nil {
		return int(s) % lanes
	}
	return d.partOf(s) + d.parts*(int(s)%(lanes/d.parts))
}
