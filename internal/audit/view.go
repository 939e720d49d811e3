package audit

import (
	"context"

	"github.com/perdure/perdure/internal/api"
)

// viewValue is the part of a saved view that an entry shows.
type viewValue struct {
	Page  string `json:"page,omitempty"`
	Query string `json:"query,omitempty"`
	Note  string `json:"note,omitempty"`
	Owner string `json:"owner,omitempty"`
}

func showView(v *api.View) any { return viewValue{v.Page, v.Query, v.Note, v.Owner} }

// view returns a view before it changes, or nil if there is none.
func (b *backend) view(ctx context.Context, tenant, name string) []byte {
	if !b.log.records(ctx) {
		return nil
	}
	all, err := b.Views(ctx, tenant)
	if err != nil {
		return nil
	}
	for i := range all {
		if all[i].Name == name {
			return value(showView(&all[i]))
		}
	}
	return nil
}

// SetView creates or replaces a view.
func (b *backend) SetView(ctx context.Context, c api.ViewChange) (v api.View, err error) {
	e := api.AuditEntry{Tenant: c.Tenant, Call: "SetView", Resource: "view " + c.View.Name, Before: b.view(ctx, c.Tenant, c.View.Name)}
	err = b.log.record(ctx, e, func(ctx context.Context) (any, error) {
		if v, err = b.Backend.SetView(ctx, c); err != nil {
			return nil, err
		}
		return showView(&v), nil
	})
	return v, err
}

// DeleteView removes a view.
func (b *backend) DeleteView(ctx context.Context, t api.ViewTarget) error {
	e := api.AuditEntry{Tenant: t.Tenant, Call: "DeleteView", Resource: "view " + t.Name, Before: b.view(ctx, t.Tenant, t.Name)}
	return b.log.record(ctx, e, func(ctx context.Context) (any, error) { return nil, b.Backend.DeleteView(ctx, t) })
}
