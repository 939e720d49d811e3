package node

import (
	"context"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/service"
)

// recordOrgs creates a tenant for each organization whose tenant does not exist. A tenant that
// exists keeps its settings.
func recordOrgs(ctx context.Context, n *Node, cfg *ServerConfig) error {
	if cfg.Orgs == nil {
		return nil
	}
	admin := n.Admin(cfg.Tenant)
	for _, o := range cfg.Orgs.All() {
		if o.Tenant == cfg.Tenant {
			continue // the home tenant exists without a record
		}
		note := model.Cut(o.Name, service.MaxNote)
		_, err := admin.CreateTenant(ctx, api.TenantChange{Name: o.Tenant, Note: &note})
		if err != nil && !fault.Is(err, fault.AlreadyExists) {
			return fault.New(fault.KindOf(err), "organization %s: %w", o.Slug, err)
		}
	}
	return nil
}
