package faultstore

import (
	"context"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// ReadRaw is passed on: people read with it, not an engine, so it is no place for a fault.
func (f *Store) ReadRaw(ctx context.Context, shard model.ShardID, address model.Address, run model.RunID, each func(store.RawRow) error) error {
	return f.inner.ReadRaw(ctx, shard, address, run, each)
}
