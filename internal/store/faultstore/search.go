package faultstore

import (
	"context"

	"github.com/perdure/perdure/internal/store"
)

var _ store.Searcher = (*Store)(nil)

// Search calls the wrapped store without faults, because the engine does not use it.
func (f *Store) Search(ctx context.Context, text string, found func(value []byte) error) error {
	return f.inner.(store.Searcher).Search(ctx, text, found)
}
