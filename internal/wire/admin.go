package wire

import (
	"time"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
)

// TenantInfo builds the message that describes a tenant.
func TenantInfo(t api.TenantInfo) *pb.TenantInfo {
	return &pb.TenantInfo{Name: t.Name, Note: text(t.Note), Allowance: AllowanceValue(t.Allowance), Disabled: t.Disabled, Created: int64(t.Created)}
}

// ReadTenantInfo reads a tenant.
func ReadTenantInfo(_ string, t *pb.TenantInfo) (api.TenantInfo, error) {
	a, err := ReadAllowanceValue("", t.GetAllowance())
	return api.TenantInfo{Name: t.GetName(), Note: t.GetNote(), Allowance: a, Disabled: t.GetDisabled(), Created: model.Time(t.GetCreated())}, err
}

// TenantInfoList builds the message with tenants.
func TenantInfoList(all []api.TenantInfo) *pb.TenantInfoList {
	return &pb.TenantInfoList{Tenants: each(all, TenantInfo)}
}

// ReadTenantInfoList reads tenants.
func ReadTenantInfoList(_ string, l *pb.TenantInfoList) ([]api.TenantInfo, error) {
	return readEach("", l.GetTenants(), ReadTenantInfo)
}

// TenantChange builds the message that changes a tenant.
func TenantChange(c api.TenantChange) *pb.TenantChange {
	m := &pb.TenantChange{Name: c.Name, Note: c.Note, Disabled: c.Disabled, Open: c.Open, Starts: c.Starts}
	if c.Weight != nil {
		m.Weight = new(int64(*c.Weight))
	}
	if c.Retention != nil {
		m.Retention = new(int64(*c.Retention))
	}
	return m
}

// ReadTenantChange reads a change.
func ReadTenantChange(_ string, m *pb.TenantChange) (api.TenantChange, error) {
	c := api.TenantChange{Name: m.GetName(), Note: m.Note, Disabled: m.Disabled, Open: m.Open, Starts: m.Starts}
	if m.Weight != nil {
		c.Weight = new(int(m.GetWeight()))
	}
	if m.Retention != nil {
		c.Retention = new(time.Duration(m.GetRetention()))
	}
	return c, nil
}

// KeyInfo builds the message that describes a key.
func KeyInfo(k api.KeyInfo) *pb.KeyInfo {
	return &pb.KeyInfo{
		Id: k.ID, Tenant: k.Tenant, Admin: k.Admin, Note: text(k.Note), Created: int64(k.Created), Roles: k.Roles, Expires: int64(k.Expires), Used: int64(k.Used),
	}
}

func readKeyInfo(_ string, k *pb.KeyInfo) (api.KeyInfo, error) {
	return api.KeyInfo{
		ID: k.GetId(), Tenant: k.GetTenant(), Admin: k.GetAdmin(), Note: k.GetNote(), Created: model.Time(k.GetCreated()),
		Roles: k.GetRoles(), Expires: model.Time(k.GetExpires()), Used: model.Time(k.GetUsed()),
	}, nil
}

// KeyInfoList builds the message with keys.
func KeyInfoList(all []api.KeyInfo) *pb.KeyInfoList {
	return &pb.KeyInfoList{Keys: each(all, KeyInfo)}
}

// ReadKeyInfoList reads keys.
func ReadKeyInfoList(_ string, l *pb.KeyInfoList) ([]api.KeyInfo, error) {
	return readEach("", l.GetKeys(), readKeyInfo)
}

// CreateKeyRequest builds the message that creates a key.
func CreateKeyRequest(r api.KeyRequest) *pb.CreateKeyRequest {
	return &pb.CreateKeyRequest{Tenant: r.Tenant, Admin: r.Admin, Note: r.Note, Roles: r.Roles, Lifetime: int64(r.Lifetime)}
}

// ReadCreateKeyRequest reads the request for a key.
func ReadCreateKeyRequest(_ string, m *pb.CreateKeyRequest) (api.KeyRequest, error) {
	return api.KeyRequest{Tenant: m.GetTenant(), Admin: m.GetAdmin(), Note: m.GetNote(), Roles: m.GetRoles(), Lifetime: time.Duration(m.GetLifetime())}, nil
}

// RotateKeyRequest builds the message that replaces a key.
func RotateKeyRequest(r api.RotateRequest) *pb.RotateKeyRequest {
	return &pb.RotateKeyRequest{Id: r.ID, Overlap: int64(r.Overlap)}
}

// ReadRotateKeyRequest reads the request to replace a key.
func ReadRotateKeyRequest(_ string, m *pb.RotateKeyRequest) (api.RotateRequest, error) {
	return api.RotateRequest{ID: m.GetId(), Overlap: time.Duration(m.GetOverlap())}, nil
}

// NewKey builds the message for a key with its secret.
func NewKey(k api.NewKey) *pb.NewKey { return &pb.NewKey{Key: KeyInfo(k.KeyInfo), Secret: k.Secret} }

// ReadNewKey reads a key with its secret.
func ReadNewKey(_ string, m *pb.NewKey) (api.NewKey, error) {
	k, err := readKeyInfo("", m.GetKey())
	return api.NewKey{KeyInfo: k, Secret: m.GetSecret()}, err
}

// Setting builds the message for a stored setting.
func Setting(s api.Setting) *pb.Setting {
	return &pb.Setting{Kind: s.Kind, Name: s.Name, Version: s.Version, At: int64(s.At), Body: s.Body, Fixed: s.Fixed}
}

// ReadSetting reads a setting.
func ReadSetting(_ string, m *pb.Setting) (api.Setting, error) {
	return api.Setting{Kind: m.GetKind(), Name: m.GetName(), Version: m.GetVersion(), At: model.Time(m.GetAt()), Body: m.GetBody(), Fixed: m.GetFixed()}, nil
}

// SettingList builds the message with settings.
func SettingList(all []api.Setting) *pb.SettingList {
	return &pb.SettingList{Settings: each(all, Setting)}
}

// ReadSettingList reads settings.
func ReadSettingList(_ string, l *pb.SettingList) ([]api.Setting, error) {
	return readEach("", l.GetSettings(), ReadSetting)
}

// SettingChange builds the message that changes a setting.
func SettingChange(c api.SettingChange) *pb.SettingChange {
	return &pb.SettingChange{Tenant: c.Tenant, Kind: c.Kind, Name: c.Name, Body: c.Body, Version: c.Version}
}

// ReadSettingChange reads a change.
func ReadSettingChange(_ string, m *pb.SettingChange) (api.SettingChange, error) {
	return api.SettingChange{Tenant: m.GetTenant(), Kind: m.GetKind(), Name: m.GetName(), Body: m.GetBody(), Version: m.Version}, nil
}

// NodeInfoList builds the message with nodes.
func NodeInfoList(all []api.NodeInfo) *pb.NodeInfoList {
	return &pb.NodeInfoList{Nodes: each(all, func(n api.NodeInfo) *pb.NodeInfo {
		return &pb.NodeInfo{
			Id: node(n.ID), Host: text(n.Host), Version: text(n.Version), Since: int64(n.Since), Expires: int64(n.Expires), Live: n.Live, Draining: n.Draining,
			Shards: int64(n.Shards), Self: n.Self, Address: n.Address, Weight: int64(n.Weight), Drained: n.Drained,
			Groups: n.Groups,
		}
	})}
}

// ReadNodeInfoList reads nodes.
func ReadNodeInfoList(_ string, l *pb.NodeInfoList) ([]api.NodeInfo, error) {
	return readEach("", l.GetNodes(), func(_ string, n *pb.NodeInfo) (api.NodeInfo, error) {
		id, err := readNode(n.GetId())
		return api.NodeInfo{
			ID: id, Host: n.GetHost(), Version: n.GetVersion(), Since: model.Time(n.GetSince()), Expires: model.Time(n.GetExpires()), Live: n.GetLive(),
			Draining: n.GetDraining(), Shards: int(n.GetShards()), Self: n.GetSelf(), Address: n.GetAddress(), Weight: int(n.GetWeight()), Drained: n.GetDrained(),
			Groups: n.GetGroups(),
		}, err
	})
}

// ShardInfoList builds the message with shards.
func ShardInfoList(all []api.ShardInfo) *pb.ShardInfoList {
	return &pb.ShardInfoList{Shards: each(all, func(s api.ShardInfo) *pb.ShardInfo {
		return &pb.ShardInfo{Shard: uint32(s.Shard), Owner: node(s.Owner), Target: node(s.Target), Group: s.Group, Database: s.Database}
	})}
}

// ReadShardInfoList reads shards.
func ReadShardInfoList(_ string, l *pb.ShardInfoList) ([]api.ShardInfo, error) {
	return readEach("", l.GetShards(), func(_ string, s *pb.ShardInfo) (api.ShardInfo, error) {
		owner, err := readNode(s.GetOwner())
		if err != nil {
			return api.ShardInfo{}, err
		}
		target, err := readNode(s.GetTarget())
		if err != nil {
			return api.ShardInfo{}, err
		}
		shard, err := readShard(s.GetShard())
		return api.ShardInfo{Shard: shard, Owner: owner, Target: target, Group: s.GetGroup(), Database: s.GetDatabase()}, err
	})
}

// DrainNodeRequest builds the message that asks a node to hand its shards over.
func DrainNodeRequest(r api.NodeDrain) *pb.DrainNodeRequest {
	return &pb.DrainNodeRequest{Node: node(r.Node), Undo: r.Undo}
}

// ReadDrainNodeRequest reads the request to drain a node.
func ReadDrainNodeRequest(_ string, m *pb.DrainNodeRequest) (api.NodeDrain, error) {
	id, err := readNode(m.GetNode())
	return api.NodeDrain{Node: id, Undo: m.GetUndo()}, err
}

// WorkerSessionList builds the message with connected workers.
func WorkerSessionList(all []api.WorkerSession) *pb.WorkerSessionList {
	return &pb.WorkerSessionList{Sessions: each(all, func(w api.WorkerSession) *pb.WorkerSession {
		return &pb.WorkerSession{
			Id: w.ID, Tenant: w.Tenant, Agent: text(w.Agent), Caller: text(w.Caller), Name: text(w.Name), Workflows: w.Workflows, Entities: w.Entities,
			Queues: w.Queues, Activities: w.Activities, Slots: int64(w.Slots), Since: int64(w.Since), Heard: int64(w.Heard), Connected: w.Connected,
			Draining: w.Draining, Runs: int64(w.Runs), Calls: int64(w.Calls), Tasks: int64(w.Tasks),
		}
	})}
}

// ReadWorkerSessionList reads connected workers.
func ReadWorkerSessionList(_ string, l *pb.WorkerSessionList) ([]api.WorkerSession, error) {
	return each(l.GetSessions(), func(w *pb.WorkerSession) api.WorkerSession {
		return api.WorkerSession{
			ID: w.GetId(), Tenant: w.GetTenant(), Agent: w.GetAgent(), Caller: w.GetCaller(), Name: w.GetName(), Workflows: w.GetWorkflows(),
			Entities: w.GetEntities(), Queues: w.GetQueues(), Activities: w.GetActivities(), Slots: int(w.GetSlots()), Since: model.Time(w.GetSince()),
			Heard: model.Time(w.GetHeard()), Connected: w.GetConnected(), Draining: w.GetDraining(), Runs: int(w.GetRuns()), Calls: int(w.GetCalls()),
			Tasks: int(w.GetTasks()),
		}
	}), nil
}

// DrainWorkerRequest builds the message that asks a worker to drain.
func DrainWorkerRequest(r api.DrainRequest) *pb.DrainWorkerRequest {
	return &pb.DrainWorkerRequest{Session: r.Session, Patience: int64(r.Patience)}
}

// ReadDrainWorkerRequest reads the request to drain a worker.
func ReadDrainWorkerRequest(_ string, m *pb.DrainWorkerRequest) (api.DrainRequest, error) {
	return api.DrainRequest{Session: m.GetSession(), Patience: time.Duration(m.GetPatience())}, nil
}

// HealthReply builds the message for the state of a server.
func HealthReply(h api.Health) *pb.HealthReply {
	return &pb.HealthReply{
		Ready: h.Ready, Reasons: each(h.Reasons, text), Version: text(h.Version), Node: node(h.Node), Since: int64(h.Since), Workers: int64(h.Workers),
		Store: storeHealth(h.Store), StoreError: text(h.StoreError), Warnings: each(h.Warnings, text),
	}
}

func storeHealth(h *api.StoreHealth) *pb.StoreHealth {
	if h == nil {
		return nil
	}
	return &pb.StoreHealth{
		Now: int64(h.Now), Schema: int64(h.Schema), Shards: int64(h.Shards), Role: text(h.Role), Superuser: h.Superuser, Standby: h.Standby, Pooler: text(h.Pooler),
	}
}

func readStoreHealth(m *pb.StoreHealth) *api.StoreHealth {
	if m == nil {
		return nil
	}
	return &api.StoreHealth{
		Now: model.Time(m.GetNow()), Schema: int(m.GetSchema()), Shards: int(m.GetShards()), Role: m.GetRole(), Superuser: m.GetSuperuser(), Standby: m.GetStandby(), Pooler: m.GetPooler(),
	}
}

// ReadHealthReply reads the state of a server.
func ReadHealthReply(_ string, m *pb.HealthReply) (api.Health, error) {
	id, err := readNode(m.GetNode())
	return api.Health{
		Ready: m.GetReady(), Reasons: m.GetReasons(), Version: m.GetVersion(), Node: id, Since: model.Time(m.GetSince()), Workers: int(m.GetWorkers()),
		Store: readStoreHealth(m.GetStore()), StoreError: m.GetStoreError(), Warnings: m.GetWarnings(),
	}, err
}

// LoginList builds the message with sessions of browsers.
func LoginList(all []api.LoginInfo) *pb.LoginList {
	return &pb.LoginList{Logins: each(all, func(l api.LoginInfo) *pb.LoginInfo {
		return &pb.LoginInfo{
			Id: l.ID, Tenant: l.Tenant, Admin: l.Admin, Caller: text(l.Caller), Roles: l.Roles, Credential: text(l.Credential), Created: int64(l.Created), Expires: int64(l.Expires),
		}
	})}
}

// ReadLoginList reads sessions of browsers.
func ReadLoginList(_ string, l *pb.LoginList) ([]api.LoginInfo, error) {
	return each(l.GetLogins(), func(l *pb.LoginInfo) api.LoginInfo {
		return api.LoginInfo{
			ID: l.GetId(), Tenant: l.GetTenant(), Admin: l.GetAdmin(), Caller: l.GetCaller(), Roles: l.GetRoles(), Credential: l.GetCredential(),
			Created: model.Time(l.GetCreated()), Expires: model.Time(l.GetExpires()),
		}
	}), nil
}

// CallerInfo builds the message that says who a caller is. The reply that contains this message
// has the tenant.
func CallerInfo(c api.CallerInfo) *pb.CallerInfo {
	return &pb.CallerInfo{Name: text(c.Name), Admin: c.Admin, Roles: c.Roles, Actions: c.Actions, Tenants: c.Tenants, Expires: int64(c.Expires)}
}

// ReadCallerInfo reads who a caller is. tenant is the tenant in which the caller acts.
func ReadCallerInfo(tenant string, c *pb.CallerInfo) (api.CallerInfo, error) {
	return api.CallerInfo{
		Name: c.GetName(), Tenant: tenant, Admin: c.GetAdmin(), Roles: c.GetRoles(), Actions: c.GetActions(), Tenants: c.GetTenants(), Expires: model.Time(c.GetExpires()),
	}, nil
}
