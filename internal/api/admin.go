package api

import (
	"context"
	"time"

	"github.com/perdure/perdure/internal/model"
)

// Admin has the calls of the operators of a whole server or store. These calls concern all tenants,
// so a caller that belongs to one tenant may not make them.
type Admin interface {
	// Tenants lists the tenants that exist, sorted by name: tenants that were created, and tenants
	// that have executions or settings.
	Tenants(ctx context.Context) ([]TenantInfo, error)
	// Tenant returns one tenant, or NotFound.
	Tenant(ctx context.Context, name string) (TenantInfo, error)
	// CreateTenant records a tenant. It returns AlreadyExists if the tenant already has a record.
	CreateTenant(ctx context.Context, c TenantChange) (TenantInfo, error)
	// SetTenant changes the fields that are not nil. It returns NotFound for an unknown tenant.
	SetTenant(ctx context.Context, c TenantChange) (TenantInfo, error)

	// Keys lists the keys of a tenant. With an empty tenant it lists all keys, including admin
	// keys.
	Keys(ctx context.Context, tenant string) ([]KeyInfo, error)
	// CreateKey creates a key. Only the reply has the secret; the server cannot show it again.
	CreateKey(ctx context.Context, r KeyRequest) (NewKey, error)
	// RevokeKey ends a key on all nodes. It also ends the connections of workers and the waiting
	// calls that use the key. It returns NotFound if there is no such key.
	RevokeKey(ctx context.Context, id string) error
	// RotateKey creates a key with the tenant, the roles and the note of an old key. The old key
	// ends after the overlap. RotateKey returns NotFound if there is no such key.
	RotateKey(ctx context.Context, r RotateRequest) (NewKey, error)

	// CreateLogin opens a session of a browser for a caller that has presented a key or a token.
	// Only the reply has the secret; the server cannot show it again.
	CreateLogin(ctx context.Context, r LoginRequest) (NewLogin, error)
	// Logins lists the sessions of browsers of one tenant, or of all tenants, the oldest first.
	Logins(ctx context.Context, tenant string) ([]LoginInfo, error)
	// EndLogin ends a session, and its waiting calls, on all nodes. It returns NotFound if there is
	// no such session.
	EndLogin(ctx context.Context, id string) error

	// Settings lists the settings of a tenant, sorted by kind and name. An empty kind means all
	// kinds, except the settings that hold keys and sessions of browsers.
	Settings(ctx context.Context, tenant, kind string) ([]Setting, error)
	// SetSetting creates, replaces or removes a setting. The engine makes the same checks as the
	// separate call for settings of this kind. SetSetting returns Conflict if the setting does not
	// have the version that the caller expects.
	SetSetting(ctx context.Context, c SettingChange) (Setting, error)

	// Nodes lists the nodes of the cluster.
	Nodes(ctx context.Context) ([]NodeInfo, error)
	// Shards lists the shards in order, each with its owner and the node that should own it.
	Shards(ctx context.Context) ([]ShardInfo, error)
	// DrainNode asks a node to hand its shards over and to take no others, or withdraws that
	// request. It returns when the request is stored. It returns NotFound if there is no such node,
	// and Conflict if no other node could take the shards.
	DrainNode(ctx context.Context, r NodeDrain) error
	// Rebalance makes all nodes check immediately whether shards should move. The nodes also check
	// every few seconds without Rebalance.
	Rebalance(ctx context.Context) error

	// WorkerSessions lists the workers that are connected to the server that answers. With an empty
	// tenant it lists the workers of all tenants. A store without a server has no sessions.
	WorkerSessions(ctx context.Context, tenant string) ([]WorkerSession, error)
	// DrainWorker asks a worker to finish what it runs without taking new work, and then to connect
	// again. When it returns, the server gives the worker nothing new and has sent the request. It
	// does not wait for the worker.
	DrainWorker(ctx context.Context, r DrainRequest) error
	// Health says whether the server that answers can serve requests, and if not, why.
	Health(ctx context.Context) (Health, error)

	// Audit lists administrative actions, newest first. Unlike the other calls, Audit also serves
	// callers that belong to one tenant: they see the actions that concern their tenant.
	Audit(ctx context.Context, r AuditRequest) (AuditPage, error)
}

// TenantInfo describes a tenant.
type TenantInfo struct {
	Name      string
	Note      string
	Allowance Allowance
	// Disabled means that the server refuses the keys of the tenant.
	Disabled bool
	// Created is when the tenant was recorded; zero for a tenant that only has executions or
	// settings.
	Created model.Time
}

// TenantChange changes a tenant. A nil field changes nothing.
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
	// Tenant is the tenant that the key belongs to; empty for an admin key.
	Tenant  string
	Admin   bool
	Note    string
	Created model.Time
	// Roles say what the key may do. A key without roles may do everything in its tenant.
	Roles []string
	// Expires is when the key ends by itself; zero for never.
	Expires model.Time
	// Used is when a server last accepted the key, to within about ten minutes; zero for never.
	Used model.Time
}

// KeyRequest creates a key: of a tenant, or an admin key.
type KeyRequest struct {
	Tenant string
	Admin  bool
	Note   string
	// Roles say what the key may do. A key without roles may do everything in its tenant. An admin
	// key has no roles.
	Roles []string
	// Lifetime is the time after which the key ends by itself; 0 for never.
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
	// Secret is what the caller presents. The server does not store it.
	Secret string
}

// Setting is a stored setting.
type Setting struct {
	Kind, Name string
	// Version grows with every change of any setting.
	Version int64
	At      model.Time
	// Body is JSON. It is empty for settings that nodes write in another encoding.
	Body []byte
	// Fixed means that SetSetting refuses to change the setting, because only nodes or another call
	// may write it.
	Fixed bool
}

// SettingChange changes a setting.
type SettingChange struct {
	Tenant, Kind, Name string
	// Body is the new JSON; empty removes the setting.
	Body []byte
	// Version is the version that the setting must have: 0 means that it must not exist, nil means
	// any version.
	Version *int64
}

// NodeInfo describes a node.
type NodeInfo struct {
	ID model.NodeID
	// Host is the name of the machine and the process.
	Host    string
	Version string
	// Since is when the node started, by its own clock.
	Since model.Time
	// Expires is when the lease of the node ends. Live says that the lease has not ended. Draining
	// says that the node takes no new shards, for example because it stops.
	Expires  model.Time
	Live     bool
	Draining bool
	// Shards is how many shards the node owns.
	Shards int
	// Weight is the share of the shards that the node should own, relative to the other nodes; 0
	// for a node of an older version.
	Weight int
	// Drained means that an operator has asked the node to hand its shards over.
	Drained bool
	// Groups are the shard groups whose shards the node takes; nil if the server is of an older
	// version.
	Groups []string
	// Self marks the node that answers, and Address is where it listens. Other nodes have no
	// Address here.
	Self    bool
	Address string
}

// ShardInfo describes a shard.
type ShardInfo struct {
	Shard model.ShardID
	// Group is the shard group that the shard belongs to; empty if the server is of an older
	// version.
	Group string
	// Database is the name of the database that holds the shard; empty for the first database of
	// the store.
	Database string
	// Owner is the node that owns the shard; zero if no node does.
	Owner model.NodeID
	// Target is the node that should own the shard; zero if no node can. If Target is not the
	// owner, the shard moves.
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
	// Name is the name of the worker that executes tasks; empty if the program has no such worker.
	Name                                    string
	Workflows, Entities, Queues, Activities []string
	Slots                                   int
	Since                                   model.Time
	// Heard is when the server last received something from the worker.
	Heard model.Time
	// Connected is false while the server waits for the worker to come back.
	Connected, Draining bool
	// Runs, Calls and Tasks count the work that the worker holds.
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
	// Ready means that the server can serve requests. If it cannot, Reasons say why.
	Ready   bool
	Reasons []string
	// Warnings are problems that operators should fix although the server can serve requests.
	Warnings []string
	Version  string
	Node     model.NodeID
	// Since is when the server started.
	Since model.Time
	// Workers is how many workers are connected to the server.
	Workers int
	// Store is the state of the store. It is nil if the server is of an older version or could not
	// read its store. In the second case StoreError says why.
	Store      *StoreHealth
	StoreError string
}

// StoreHealth is the state of a store, as a server knows it.
type StoreHealth struct {
	// Now is the time of the store at about the moment of the answer.
	Now model.Time
	// Schema is the version of the schema, and Shards the number of shards.
	Schema, Shards int
	// Role, Superuser, Standby and Pooler describe the connection to a database server. Role is
	// empty for a store without a database server.
	Role      string
	Superuser bool
	Standby   bool
	Pooler    string
}
