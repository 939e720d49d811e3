package wire

import (
	"math"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// each translates a list. It returns nil if the list is empty.
func each[A, B any](in []A, translate func(A) B) []B {
	if len(in) == 0 {
		return nil
	}
	out := make([]B, len(in))
	for i := range in {
		out[i] = translate(in[i])
	}
	return out
}

// readEach reads a list. It returns nil if the list is empty.
func readEach[A, B any](tenant string, in []B, read func(string, B) (A, error)) ([]A, error) {
	if len(in) == 0 {
		return nil, nil
	}
	out := make([]A, len(in))
	for i := range in {
		var err error
		if out[i], err = read(tenant, in[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// readRuns reads the ids of runs.
func readRuns(in [][]byte) ([]model.RunID, error) {
	return readEach("", in, func(_ string, b []byte) (model.RunID, error) { return ReadRun(b) })
}

// readNode reads the id of a node. It returns the zero id if there are no bytes.
func readNode(b []byte) (id model.NodeID, err error) {
	if len(b) == 0 {
		return id, nil
	}
	if len(b) != len(id) {
		return id, fault.New(fault.Invalid, "the id of a node has %d bytes, must be %d", len(b), len(id))
	}
	copy(id[:], b)
	return id, nil
}

// node returns the bytes of an id. It returns nil for the zero id.
func node(id model.NodeID) []byte {
	if id.IsZero() {
		return nil
	}
	return id[:]
}

// readShard reads the number of a shard.
func readShard(n uint32) (model.ShardID, error) {
	if n > math.MaxUint16 {
		return 0, fault.New(fault.Invalid, "shard %d does not exist", n)
	}
	return model.ShardID(n), nil
}
