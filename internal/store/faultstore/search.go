package faultstore

import (
	"context"

	"github.com/perdure/perdure/internal/store"
)

var _ store.Searcher = (*Store)(nil)

// Search is passed on: it is no part of what an engine does, so it is no place for a fault.
func (f *Store) Search(ctx context.Context, text string, found func(value []byte) error) error {
	return f.inner.(store.Searcher).Search(ctx, text, found)
}
