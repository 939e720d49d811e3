package service

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/engine/flow"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// Bounds of the tenants and keys that operators create. Every node keeps all of them in memory.
const (
	// MaxTenants is how many tenants may have a record.
	MaxTenants = 10_000
	// MaxKeys is how many keys one tenant may have, and how many admin keys there may be.
	MaxKeys = 1000
	// MaxNote is the largest note of a tenant or a key, in bytes.
	MaxNote = 200
	// MaxRoles is how many roles one key may have.
	MaxRoles = 16
	// MaxLifetime is the longest lifetime that a key may have.
	MaxLifetime = 10 * 365 * 24 * time.Hour
)

// Admin implements api.Admin on a store. Tenants and keys are settings, so every node learns about
// their changes in the same way as about changes of limits.
type Admin struct {
	*Service

	home string
}

var _ api.Admin = (*Admin)(nil)

// Admin returns the calls of operators. The tenant home exists even if the store has no record of
// it.
func (s *Service) Admin(home string) *Admin { return &Admin{s, home} }

func recordKey(tenant string) store.SettingKey {
	return store.SettingKey{Tenant: tenant, Kind: authn.TenantSetting, Name: authn.TenantRecord}
}

// Tenants lists the tenants that exist.
func (a *Admin) Tenants(ctx context.Context) ([]api.TenantInfo, error) {
	settings, err := a.flow().Settings(ctx, func(k store.SettingKey) bool { return k.Tenant != "" })
	if err != nil {
		return nil, err
	}
	busy, err := a.store.Tenants(ctx)
	if err != nil {
		return nil, err
	}

	all := map[string]*api.TenantInfo{a.home: {Name: a.home}}
	of := func(name string) *api.TenantInfo {
		if all[name] == nil {
			all[name] = &api.TenantInfo{Name: name}
		}
		return all[name]
	}
	for _, name := range busy {
		of(name)
	}
	for i := range settings {
		if err := describeTenant(of(settings[i].Tenant), &settings[i]); err != nil {
			return nil, err
		}
	}

	list := make([]api.TenantInfo, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		list = append(list, *all[name])
	}
	return list, nil
}

// describeTenant adds the record or the allowance of a tenant to its description. Settings of other
// kinds add nothing: they only show that the tenant exists.
func describeTenant(t *api.TenantInfo, s *store.Setting) error {
	if s.Kind != authn.TenantSetting {
		return nil
	}
	if s.Damaged != nil {
		return fault.New(fault.Corrupt, "setting %s: %s", s.SettingKey, s.Damaged.Why)
	}
	if s.Name == authn.TenantRecord {
		r, err := authn.ReadTenant(s.Tenant, s.Body)
		t.Note, t.Disabled, t.Created = r.Note, r.Disabled, r.Created
		return err
	}
	if err := json.Unmarshal(s.Body, &t.Allowance); err != nil {
		return fault.New(fault.Corrupt, "setting %s: %w", s.SettingKey, err)
	}
	return nil
}

// Tenant returns one tenant.
func (a *Admin) Tenant(ctx context.Context, name string) (api.TenantInfo, error) {
	if err := a.checkTenant("tenant", name); err != nil {
		return api.TenantInfo{}, err
	}
	all, err := a.Tenants(ctx)
	if err != nil {
		return api.TenantInfo{}, err
	}
	i, ok := slices.BinarySearchFunc(all, name, func(t api.TenantInfo, name string) int { return cmp.Compare(t.Name, name) })
	if !ok {
		return api.TenantInfo{}, fault.WithHint(fault.New(fault.NotFound, "tenant %s does not exist", name), "perdure tenant create %s creates it", name)
	}
	return all[i], nil
}

// CreateTenant stores the record of a new tenant.
func (a *Admin) CreateTenant(ctx context.Context, c api.TenantChange) (api.TenantInfo, error) {
	if err := a.checkTenantChange("create tenant", &c); err != nil {
		return api.TenantInfo{}, err
	}
	recorded, err := a.flow().Settings(ctx, func(k store.SettingKey) bool { return k == recordKey(k.Tenant) })
	if err != nil {
		return api.TenantInfo{}, err
	}
	if len(recorded) >= MaxTenants {
		return api.TenantInfo{}, fault.New(fault.Exhausted, "create tenant %s: there are %d tenants, which is the limit", c.Name, len(recorded))
	}

	if err := a.changeRecord(ctx, &c, true); err != nil {
		return api.TenantInfo{}, err
	}
	if err := a.changeAllowance(ctx, &c); err != nil {
		return api.TenantInfo{}, fault.New(fault.KindOf(err), "tenant %s is created, its allowance is not set: %w", c.Name, err)
	}
	return a.Tenant(ctx, c.Name)
}

// SetTenant changes a tenant.
func (a *Admin) SetTenant(ctx context.Context, c api.TenantChange) (api.TenantInfo, error) {
	if err := a.checkTenantChange("set tenant", &c); err != nil {
		return api.TenantInfo{}, err
	}
	if _, err := a.Tenant(ctx, c.Name); err != nil {
		return api.TenantInfo{}, err
	}
	if c.Note != nil || c.Disabled != nil {
		if err := a.changeRecord(ctx, &c, false); err != nil {
			return api.TenantInfo{}, err
		}
	}
	if err := a.changeAllowance(ctx, &c); err != nil {
		return api.TenantInfo{}, err
	}
	return a.Tenant(ctx, c.Name)
}

func (a *Admin) checkTenantChange(op string, c *api.TenantChange) error {
	v := a.check(op)
	v.Tenant(c.Name)
	if c.Note != nil && len(*c.Note) > MaxNote {
		v.Wrong("the note has %d bytes, at most %d are allowed", len(*c.Note), MaxNote)
	}
	if err := v.Err(); err != nil {
		return err
	}
	return applyChange(c)(rule.Allowance{}).Validate()
}

// changeRecord changes the record of a tenant. If fresh is true, the tenant must not have a record.
func (a *Admin) changeRecord(ctx context.Context, c *api.TenantChange, fresh bool) error {
	return a.flow().Change(ctx, recordKey(c.Name), func(old *store.Setting) ([]byte, bool, error) {
		r := authn.Tenant{Created: model.TimeOf(time.Now())}
		switch {
		case old != nil && fresh:
			return nil, false, fault.New(fault.AlreadyExists, "tenant %s exists", c.Name)
		case old != nil && old.Damaged == nil:
			var err error
			if r, err = authn.ReadTenant(c.Name, old.Body); err != nil {
				return nil, false, err
			}
		}

		if c.Note != nil {
			r.Note = *c.Note
		}
		if c.Disabled != nil {
			r.Disabled = *c.Disabled
		}
		body, err := json.Marshal(r)
		return body, true, err
	})
}

// changeAllowance changes the fields of the allowance that the request names.
func (a *Admin) changeAllowance(ctx context.Context, c *api.TenantChange) error {
	if c.Open == nil && c.Starts == nil && c.Weight == nil && c.Retention == nil {
		return nil
	}
	return a.flow().ChangeAllowance(ctx, c.Name, applyChange(c))
}

func applyChange(c *api.TenantChange) func(rule.Allowance) rule.Allowance {
	return func(to rule.Allowance) rule.Allowance {
		replace(&to.Open, c.Open)
		replace(&to.Starts, c.Starts)
		replace(&to.Weight, c.Weight)
		replace(&to.Retention, c.Retention)
		return to
	}
}

func replace[T any](field *T, by *T) {
	if by != nil {
		*field = *by
	}
}

// Settings lists the settings of a tenant.
func (a *Admin) Settings(ctx context.Context, tenant, kind string) ([]api.Setting, error) {
	if err := a.checkTenant("settings", tenant); err != nil {
		return nil, err
	}
	found, err := a.flow().Settings(ctx, func(k store.SettingKey) bool {
		return k.Tenant == tenant && (kind == "" || k.Kind == kind) && k.Kind != authn.KeySetting && k.Kind != authn.KeyUseSetting && k.Kind != authn.LoginSetting
	})
	if err != nil {
		return nil, err
	}

	list := make([]api.Setting, len(found))
	for i := range found {
		list[i] = setting(&found[i])
	}
	return list, nil
}

func setting(s *store.Setting) api.Setting {
	one := api.Setting{Kind: s.Kind, Name: s.Name, Version: s.Version, At: s.At, Fixed: !flow.Editable(s.SettingKey)}
	if json.Valid(s.Body) {
		one.Body = s.Body
	}
	return one
}

// SetSetting changes a setting.
func (a *Admin) SetSetting(ctx context.Context, c api.SettingChange) (api.Setting, error) {
	if err := a.checkNamed("set setting", c.Tenant, c.Name, ""); err != nil {
		return api.Setting{}, err
	}
	key := store.SettingKey{Tenant: c.Tenant, Kind: c.Kind, Name: c.Name}
	if err := a.flow().SetSetting(ctx, key, c.Body, c.Version); err != nil {
		return api.Setting{}, err
	}

	now, err := a.flow().Settings(ctx, func(k store.SettingKey) bool { return k == key })
	if err != nil || len(now) == 0 { // another caller has removed the setting
		return api.Setting{Kind: c.Kind, Name: c.Name}, err
	}
	return setting(&now[0]), nil
}

// Nodes lists the nodes of the cluster.
func (a *Admin) Nodes(ctx context.Context) ([]api.NodeInfo, error) {
	view, err := a.store.Members(ctx)
	if err != nil {
		return nil, err
	}
	self := a.node()

	list := make([]api.NodeInfo, len(view.Members))
	for i := range view.Members {
		m := &view.Members[i]
		list[i] = api.NodeInfo{
			ID: m.ID, Host: fmt.Sprintf("%s:%d", m.Host, m.PID), Version: m.Version, Since: begun(m.ID), Expires: m.Expires, Live: m.Expires >= view.Now,
			Draining: m.Draining, Self: m.ID == self, Weight: m.Weight, Drained: m.Drained, Groups: m.Groups,
		}
		if len(m.Groups) == 0 {
			list[i].Groups = []string{model.DefaultGroup}
		}
		for _, o := range view.Owners {
			if o.Node == m.ID && o.Epoch == m.Epoch {
				list[i].Shards++
			}
		}
	}

	return list, nil
}

// node returns the id of the node of this process; zero if it has none.
func (a *Admin) node() model.NodeID {
	if a.engine == nil {
		return model.NodeID{}
	}
	return a.engine.Node()
}

// begun returns when a node drew its id. The first 48 bits of an id are the milliseconds since
// 1970.
func begun(id model.NodeID) model.Time {
	var b [8]byte
	copy(b[2:], id[:6])
	return model.TimeOf(time.UnixMilli(int64(binary.BigEndian.Uint64(b[:]))))
}

// errNoServer refuses a request that only a server can answer.
func errNoServer(what string) error {
	return fault.WithHint(fault.New(fault.Invalid, "%s: a store has no connections, only a server knows them", what), "use --server grpc://host:7800")
}

// WorkerSessions refuses the request, because workers connect only to servers.
func (*Admin) WorkerSessions(context.Context, string) ([]api.WorkerSession, error) {
	return nil, errNoServer("workers")
}

// DrainWorker refuses the request, as WorkerSessions does.
func (*Admin) DrainWorker(context.Context, api.DrainRequest) error {
	return errNoServer("drain a worker")
}

// healthLimit bounds how long Health waits for the store.
const healthLimit = 5 * time.Second

// Health returns the state of the node and of its store. It answers even if the store does not.
func (a *Admin) Health(ctx context.Context) (api.Health, error) {
	if a.engine == nil {
		return api.Health{}, errNoServer("health")
	}
	h := api.Health{Ready: true, Node: a.node()}
	if err := a.engine.Serving(); err != nil {
		h.Ready, h.Reasons = false, []string{err.Error()}
	}

	ctx, cancel := context.WithTimeout(ctx, healthLimit)
	defer cancel()
	found, err := a.storeHealth(ctx)
	if err != nil {
		h.StoreError = err.Error()
		return h, nil
	}
	h.Store = &found
	return h, nil
}

// storeHealth reads the state of the store.
func (a *Admin) storeHealth(ctx context.Context) (h api.StoreHealth, err error) {
	info := a.store.Info()
	h.Schema, h.Shards = info.Version, info.Shards
	if inspected, ok := a.store.(store.Inspected); ok {
		found, err := inspected.Inspect(ctx)
		if err != nil {
			return h, err
		}
		h.Role, h.Superuser, h.Standby, h.Pooler = found.Role, found.Superuser, found.Standby, found.Pooler
	}
	view, err := a.store.Members(ctx)
	h.Now = view.Now
	return h, err
}
