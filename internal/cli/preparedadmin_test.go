package cli

import (
	"context"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
)

// preparedAdmin answers commands of operators with fixed data.
type preparedAdmin struct {
	api.Admin

	empty bool
}

var acme = api.TenantInfo{
	Name: "acme", Note: prose, Allowance: api.Allowance{Open: 10_000, Starts: 100, Weight: 3, Retention: 72 * time.Hour}, Disabled: true, Created: noon,
}

func (p preparedAdmin) Tenants(context.Context) ([]api.TenantInfo, error) {
	if p.empty {
		return nil, nil
	}
	return []api.TenantInfo{acme, {Name: model.DefaultTenant}}, nil
}

func (preparedAdmin) Tenant(context.Context, string) (api.TenantInfo, error) { return acme, nil }

func (preparedAdmin) CreateTenant(context.Context, api.TenantChange) (api.TenantInfo, error) {
	return acme, nil
}

func (preparedAdmin) SetTenant(context.Context, api.TenantChange) (api.TenantInfo, error) {
	return acme, nil
}

func (p preparedAdmin) Audit(context.Context, api.AuditRequest) (api.AuditPage, error) {
	if p.empty {
		return api.AuditPage{}, nil
	}
	return api.AuditPage{Entries: []api.AuditEntry{
		{
			At: noon, Tenant: "acme", Caller: "key k3v9x2m7q1ab", CallerTenant: "acme", Admin: true, Door: "grpc", From: "10.0.0.7:51234", Action: "breaker:set", Call: "TripBreaker",
			Resource: "breaker smtp", Reason: "the provider is down", RequestID: "r-1", Before: []byte(`{"state":"closed"}`), After: []byte(`{"state":"open"}`), Outcome: api.AuditDone,
		},
		{At: noon, Caller: "key m7q1abk3v9x2", Door: "rest", Action: "tenant:write", Outcome: api.AuditDenied, Error: "denied: tenant:write needs an admin key", Unrecorded: 12},
		{At: noon, Tenant: "acme", Unreadable: true},
	}}, nil
}

func (p preparedAdmin) Keys(context.Context, string) ([]api.KeyInfo, error) {
	if p.empty {
		return nil, nil
	}
	return []api.KeyInfo{{ID: "k3v9x2m7q1ab", Tenant: "acme", Note: prose, Created: noon, Roles: []string{"client", "worker"}, Expires: after(time.Hour), Used: noon}, {ID: "m7q1abk3v9x2", Admin: true, Created: after(time.Hour)}}, nil
}

func (preparedAdmin) CreateKey(_ context.Context, r api.KeyRequest) (api.NewKey, error) {
	return api.NewKey{KeyInfo: api.KeyInfo{ID: "k3v9x2m7q1ab", Tenant: r.Tenant, Admin: r.Admin, Note: "ci", Created: noon}, Secret: "perdure_k3v9x2m7q1ab_SECRET"}, nil
}

func (preparedAdmin) RotateKey(context.Context, api.RotateRequest) (api.NewKey, error) {
	return api.NewKey{KeyInfo: api.KeyInfo{ID: "m7q1abk3v9x2", Tenant: "acme", Note: "ci", Created: noon, Roles: []string{"client"}, Expires: after(time.Hour), Used: noon}, Secret: "perdure_m7q1abk3v9x2_SECRET"}, nil
}

func (preparedAdmin) RevokeKey(context.Context, string) error { return nil }

func (p preparedAdmin) Settings(context.Context, string, string) ([]api.Setting, error) {
	if p.empty {
		return nil, nil
	}
	return []api.Setting{
		{Kind: "breaker_state", Name: "bank", Version: 9, At: noon, Fixed: true},
		{Kind: "limit", Name: "smtp", Version: 17, At: noon, Body: []byte(`{"name":"smtp","per":"name","concurrency":5}`)},
	}, nil
}

func (preparedAdmin) SetSetting(_ context.Context, c api.SettingChange) (api.Setting, error) {
	return api.Setting{Kind: c.Kind, Name: c.Name, Version: 18, At: noon, Body: c.Body}, nil
}

func (p preparedAdmin) Nodes(context.Context) ([]api.NodeInfo, error) {
	if p.empty {
		return nil, nil
	}
	return []api.NodeInfo{
		{ID: model.NodeID(runOf(9)), Host: "shop-1.example.com:4711", Version: "v1.4.2", Since: noon, Expires: after(10 * time.Second), Live: true, Shards: 48, Self: true, Address: "10.0.0.7:7800", Weight: 100, Groups: []string{"default", "video"}},
		{ID: model.NodeID(runOf(7)), Host: "shop-3.example.com:4713", Version: "v1.4.2", Since: noon, Expires: after(10 * time.Second), Live: true, Weight: 200, Drained: true, Groups: []string{"default"}},
		{ID: model.NodeID(runOf(8)), Host: "shop-2.example.com:4712", Since: noon, Expires: after(-time.Second)},
	}, nil
}

func (p preparedAdmin) Shards(context.Context) ([]api.ShardInfo, error) {
	if p.empty {
		return nil, nil
	}
	one, three := model.NodeID(runOf(9)), model.NodeID(runOf(7))
	return []api.ShardInfo{
		{Shard: 0, Group: "default", Owner: one, Target: one},
		{Shard: 1, Group: "default", Owner: three, Target: one},
		{Shard: 2, Group: "video", Database: "frankfurt", Target: one},
		{Shard: 3, Group: "gpu"},
	}, nil
}

func (preparedAdmin) DrainNode(context.Context, api.NodeDrain) error { return nil }

func (preparedAdmin) Rebalance(context.Context) error { return nil }

func (p preparedAdmin) WorkerSessions(context.Context, string) ([]api.WorkerSession, error) {
	if p.empty {
		return nil, nil
	}
	return []api.WorkerSession{
		{
			ID: "session_K7X2M9QFH3T5RSWZ1BCD4EGJKN", Tenant: "acme", Agent: "v1.4.2", Caller: "key k3v9x2m7q1ab", Name: "shop-1-4711", Workflows: []string{"batch", "order"},
			Entities: []string{"entity:account"}, Queues: []string{"mails"}, Activities: []string{"mail"}, Slots: 100, Since: noon, Heard: after(time.Minute), Connected: true,
			Runs: 12, Calls: 1, Tasks: 7,
		},
		{ID: "session_H3T5RSWZ1BCD4EGJKNK7X2M9QF", Tenant: "acme", Caller: "admin", Since: noon, Heard: noon, Draining: true},
		{ID: "session_1BCD4EGJKNK7X2M9QFH3T5RSWZ", Tenant: "beta", Caller: "admin", Since: noon, Heard: noon},
	}, nil
}

func (preparedAdmin) DrainWorker(context.Context, api.DrainRequest) error { return nil }
