package api

import (
	"context"
	"time"

	"github.com/perdure/perdure/internal/model"
)

// Admin has the calls of the operators of a whole server or store. They concern all tenants, so no
// caller that belongs to one tenant may make them.
type Admin interface {
	// Tenants lists the tenants that exist, by name: tenants that were created, and tenants that
	// have executions or settings.
	Tenants(ctx context.Context) ([]TenantInfo, error)
	// Tenant returns one tenant, or NotFound.
	Tenant(ctx context.Context, name string) (TenantInfo, error)
	// CreateTenant records a tenant. It returns AlreadyExists when the tenant has a record.
	CreateTenant(ctx context.Context, c TenantChange) (TenantInfo, error)
	// SetTenant changes the fields that are not nil. It returns NotFound for an unknown tenant.
	SetTenant(ctx context.Context, c TenantChange) (TenantInfo, error)

	// Keys lists the keys of a tenant; with an empty tenant all keys, including admin keys.
	Keys(ctx context.Context, tenant string) ([]KeyInfo, error)
	// CreateKey creates a key. Only its reply ever has the secret.
	CreateKey(ctx context.Context, r KeyRequest) (NewKey, error)
	// RevokeKey ends a key on all nodes, with the connections of its workers and the calls that
	// wait. It returns NotFound when there is no such key.
	RevokeKey(ctx context.Context, id string) error
	// RotateKey creates a key with the tenant, the roles and the note of an old key. The old key
	// ends after the overlap. It returns NotFound when there is no such key.
	RotateKey(ctx context.Context, r RotateRequest) (NewKey, error)

	// CreateLogin opens a session of a browser for a caller that has presented a key or a token.
	// Only its reply ever has the secret.
	CreateLogin(ctx context.Context, r LoginRequest) (NewLogin, error)
	// Logins lists the sessions of browsers of one tenant, or of all tenants, the oldest first.
	Logins(ctx context.Context, tenant string) ([]LoginInfo, error)
	// EndLogin ends a session on all nodes, with the calls that wait. It returns NotFound when
	// there is no such session.
	EndLogin(ctx context.Context, id string) error

	// Settings lists the settings of a tenant, by kind and name. An empty kind means all kinds.
	Settings(ctx context.Context, tenant, kind string) ([]Setting, error)
	// SetSetting creates, replaces or removes a setting. The engine checks it in the same way as
	// the call that exists for settings of this kind. It returns Conflict when the setting has
	// another version than the caller expects.
	SetSetting(ctx context.Context, c SettingChange) (Setting, error)

	// Nodes lists the nodes of the cluster.
	Nodes(ctx context.Context) ([]NodeInfo, error)
	// Shards lists the shards in order, with their owners, and where they should be.
	Shards(ctx context.Context) ([]ShardInfo, error)
	// DrainNode asks a node to hand its shards over and to take no others, or withdraws that
	// request. It returns when the request is stored. It returns NotFound when there is no such
	// node, and Conflict when no other node could take the shards.
	DrainNode(ctx context.Context, r NodeDrain) error
	// Rebalance makes all nodes check at once whether shards should move. They also check by
	// themselves, every few seconds.
	Rebalance(ctx context.Context) error

	// WorkerSessions lists the workers that are connected to the server that answers, of one
	// tenant or of all. A store without a server has none.
	WorkerSessions(ctx context.Context, tenant string) ([]WorkerSession, error)
	// DrainWorker asks a worker to finish what it runs, to take nothing new in the meantime, and to
	// connect again. It returns when the worker has been asked.
	DrainWorker(ctx context.Context, r DrainRequest) error
	// Health returns whether the server that answers can serve, and if not, why.
	Health(ctx context.Context) (Health, error)

	// Audit lists administrative actions, newest first. Unlike the other calls it also serves
	// callers of one tenant: they see the actions that concern their tenant.
	Audit(ctx context.Context, r AuditRequest) (AuditPage, error)
}

// TenantInfo describes a tenant.
type TenantInfo struct {
	Name      string
	Note      string
	Allowance Allowance
	// Disabled tenants cannot be reached with their keys.
	Disabled bool
	// Created is when the tenant was recorded; zero for a tenant that only has executions or
	// settings.
	Created model.Time
}

// TenantChange changes a tenant. A nil field stays as it is.
type TenantChange struct {
	Name         string
	Note         *string
	Disabled     *bool
	Open, Starts *int64
	Weight       *int
	Retention    *time.Duration
}

// KeyInfo describes a key without its secret.
type KeyInfo struct {
	ID string
	// Tenant that the key belongs to; empty for an admin key.
	Tenant  string
	Admin   bool
	Note    string
	Created model.Time
	// Roles say what the key may do; none for everything in its tenant.
	Roles []string
	// Expires is when the key ends by itself; zero for never.
	Expires model.Time
	// Used is when a server last let a caller in with the key, to within some minutes; zero for
	// never.
	Used model.Time
}

// KeyRequest creates a key: of a tenant, or an admin key.
type KeyRequest struct {
	Tenant string
	Admin  bool
	Note   string
	// Roles of the key; none for everything in its tenant. An admin key has none.
	Roles []string
	// Lifetime after which the key ends by itself; 0 for never.
	Lifetime time.Duration
}

// RotateRequest replaces a key.
type RotateRequest struct {
	ID string
	// Overlap is how long the old key still works.
	Overlap time.Duration
}

// NewKey is a key that was just created.
type NewKey struct {
	KeyInfo
	// Secret is what the caller presents. It is stored nowhere.
	Secret string
}

// Setting is a stored setting.
type Setting struct {
	Kind, Name string
	// Version grows with every change of any setting.
	Version int64
	At      model.Time
	// Body is JSON; empty for settings that nodes write in an encoding of their own.
	Body []byte
	// Fixed settings are written by nodes, or by their own calls. SetSetting refuses them.
	Fixed bool
}

// SettingChange changes a setting.
type SettingChange struct {
	Tenant, Kind, Name string
	// Body is the new JSON; empty removes the setting.
	Body []byte
	// Version that the setting must have, where 0 means that it must not exist; nil for any.
	Version *int64
}

// NodeInfo describes a node.
type NodeInfo struct {
	ID model.NodeID
	// Host is the name of the machine and the process.
	Host    string
	Version string
	// Since is when the node began, by its own clock.
	Since model.Time
	// Expires is when the lease of the node ends. Live says that it has not ended.
	Expires  model.Time
	Live     bool
	Draining bool
	// Shards that the node owns.
	Shards int
	// Weight is the share of the shards that the node should own, relative to the other nodes; 0
	// for a node of an older version.
	Weight int
	// Drained means that an operator has asked the node to hand its shards over.
	Drained bool
	// Groups are the shard groups whose shards the node takes; nil if the server is of an older
	// version.
	Groups []string
	// Self marks the node that answers, and Address is where it listens. Other nodes have none.
	Self    bool
	Address string
}

// ShardInfo describes a shard.
type ShardInfo struct {
	Shard model.ShardID
	// Group is the shard group that the shard belongs to; empty if the server is of an older
	// version.
	Group string
	// Owner is the node that owns the shard; zero if none does.
	Owner model.NodeID
	// Target is the node that should own it; zero if none can. If it is not the owner, the shard
	// moves.
	Target model.NodeID
}

// NodeDrain asks a node to hand its shards over.
type NodeDrain struct {
	Node model.NodeID
	// Undo lets the node take shards again.
	Undo bool
}

// WorkerSession is a worker that is connected to a server.
type WorkerSession struct {
	ID     string
	Tenant string
	// Agent is the name and version of the program. Caller is the name of the caller that
	// connected, such as a key.
	Agent, Caller string
	// Name of the worker that executes tasks; empty without one.
	Name                                    string
	Workflows, Entities, Queues, Activities []string
	Slots                                   int
	Since                                   model.Time
	// Heard is when the server last got something from the worker.
	Heard model.Time
	// Connected is false while the server waits for the worker to come back.
	Connected, Draining bool
	// Runs, Calls and Tasks count what the worker holds.
	Runs, Calls, Tasks int
}

// DrainRequest asks a worker to drain.
type DrainRequest struct {
	Session string
	// Patience is how long the worker may take; 0 for the server's default.
	Patience time.Duration
}

// Health is the state of a server.
type Health struct {
	// Ready means that the server can serve. Reasons say why it cannot.
	Ready   bool
	Reasons []string
	// Warnings are problems that operators should repair although the server can serve.
	Warnings []string
	Version  string
	Node     model.NodeID
	// Since is when the server began.
	Since model.Time
	// Workers that are connected to it.
	Workers int
	// Store is the state of the store. It is nil if the server is of an older version or could not
	// read its store. In the second case StoreError says why.
	Store      *StoreHealth
	StoreError string
}

// StoreHealth is the state of a store, as a server knows it.
type StoreHealth struct {
	// Now is the time of the store, at about the time of the answer.
	Now model.Time
	// Schema is the version of the schema, and Shards the number of shards.
	Schema, Shards int
	// Role, Superuser, Standby and Pooler describe the connection to a database server. Role is
	// empty for a store without one.
	Role      string
	Superuser bool
	Standby   bool
	Pooler    string
}
