package remote

import (
	"context"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/wire"
)

// Admin implements api.Admin on a server. It needs an admin key. If a comment below says that the
// client does not repeat a request, it means a request that may have reached the server.
type Admin struct {
	b      *Backend
	client pb.AdminServiceClient
}

var _ api.Admin = (*Admin)(nil)

// Admin returns the calls of operators.
func (b *Backend) Admin() *Admin { return &Admin{b, pb.NewAdminServiceClient(b.conn)} }

// Tenants lists tenants.
func (a *Admin) Tenants(ctx context.Context) ([]api.TenantInfo, error) {
	return ask(a.client.Tenants, wire.ReadTenantInfoList).do(ctx, a.b, &pb.TenantsRequest{})
}

// Tenant returns one tenant.
func (a *Admin) Tenant(ctx context.Context, name string) (api.TenantInfo, error) {
	return ask(a.client.Tenant, wire.ReadTenantInfo).do(ctx, a.b, &pb.TenantRequest{Name: name})
}

// CreateTenant creates a tenant. The request has no request id, so the client does not repeat it.
func (a *Admin) CreateTenant(ctx context.Context, c api.TenantChange) (api.TenantInfo, error) {
	return askOnce(a.client.CreateTenant, wire.ReadTenantInfo).do(ctx, a.b, wire.TenantChange(c))
}

// SetTenant changes a tenant. The client does not repeat the request, because a second request
// could undo the change of another operator.
func (a *Admin) SetTenant(ctx context.Context, c api.TenantChange) (api.TenantInfo, error) {
	return askOnce(a.client.SetTenant, wire.ReadTenantInfo).do(ctx, a.b, wire.TenantChange(c))
}

// Keys lists keys.
func (a *Admin) Keys(ctx context.Context, tenant string) ([]api.KeyInfo, error) {
	return ask(a.client.Keys, wire.ReadKeyInfoList).do(ctx, a.b, &pb.KeysRequest{Tenant: tenant})
}

// CreateKey creates a key. The client does not repeat the request, because the lost answer
// contained the secret.
func (a *Admin) CreateKey(ctx context.Context, r api.KeyRequest) (api.NewKey, error) {
	return askOnce(a.client.CreateKey, wire.ReadNewKey).do(ctx, a.b, wire.CreateKeyRequest(r))
}

// RevokeKey ends a key. The client does not repeat the request, because a second request would not
// find the key.
func (a *Admin) RevokeKey(ctx context.Context, id string) error {
	return tellOnce(ctx, a.b, a.client.RevokeKey, &pb.RevokeKeyRequest{Id: id})
}

// RotateKey replaces a key. The client does not repeat the request, because the lost answer
// contained the secret.
func (a *Admin) RotateKey(ctx context.Context, r api.RotateRequest) (api.NewKey, error) {
	return askOnce(a.client.RotateKey, wire.ReadNewKey).do(ctx, a.b, wire.RotateKeyRequest(r))
}

// CreateLogin refuses the request. Sessions are for browsers, which open them over REST.
func (*Admin) CreateLogin(context.Context, api.LoginRequest) (api.NewLogin, error) {
	return api.NewLogin{}, fault.New(fault.Invalid, "sessions are for browsers, which open them with POST /v1/session")
}

// Logins lists sessions of browsers.
func (a *Admin) Logins(ctx context.Context, tenant string) ([]api.LoginInfo, error) {
	return ask(a.client.Logins, wire.ReadLoginList).do(ctx, a.b, &pb.LoginsRequest{Tenant: tenant})
}

// EndLogin ends a session. The client does not repeat the request, because a second request would
// not find the session.
func (a *Admin) EndLogin(ctx context.Context, id string) error {
	return tellOnce(ctx, a.b, a.client.EndLogin, &pb.EndLoginRequest{Id: id})
}

// Settings lists settings.
func (a *Admin) Settings(ctx context.Context, tenant, kind string) ([]api.Setting, error) {
	return ask(a.client.Settings, wire.ReadSettingList).do(ctx, a.b, &pb.SettingsRequest{Tenant: tenant, Kind: kind})
}

// SetSetting changes a setting. The client does not repeat the request, because a second request
// could undo the change of another operator.
func (a *Admin) SetSetting(ctx context.Context, c api.SettingChange) (api.Setting, error) {
	return askOnce(a.client.SetSetting, wire.ReadSetting).do(ctx, a.b, wire.SettingChange(c))
}

// Nodes lists nodes.
func (a *Admin) Nodes(ctx context.Context) ([]api.NodeInfo, error) {
	return ask(a.client.Nodes, wire.ReadNodeInfoList).do(ctx, a.b, &pb.NodesRequest{})
}

// Shards lists shards.
func (a *Admin) Shards(ctx context.Context) ([]api.ShardInfo, error) {
	return ask(a.client.Shards, wire.ReadShardInfoList).do(ctx, a.b, &pb.ShardsRequest{})
}

// DrainNode asks a node to hand its shards over.
func (a *Admin) DrainNode(ctx context.Context, r api.NodeDrain) error {
	return tell(ctx, a.b, a.client.DrainNode, wire.DrainNodeRequest(r))
}

// Rebalance makes all nodes check whether shards should move.
func (a *Admin) Rebalance(ctx context.Context) error {
	return tell(ctx, a.b, a.client.Rebalance, &pb.RebalanceRequest{})
}

// WorkerSessions lists connected workers.
func (a *Admin) WorkerSessions(ctx context.Context, tenant string) ([]api.WorkerSession, error) {
	return ask(a.client.WorkerSessions, wire.ReadWorkerSessionList).do(ctx, a.b, &pb.WorkerSessionsRequest{Tenant: tenant})
}

// DrainWorker asks a worker to drain.
func (a *Admin) DrainWorker(ctx context.Context, r api.DrainRequest) error {
	return tell(ctx, a.b, a.client.DrainWorker, wire.DrainWorkerRequest(r))
}

// Health returns the state of the server and of its store.
func (a *Admin) Health(ctx context.Context) (api.Health, error) {
	return ask(a.client.Health, wire.ReadHealthReply).do(ctx, a.b, &pb.HealthRequest{})
}

// Audit lists administrative actions.
func (a *Admin) Audit(ctx context.Context, r api.AuditRequest) (api.AuditPage, error) {
	return ask(a.client.Audit, wire.ReadAuditPage).do(ctx, a.b, wire.AuditRequest(r))
}
