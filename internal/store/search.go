package store

import "context"

// Searcher finds stored values by a text in them, for the clean-up of what the store refers to.
// Every adapter is one.
type Searcher interface {
	// Search calls found with every stored value in which the text occurs, in whatever table and
	// column, all as of one moment. A value may come more than once. found must not keep its
	// argument, nor call the store.
	Search(ctx context.Context, text string, found func(value []byte) error) error
}
