package service

import (
	"context"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/audit"
)

// Audit lists administrative actions. A caller of a tenant sees only the actions of its tenant.
func (a *Admin) Audit(ctx context.Context, r api.AuditRequest) (api.AuditPage, error) {
	return audit.List(ctx, a.store, r)
}
