package store

import "context"

// Searcher finds stored values that contain a text. The clean-up of blobs uses it to find out which
// blobs the store refers to. Every adapter implements it.
type Searcher interface {
	// Search calls found with every stored value that contains the text, in any table and column.
	// An adapter reads all of them from one snapshot. Package partitioned has no snapshot of all
	// parts, so it reads every part twice. Search may report a value more than once. The function
	// found must not keep its argument and must not call the store.
	Search(ctx context.Context, text string, found func(value []byte) error) error
}
