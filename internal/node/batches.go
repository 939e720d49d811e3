package node

import (
	"context"
	"log/slog"

	"github.com/perdure/perdure/internal/batchjob"
)

// ServeBatches runs the batch jobs of all tenants until stop is called. Servers do this by
// themselves.
func (n *Node) ServeBatches(ctx context.Context, log *slog.Logger) (stop func(), err error) {
	return batchjob.ServeAll(ctx, n.service, log)
}
