package grpcapi

import (
	"context"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/wire"
)

// Views returns the saved views of the tenant.
func (c *client) Views(ctx context.Context, _ *pb.ViewsRequest) (*pb.ViewList, error) {
	return list(ctx, c.backend.Views, wire.ViewList)
}

// SetView creates or replaces a view.
func (c *client) SetView(ctx context.Context, m *pb.SetViewRequest) (*pb.View, error) {
	return ask(ctx, m, wire.ReadSetViewRequest, c.backend.SetView, wire.View)
}

// DeleteView removes a view.
func (c *client) DeleteView(ctx context.Context, m *pb.DeleteViewRequest) (*pb.Done, error) {
	return tell(ctx, m, wire.ReadDeleteViewRequest, c.backend.DeleteView)
}
