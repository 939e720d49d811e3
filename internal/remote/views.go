package remote

import (
	"context"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/wire"
)

// Views returns the saved views of the tenant.
func (b *Backend) Views(ctx context.Context, tenant string) ([]api.View, error) {
	if err := b.own(tenant); err != nil {
		return nil, err
	}
	return ask(b.client.Views, wire.ReadViewList).do(ctx, b, &pb.ViewsRequest{})
}

// SetView creates or replaces a view. The client does not repeat the request, because a second
// request could undo the change of another person.
func (b *Backend) SetView(ctx context.Context, c api.ViewChange) (api.View, error) {
	if err := b.own(c.Tenant); err != nil {
		return api.View{}, err
	}
	return askOnce(b.client.SetView, wire.ReadView).do(ctx, b, wire.SetViewRequest(c))
}

// DeleteView removes a view. The client does not repeat the request, because a second request would
// not find the view.
func (b *Backend) DeleteView(ctx context.Context, t api.ViewTarget) error {
	if err := b.own(t.Tenant); err != nil {
		return err
	}
	return tellOnce(ctx, b, b.client.DeleteView, wire.DeleteViewRequest(t))
}
