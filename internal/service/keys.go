package service

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/authz"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// Keys lists keys without their secrets.
func (a *Admin) Keys(ctx context.Context, tenant string) ([]api.KeyInfo, error) {
	if tenant != "" {
		if err := a.checkTenant("keys", tenant); err != nil {
			return nil, err
		}
	}
	found, err := a.flow().Settings(ctx, func(k store.SettingKey) bool {
		return (k.Kind == authn.KeySetting || k.Kind == authn.KeyUseSetting) && (tenant == "" || k.Tenant == tenant)
	})
	if err != nil {
		return nil, err
	}

	used := map[string]model.Time{}
	for i := range found {
		if found[i].Kind == authn.KeyUseSetting {
			used[found[i].Name] = authn.ReadKeyUse(found[i].Body)
		}
	}
	list := make([]api.KeyInfo, 0, len(found)-len(used))
	for i := range found {
		if found[i].Kind == authn.KeySetting {
			// A key that cannot be read lets no caller in, but it can be revoked. So list it with
			// its id.
			k, _ := authn.ReadKey(found[i].Tenant, found[i].Name, found[i].Body)
			k.ID, k.Tenant = found[i].Name, found[i].Tenant
			info := keyInfo(&k)
			info.Used = used[k.ID]
			list = append(list, info)
		}
	}
	slices.SortStableFunc(list, func(a, b api.KeyInfo) int { return cmp.Compare(a.Created, b.Created) })
	return list, nil
}

func keyInfo(k *authn.Key) api.KeyInfo {
	return api.KeyInfo{ID: k.ID, Tenant: k.Tenant, Admin: k.Admin(), Note: k.Note, Created: k.Created, Roles: k.Roles, Expires: k.Expires}
}

// CreateKey creates a key.
func (a *Admin) CreateKey(ctx context.Context, r api.KeyRequest) (api.NewKey, error) {
	if err := a.checkKey(ctx, &r); err != nil {
		return api.NewKey{}, err
	}
	there, err := a.flow().Settings(ctx, func(k store.SettingKey) bool { return k.Kind == authn.KeySetting && k.Tenant == r.Tenant })
	if err != nil {
		return api.NewKey{}, err
	}
	if len(there) >= MaxKeys {
		return api.NewKey{}, fault.New(fault.Exhausted, "create key: the tenant has %d keys, which is the limit: revoke some", len(there))
	}

	now := time.Now()
	k, secret := authn.NewKey(r.Tenant)
	k.Note, k.Created, k.Roles = r.Note, model.TimeOf(now), r.Roles
	if r.Lifetime > 0 {
		k.Expires = model.TimeOf(now.Add(r.Lifetime))
	}
	if err := a.storeNewKey(ctx, &k); err != nil {
		return api.NewKey{}, err
	}
	return api.NewKey{KeyInfo: keyInfo(&k), Secret: secret}, nil
}

// storeNewKey stores a new key. It refuses a key whose id another key already has.
func (a *Admin) storeNewKey(ctx context.Context, k *authn.Key) error {
	body, err := json.Marshal(k)
	if err != nil {
		return err
	}
	return a.flow().Change(ctx, store.SettingKey{Tenant: k.Tenant, Kind: authn.KeySetting, Name: k.ID}, func(old *store.Setting) ([]byte, bool, error) {
		if old != nil {
			return nil, false, fault.New(fault.Conflict, "create key: the id %s is taken: try again", k.ID)
		}
		return body, true, nil
	})
}

// RotateKey replaces a key.
func (a *Admin) RotateKey(ctx context.Context, r api.RotateRequest) (api.NewKey, error) {
	v := a.check("rotate key")
	v.Name("key", r.ID)
	if r.Overlap < 0 || r.Overlap > MaxLifetime {
		v.Wrong("the overlap is %s, must be between 0 and %s", r.Overlap, MaxLifetime)
	}
	if err := v.Err(); err != nil {
		return api.NewKey{}, err
	}
	found, err := a.findKey(ctx, r.ID)
	if err != nil {
		return api.NewKey{}, err
	}
	old, err := authn.ReadKey(found.Tenant, found.Name, found.Body)
	if err != nil {
		return api.NewKey{}, err
	}

	// The lifetime of the new key starts now, and is as long as the lifetime of the old key.
	request := api.KeyRequest{Tenant: old.Tenant, Admin: old.Admin(), Note: old.Note, Roles: old.Roles}
	if !old.Expires.IsZero() {
		request.Lifetime = old.Expires.Sub(old.Created)
	}
	created, err := a.CreateKey(ctx, request)
	if err != nil {
		return api.NewKey{}, err
	}
	if r.Overlap == 0 {
		err = a.RevokeKey(ctx, r.ID)
	} else {
		err = a.expireKey(ctx, found.SettingKey, model.TimeOf(time.Now().Add(r.Overlap)))
	}
	if err != nil {
		return created, fault.New(fault.KindOf(err), "key %s is created, key %s did not end: %w", created.ID, r.ID, err)
	}
	return created, nil
}

// expireKey makes a key end at the given time, unless it ends earlier.
func (a *Admin) expireKey(ctx context.Context, key store.SettingKey, at model.Time) error {
	return a.flow().Change(ctx, key, func(old *store.Setting) ([]byte, bool, error) {
		if old == nil {
			return nil, false, nil // the key was revoked in the meantime
		}
		k, err := authn.ReadKey(key.Tenant, key.Name, old.Body)
		if err != nil || !k.Expires.IsZero() && k.Expires <= at {
			return nil, false, err
		}
		k.Expires = at
		body, err := json.Marshal(k)
		return body, true, err
	})
}

// findKey returns the setting of a key, or NotFound.
func (a *Admin) findKey(ctx context.Context, id string) (*store.Setting, error) {
	found, err := a.flow().Settings(ctx, func(k store.SettingKey) bool { return k.Kind == authn.KeySetting && k.Name == id })
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, fault.New(fault.NotFound, "there is no key %s", id)
	}
	return &found[0], nil
}

// checkKey refuses a key that is not valid, or whose tenant does not exist.
func (a *Admin) checkKey(ctx context.Context, r *api.KeyRequest) error {
	v := a.check("create key")
	switch {
	case r.Admin && r.Tenant != "":
		v.Wrong("an admin key belongs to no tenant")
	case !r.Admin:
		v.Tenant(r.Tenant)
	}

	if len(r.Note) > MaxNote {
		v.Wrong("the note has %d bytes, at most %d are allowed", len(r.Note), MaxNote)
	}
	if r.Admin && len(r.Roles) > 0 {
		v.Wrong("an admin key has no roles: it may do everything")
	}
	checkRoles(&v, r.Roles)
	if r.Lifetime < 0 || r.Lifetime > MaxLifetime {
		v.Wrong("the lifetime is %s, must be between 0 and %s", r.Lifetime, MaxLifetime)
	}
	if err := v.Err(); err != nil || r.Admin {
		return err
	}

	_, err := a.Tenant(ctx, r.Tenant)
	return err
}

// checkRoles refuses roles that no policy could name, and the role of admins. It accepts roles that
// the default policies do not know, because the server may have other policies.
func checkRoles(v *validator, roles []string) {
	if len(roles) > MaxRoles {
		v.Wrong("the key has %d roles, at most %d are allowed", len(roles), MaxRoles)
		return
	}
	for _, role := range roles {
		switch {
		case role == authz.RoleAdmin:
			v.Wrong("%s is the role of admin keys", role)
		case !model.ValidTenant(role):
			v.Wrong("%.80q is not the name of a role: letters, digits, dots, dashes and underscores, at most %d", role, model.MaxTenant)
		}
	}
}

// RevokeKey ends a key.
func (a *Admin) RevokeKey(ctx context.Context, id string) error {
	v := a.check("revoke key")
	v.Name("key", id)
	if err := v.Err(); err != nil {
		return err
	}
	if _, err := a.findKey(ctx, id); err != nil {
		return err
	}
	found, err := a.flow().Settings(ctx, func(k store.SettingKey) bool {
		return (k.Kind == authn.KeySetting || k.Kind == authn.KeyUseSetting) && k.Name == id
	})
	if err != nil {
		return err
	}

	for i := range found {
		err := a.flow().Change(ctx, found[i].SettingKey, func(old *store.Setting) ([]byte, bool, error) { return nil, old != nil, nil })
		if err != nil {
			return err
		}
	}
	return nil
}
