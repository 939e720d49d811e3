package service

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/authn"
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
		return k.Kind == authn.KeySetting && (tenant == "" || k.Tenant == tenant)
	})
	if err != nil {
		return nil, err
	}

	list := make([]api.KeyInfo, len(found))
	for i := range found {
		// An unreadable key lets no caller in, and can be revoked. So it is listed by its id.
		k, _ := authn.ReadKey(found[i].Tenant, found[i].Name, found[i].Body)
		list[i] = api.KeyInfo{ID: found[i].Name, Tenant: found[i].Tenant, Admin: found[i].Tenant == "", Note: k.Note, Created: k.Created}
	}
	slices.SortStableFunc(list, func(a, b api.KeyInfo) int { return cmp.Compare(a.Created, b.Created) })
	return list, nil
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

	k, secret := authn.NewKey(r.Tenant)
	k.Note, k.Created = r.Note, model.TimeOf(time.Now())
	body, err := json.Marshal(k)
	if err != nil {
		return api.NewKey{}, err
	}
	err = a.flow().Change(ctx, store.SettingKey{Tenant: r.Tenant, Kind: authn.KeySetting, Name: k.ID}, func(old *store.Setting) ([]byte, bool, error) {
		if old != nil {
			return nil, false, fault.New(fault.Conflict, "create key: the id %s is taken: try again", k.ID)
		}
		return body, true, nil
	})
	if err != nil {
		return api.NewKey{}, err
	}
	return api.NewKey{KeyInfo: api.KeyInfo{ID: k.ID, Tenant: r.Tenant, Admin: r.Admin, Note: r.Note, Created: k.Created}, Secret: secret}, nil
}

// checkKey refuses a key that makes no sense, or whose tenant does not exist.
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
	if err := v.Err(); err != nil || r.Admin {
		return err
	}
	_, err := a.Tenant(ctx, r.Tenant)
	return err
}

// RevokeKey ends a key.
func (a *Admin) RevokeKey(ctx context.Context, id string) error {
	v := a.check("revoke key")
	v.Name("key", id)
	if err := v.Err(); err != nil {
		return err
	}
	found, err := a.flow().Settings(ctx, func(k store.SettingKey) bool { return k.Kind == authn.KeySetting && k.Name == id })
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return fault.New(fault.NotFound, "there is no key %s", id)
	}

	for i := range found {
		err := a.flow().Change(ctx, found[i].SettingKey, func(old *store.Setting) ([]byte, bool, error) { return nil, old != nil, nil })
		if err != nil {
			return err
		}
	}
	return nil
}
