package remote

import (
	"context"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/wire"
)

// StartBatch starts a batch job.
func (b *Backend) StartBatch(ctx context.Context, r api.BatchRequest) (api.Batch, error) {
	if err := b.own(r.Tenant); err != nil {
		return api.Batch{}, err
	}
	r.RequestID = requestID(r.RequestID)
	return ask(b.client.StartBatch, wire.ReadBatch).do(ctx, b, wire.BatchRequest(r))
}

// Batch describes a batch job.
func (b *Backend) Batch(ctx context.Context, t api.BatchTarget) (api.Batch, error) {
	if err := b.own(t.Tenant); err != nil {
		return api.Batch{}, err
	}
	return ask(b.client.Batch, wire.ReadBatch).do(ctx, b, wire.BatchTarget(t))
}

// ListBatches lists batch jobs.
func (b *Backend) ListBatches(ctx context.Context, r api.BatchListRequest) (api.BatchPage, error) {
	if err := b.own(r.Tenant); err != nil {
		return api.BatchPage{}, err
	}
	return ask(b.client.ListBatches, wire.ReadBatchPage).do(ctx, b, wire.ListBatchesRequest(r))
}

// CancelBatch ends a batch job.
func (b *Backend) CancelBatch(ctx context.Context, t api.BatchTarget) error {
	if err := b.own(t.Tenant); err != nil {
		return err
	}
	t.RequestID = requestID(t.RequestID)
	return tell(ctx, b, b.client.CancelBatch, wire.BatchTarget(t))
}
