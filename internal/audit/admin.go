package audit

import (
	"context"
	"encoding/json"

	"github.com/perdure/perdure/internal/api"
)

// admin records the calls of api.Admin that the table in table.go names.
type admin struct {
	api.Admin

	log *Log
}

// Admin wraps an api.Admin. It records the calls that the table in table.go names.
func (l *Log) Admin(inner api.Admin) api.Admin { return &admin{inner, l} }

// tenantValue is the part of a tenant that an entry shows.
type tenantValue struct {
	Note      string        `json:"note,omitempty"`
	Disabled  bool          `json:"disabled,omitempty"`
	Allowance api.Allowance `json:"allowance,omitzero"`
}

func showTenant(t *api.TenantInfo) any { return tenantValue{t.Note, t.Disabled, t.Allowance} }

// tenant returns what an entry shows of a tenant as it is before the call. It returns nil if the
// log does not record the call, if there is no such tenant, or if the read fails.
func (a *admin) tenant(ctx context.Context, name string) []byte {
	if !a.log.records(ctx) {
		return nil
	}
	t, err := a.Tenant(ctx, name)
	if err != nil {
		return nil
	}
	return value(showTenant(&t))
}

// CreateTenant creates a tenant.
func (a *admin) CreateTenant(ctx context.Context, c api.TenantChange) (t api.TenantInfo, err error) {
	e := api.AuditEntry{Tenant: c.Name, Call: "CreateTenant", Resource: "tenant " + c.Name}
	err = a.log.record(ctx, e, func(ctx context.Context) (any, error) {
		t, err = a.Admin.CreateTenant(ctx, c)
		return showTenant(&t), err
	})
	return t, err
}

// SetTenant changes a tenant.
func (a *admin) SetTenant(ctx context.Context, c api.TenantChange) (t api.TenantInfo, err error) {
	e := api.AuditEntry{Tenant: c.Name, Call: "SetTenant", Resource: "tenant " + c.Name, Before: a.tenant(ctx, c.Name)}
	err = a.log.record(ctx, e, func(ctx context.Context) (any, error) {
		t, err = a.Admin.SetTenant(ctx, c)
		return showTenant(&t), err
	})
	return t, err
}

// keyValue is the part of a key that an entry shows. It never has the secret.
type keyValue struct {
	ID      string   `json:"id,omitempty"`
	Admin   bool     `json:"admin,omitempty"`
	Note    string   `json:"note,omitempty"`
	Roles   []string `json:"roles,omitempty"`
	Expires string   `json:"expires,omitempty"`
}

func showKey(k *api.KeyInfo) any {
	v := keyValue{ID: k.ID, Admin: k.Admin, Note: k.Note, Roles: k.Roles}
	if !k.Expires.IsZero() {
		v.Expires = k.Expires.String()
	}
	return v
}

// key returns a key as it is before the call, and what an entry shows of it. If the log does not
// record the call, or the key cannot be read, k has only the id and before is nil.
func (a *admin) key(ctx context.Context, id string) (k api.KeyInfo, before []byte) {
	if !a.log.records(ctx) {
		return api.KeyInfo{ID: id}, nil
	}
	all, err := a.Keys(ctx, "")
	if err != nil {
		return api.KeyInfo{ID: id}, nil
	}
	for i := range all {
		if all[i].ID == id {
			return all[i], value(showKey(&all[i]))
		}
	}
	return api.KeyInfo{ID: id}, nil
}

// CreateKey creates a key.
func (a *admin) CreateKey(ctx context.Context, r api.KeyRequest) (k api.NewKey, err error) {
	e := api.AuditEntry{Tenant: r.Tenant, Call: "CreateKey", Resource: "key"}
	err = a.log.record(ctx, e, func(ctx context.Context) (any, error) {
		k, err = a.Admin.CreateKey(ctx, r)
		if err != nil {
			return nil, err
		}
		return showKey(&k.KeyInfo), nil
	})
	return k, err
}

// RevokeKey ends a key.
func (a *admin) RevokeKey(ctx context.Context, id string) error {
	k, before := a.key(ctx, id)
	e := api.AuditEntry{Tenant: k.Tenant, Call: "RevokeKey", Resource: "key " + id, Before: before}
	return a.log.record(ctx, e, func(ctx context.Context) (any, error) { return nil, a.Admin.RevokeKey(ctx, id) })
}

// RotateKey replaces a key.
func (a *admin) RotateKey(ctx context.Context, r api.RotateRequest) (k api.NewKey, err error) {
	old, before := a.key(ctx, r.ID)
	e := api.AuditEntry{Tenant: old.Tenant, Call: "RotateKey", Resource: "key " + r.ID, Before: before}
	err = a.log.record(ctx, e, func(ctx context.Context) (any, error) {
		k, err = a.Admin.RotateKey(ctx, r)
		if k.ID == "" {
			return nil, err
		}
		return showKey(&k.KeyInfo), err
	})
	return k, err
}

// loginValue is the part of a session that an entry shows. It never has the secret.
type loginValue struct {
	ID         string   `json:"id"`
	Caller     string   `json:"caller"`
	Credential string   `json:"credential"`
	Roles      []string `json:"roles,omitempty"`
	Expires    string   `json:"expires"`
}

func showLogin(l *api.LoginInfo) any {
	return loginValue{l.ID, l.Caller, l.Credential, l.Roles, l.Expires.String()}
}

// CreateLogin opens a session.
func (a *admin) CreateLogin(ctx context.Context, r api.LoginRequest) (l api.NewLogin, err error) {
	e := api.AuditEntry{Tenant: r.Tenant, Call: "CreateLogin", Resource: "session"}
	err = a.log.record(ctx, e, func(ctx context.Context) (any, error) {
		if l, err = a.Admin.CreateLogin(ctx, r); err != nil {
			return nil, err
		}
		return showLogin(&l.LoginInfo), nil
	})
	return l, err
}

// login returns the tenant of a session, and what an entry shows of it before the call. It returns
// nothing if the log does not record the call, or if the session cannot be read.
func (a *admin) login(ctx context.Context, id string) (tenant string, before []byte) {
	if !a.log.records(ctx) {
		return "", nil
	}
	all, err := a.Logins(ctx, "")
	if err != nil {
		return "", nil
	}
	for i := range all {
		if all[i].ID == id {
			return all[i].Tenant, value(showLogin(&all[i]))
		}
	}
	return "", nil
}

// EndLogin ends a session.
func (a *admin) EndLogin(ctx context.Context, id string) error {
	tenant, before := a.login(ctx, id)
	e := api.AuditEntry{Tenant: tenant, Call: "EndLogin", Resource: "session " + id, Before: before}
	return a.log.record(ctx, e, func(ctx context.Context) (any, error) { return nil, a.Admin.EndLogin(ctx, id) })
}

// setting returns what an entry shows of a setting before the call. It returns nil if the log does
// not record the call, if there is no such setting, or if the read fails.
func (a *admin) setting(ctx context.Context, tenant, kind, name string) []byte {
	if !a.log.records(ctx) {
		return nil
	}
	all, err := a.Settings(ctx, tenant, kind)
	if err != nil {
		return nil
	}
	for i := range all {
		if all[i].Name == name {
			return value(json.RawMessage(all[i].Body))
		}
	}
	return nil
}

// SetSetting changes a setting.
func (a *admin) SetSetting(ctx context.Context, c api.SettingChange) (s api.Setting, err error) {
	e := api.AuditEntry{Tenant: c.Tenant, Call: "SetSetting", Resource: "setting " + c.Kind + "/" + c.Name, Before: a.setting(ctx, c.Tenant, c.Kind, c.Name)}
	err = a.log.record(ctx, e, func(ctx context.Context) (any, error) {
		if s, err = a.Admin.SetSetting(ctx, c); err != nil || len(c.Body) == 0 {
			return nil, err
		}
		return json.RawMessage(s.Body), nil
	})
	return s, err
}

// tenantOfWorker returns the tenant of a worker session. It returns an empty text if the log does
// not record the call, or if the session cannot be read.
func (a *admin) tenantOfWorker(ctx context.Context, session string) string {
	if !a.log.records(ctx) {
		return ""
	}
	all, err := a.WorkerSessions(ctx, "")
	if err != nil {
		return ""
	}
	for i := range all {
		if all[i].ID == session {
			return all[i].Tenant
		}
	}
	return ""
}

// DrainWorker asks a worker to drain.
func (a *admin) DrainWorker(ctx context.Context, r api.DrainRequest) error {
	e := api.AuditEntry{Tenant: a.tenantOfWorker(ctx, r.Session), Call: "DrainWorker", Resource: "worker session " + r.Session}
	return a.log.record(ctx, e, func(ctx context.Context) (any, error) { return nil, a.Admin.DrainWorker(ctx, r) })
}

// drainValue is the part of a request to drain a node that an entry shows.
type drainValue struct {
	Drained bool `json:"drained"`
}

// DrainNode asks a node to hand its shards over, or withdraws that request.
func (a *admin) DrainNode(ctx context.Context, r api.NodeDrain) error {
	e := api.AuditEntry{Call: "DrainNode", Resource: "node " + r.Node.String()}
	return a.log.record(ctx, e, func(ctx context.Context) (any, error) { return drainValue{!r.Undo}, a.Admin.DrainNode(ctx, r) })
}

// Rebalance makes nodes check whether shards should move.
func (a *admin) Rebalance(ctx context.Context) error {
	e := api.AuditEntry{Call: "Rebalance", Resource: "cluster"}
	return a.log.record(ctx, e, func(ctx context.Context) (any, error) { return nil, a.Admin.Rebalance(ctx) })
}
