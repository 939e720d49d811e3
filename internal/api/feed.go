package api

import (
	"context"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Feed reports changes to callers as they happen.
type Feed interface {
	// Watch calls take with pages of changes until ctx ends or take returns an error, and returns
	// that error. The first page comes immediately. A caller that reads a list after the first
	// page, and then applies the changes that follow, misses nothing.
	//
	// Changes of one execution are in order. The caller may be slow: take delays only its own
	// watch. If the caller falls too far behind, the next page has Gap set. A page also has Gap set
	// if the cursor of the request is too old or unknown.
	Watch(ctx context.Context, r WatchRequest, take func(ChangePage) error) error
}

// Change is a change of the feed.
type Change = model.Change

// ChangePage is a page of the feed.
type ChangePage = model.ChangePage

// WatchRequest selects changes of a tenant.
type WatchRequest struct {
	Tenant string
	model.ChangeFilter
	// Cursor is the cursor of the last page of an earlier watch, and this watch continues there. An
	// empty cursor starts now.
	Cursor string
}

// ErrNoFeed says that the process runs no engine, so it does not learn of changes.
var ErrNoFeed = fault.New(fault.Denied, "watch: the store is open for reading only; the process that owns it has the feed")
