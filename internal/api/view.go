package api

import (
	"context"

	"github.com/perdure/perdure/internal/model"
)

// Bounds of saved views.
const (
	MaxViews       = 500     // of a tenant
	MaxViewName    = 100     // bytes
	MaxViewQuery   = 4 << 10 // bytes
	MaxViewDisplay = 8 << 10 // bytes
)

// Views are named queries that the people of a tenant share.
type Views interface {
	// Views returns the saved views of a tenant, sorted by name.
	Views(ctx context.Context, tenant string) ([]View, error)
	// SetView creates or replaces a view. It returns Conflict if the view does not have the version
	// that the caller expects.
	SetView(ctx context.Context, c ViewChange) (View, error)
	// DeleteView removes a view, or returns NotFound.
	DeleteView(ctx context.Context, t ViewTarget) error
}

// View is a saved view.
type View struct {
	Name string
	// Page is the page of the console that the view belongs to, such as executions.
	Page  string
	Query string
	Note  string
	// Display is data that a console stores with the view, as JSON.
	Display []byte
	// Owner is the caller that created the view.
	Owner            string
	Created, Changed model.Time
	// Version grows with every change.
	Version int64
}

// ViewChange creates or replaces a view. The service sets Owner, Created, Changed and Version.
type ViewChange struct {
	Tenant string
	View   View
	// Expected is the version that the view must have: 0 means that the view must not exist, nil
	// means any version.
	Expected *int64
}

// ViewTarget names a view.
type ViewTarget struct {
	Tenant, Name string
	Expected     *int64 // as in ViewChange
}
