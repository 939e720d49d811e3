package grpcapi

import (
	"context"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/wire"
)

// StartBatch starts a batch job.
func (c *client) StartBatch(ctx context.Context, m *pb.BatchRequest) (*pb.BatchJob, error) {
	return ask(ctx, m, wire.ReadBatchRequest, c.backend.StartBatch, wire.Batch)
}

// Batch describes a batch job.
func (c *client) Batch(ctx context.Context, m *pb.BatchTarget) (*pb.BatchJob, error) {
	return ask(ctx, m, wire.ReadBatchTarget, c.backend.Batch, wire.Batch)
}

// ListBatches lists batch jobs.
func (c *client) ListBatches(ctx context.Context, m *pb.ListBatchesRequest) (*pb.BatchPage, error) {
	return ask(ctx, m, wire.ReadListBatchesRequest, c.backend.ListBatches, wire.BatchPage)
}

// CancelBatch ends a batch job.
func (c *client) CancelBatch(ctx context.Context, m *pb.BatchTarget) (*pb.Done, error) {
	return tell(ctx, m, wire.ReadBatchTarget, c.backend.CancelBatch)
}
