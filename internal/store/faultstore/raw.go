package faultstore

import (
	"context"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// ReadRaw calls the wrapped store without faults, because people use it and the engine does not.
func (f *Store) ReadRaw(ctx context.Context, shard model.ShardID, address model.Address, run model.RunID, each func(store.RawRow) error) error {
	return f.inner.ReadRaw(ctx, shard, address, run, each)
}
