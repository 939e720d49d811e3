package grpcapi

import (
	"cmp"
	"context"
	"slices"
	"time"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/wire"
)

// admin is AdminService. The interceptors admit only callers that may administer the server.
// Callers that may read the audit log can call Audit.
type admin struct {
	pb.UnimplementedAdminServiceServer

	to api.Admin
}

// serverAdmin is the api.Admin of a store, with the facts that only a server knows.
type serverAdmin struct {
	api.Admin

	server *Server
	began  model.Time
}

// WorkerSessions lists the workers that are connected to this server.
func (a *serverAdmin) WorkerSessions(_ context.Context, tenant string) ([]api.WorkerSession, error) {
	return a.server.work.list(tenant), nil
}

// DrainWorker asks a worker to drain.
func (a *serverAdmin) DrainWorker(ctx context.Context, r api.DrainRequest) error {
	if r.Patience < 0 || r.Patience > maxPatience {
		return fault.New(fault.Invalid, "a worker may take %s to drain: at least 0 and at most %s", r.Patience, maxPatience)
	}
	s := a.server.work.find(r.Session)
	if s == nil {
		return fault.New(fault.NotFound, "no worker with session %.80q is connected to this server", r.Session)
	}
	s.drain(ctx, cmp.Or(r.Patience, defaultDrain))
	return nil
}

// Nodes lists the nodes, and adds to the entry of this node its address.
func (a *serverAdmin) Nodes(ctx context.Context) ([]api.NodeInfo, error) {
	all, err := a.Admin.Nodes(ctx)
	for i := range all {
		if all[i].Self {
			all[i].Address = a.server.config.Address
		}
	}
	return all, err
}

// Health returns the state of the server and of its store.
func (a *serverAdmin) Health(ctx context.Context) (api.Health, error) {
	h, err := a.Admin.Health(ctx)
	if err != nil {
		return h, err
	}
	if a.server.drained.Err() != nil {
		h.Ready, h.Reasons = false, append(h.Reasons, "the server shuts down")
	}
	if a.server.config.Warnings != nil {
		h.Warnings = append(h.Warnings, a.server.config.Warnings()...)
	}
	h.Version, h.Since, h.Workers = a.server.config.Version, a.began, len(a.server.work.all())
	return h, nil
}

// Tenants lists tenants.
func (a *admin) Tenants(ctx context.Context, _ *pb.TenantsRequest) (*pb.TenantInfoList, error) {
	all, err := a.to.Tenants(ctx)
	if err != nil {
		return nil, err
	}
	return wire.TenantInfoList(all), nil
}

// Tenant returns one tenant.
func (a *admin) Tenant(ctx context.Context, m *pb.TenantRequest) (*pb.TenantInfo, error) {
	t, err := a.to.Tenant(ctx, m.GetName())
	if err != nil {
		return nil, err
	}
	return wire.TenantInfo(t), nil
}

// CreateTenant creates a tenant.
func (a *admin) CreateTenant(ctx context.Context, m *pb.TenantChange) (*pb.TenantInfo, error) {
	return ask(ctx, m, wire.ReadTenantChange, a.to.CreateTenant, wire.TenantInfo)
}

// SetTenant changes a tenant.
func (a *admin) SetTenant(ctx context.Context, m *pb.TenantChange) (*pb.TenantInfo, error) {
	return ask(ctx, m, wire.ReadTenantChange, a.to.SetTenant, wire.TenantInfo)
}

// Keys lists keys.
func (a *admin) Keys(ctx context.Context, m *pb.KeysRequest) (*pb.KeyInfoList, error) {
	all, err := a.to.Keys(ctx, m.GetTenant())
	if err != nil {
		return nil, err
	}
	return wire.KeyInfoList(all), nil
}

// CreateKey creates a key.
func (a *admin) CreateKey(ctx context.Context, m *pb.CreateKeyRequest) (*pb.NewKey, error) {
	return ask(ctx, m, wire.ReadCreateKeyRequest, a.to.CreateKey, wire.NewKey)
}

// RevokeKey ends a key.
func (a *admin) RevokeKey(ctx context.Context, m *pb.RevokeKeyRequest) (*pb.Done, error) {
	return done(a.to.RevokeKey(ctx, m.GetId()))
}

// RotateKey replaces a key.
func (a *admin) RotateKey(ctx context.Context, m *pb.RotateKeyRequest) (*pb.NewKey, error) {
	return ask(ctx, m, wire.ReadRotateKeyRequest, a.to.RotateKey, wire.NewKey)
}

// Logins lists sessions of browsers.
func (a *admin) Logins(ctx context.Context, m *pb.LoginsRequest) (*pb.LoginList, error) {
	all, err := a.to.Logins(ctx, m.GetTenant())
	if err != nil {
		return nil, err
	}
	return wire.LoginList(all), nil
}

// EndLogin ends a session of a browser.
func (a *admin) EndLogin(ctx context.Context, m *pb.EndLoginRequest) (*pb.Done, error) {
	return done(a.to.EndLogin(ctx, m.GetId()))
}

// Settings lists settings.
func (a *admin) Settings(ctx context.Context, m *pb.SettingsRequest) (*pb.SettingList, error) {
	all, err := a.to.Settings(ctx, m.GetTenant(), m.GetKind())
	if err != nil {
		return nil, err
	}
	return wire.SettingList(all), nil
}

// SetSetting changes a setting.
func (a *admin) SetSetting(ctx context.Context, m *pb.SettingChange) (*pb.Setting, error) {
	return ask(ctx, m, wire.ReadSettingChange, a.to.SetSetting, wire.Setting)
}

// Nodes lists nodes.
func (a *admin) Nodes(ctx context.Context, _ *pb.NodesRequest) (*pb.NodeInfoList, error) {
	all, err := a.to.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	return wire.NodeInfoList(all), nil
}

// Shards lists shards.
func (a *admin) Shards(ctx context.Context, _ *pb.ShardsRequest) (*pb.ShardInfoList, error) {
	all, err := a.to.Shards(ctx)
	if err != nil {
		return nil, err
	}
	return wire.ShardInfoList(all), nil
}

// DrainNode asks a node to hand its shards over.
func (a *admin) DrainNode(ctx context.Context, m *pb.DrainNodeRequest) (*pb.Done, error) {
	return tell(ctx, m, wire.ReadDrainNodeRequest, a.to.DrainNode)
}

// Rebalance makes all nodes check whether shards should move.
func (a *admin) Rebalance(ctx context.Context, _ *pb.RebalanceRequest) (*pb.Done, error) {
	return done(a.to.Rebalance(ctx))
}

// WorkerSessions lists connected workers.
func (a *admin) WorkerSessions(ctx context.Context, m *pb.WorkerSessionsRequest) (*pb.WorkerSessionList, error) {
	all, err := a.to.WorkerSessions(ctx, m.GetTenant())
	if err != nil {
		return nil, err
	}
	return wire.WorkerSessionList(all), nil
}

// DrainWorker asks a worker to drain.
func (a *admin) DrainWorker(ctx context.Context, m *pb.DrainWorkerRequest) (*pb.Done, error) {
	return tell(ctx, m, wire.ReadDrainWorkerRequest, a.to.DrainWorker)
}

// Health returns the state of the server and of its store.
func (a *admin) Health(ctx context.Context, _ *pb.HealthRequest) (*pb.HealthReply, error) {
	h, err := a.to.Health(ctx)
	if err != nil {
		return nil, err
	}
	return wire.HealthReply(h), nil
}

// Audit lists administrative actions.
func (a *admin) Audit(ctx context.Context, m *pb.AuditRequest) (*pb.AuditPage, error) {
	return ask(ctx, m, wire.ReadAuditRequest, a.to.Audit, wire.AuditPage)
}

// all returns all sessions.
func (w *Work) all() []*session {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]*session, 0, len(w.sessions))
	for _, s := range w.sessions {
		all = append(all, s)
	}
	return all
}

// find returns a session, or nil if there is none.
func (w *Work) find(id string) *session {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sessions[id]
}

// list describes the sessions of a tenant, the oldest first. If tenant is empty, it describes the
// sessions of all tenants.
func (w *Work) list(tenant string) (list []api.WorkerSession) {
	for _, s := range w.all() {
		if tenant == "" || s.tenant == tenant {
			list = append(list, s.describe())
		}
	}
	slices.SortFunc(list, func(a, b api.WorkerSession) int {
		return cmp.Or(cmp.Compare(a.Since, b.Since), cmp.Compare(a.ID, b.ID))
	})
	return list
}

// describe says who has opened the session, and what the worker of the session holds.
func (s *session) describe() api.WorkerSession {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := api.WorkerSession{
		ID: s.id, Tenant: s.tenant, Agent: s.agent, Caller: s.caller, Since: s.since, Heard: model.TimeOf(time.UnixMicro(s.heard.Load())),
		Connected: s.detached != nil, Draining: s.draining,
	}
	for _, j := range s.offers {
		switch j.GetRole() {
		case pb.Role_ROLE_WORKFLOWS:
			d.Workflows = j.GetKinds()
		case pb.Role_ROLE_TASKS:
			d.Name, d.Queues, d.Activities, d.Slots = j.GetName(), j.GetQueues(), j.GetKinds(), int(j.GetSlots())
		case pb.Role_ROLE_ENTITIES:
			for _, e := range j.GetEntities() {
				d.Entities = append(d.Entities, e.GetType())
			}
		case pb.Role_ROLE_UNSPECIFIED:
		}
	}

	if r := s.workflows; r != nil {
		r.mu.Lock()
		d.Runs = len(r.held)
		r.mu.Unlock()
	}
	if r := s.tasks; r != nil {
		r.mu.Lock()
		d.Tasks = len(r.held)
		r.mu.Unlock()
	}
	if r := s.entities; r != nil {
		r.mu.Lock()
		d.Calls = len(r.held)
		r.mu.Unlock()
	}
	return d
}
