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

// MaxLogins is how many sessions one tenant may have, and how many sessions of admins there may be.
const MaxLogins = 1000

// CreateLogin opens a session.
func (a *Admin) CreateLogin(ctx context.Context, r api.LoginRequest) (api.NewLogin, error) {
	if err := a.checkLogin(&r); err != nil {
		return api.NewLogin{}, err
	}
	now := model.TimeOf(time.Now())
	open, err := a.sweepLogins(ctx, r.Tenant, now)
	if err != nil {
		return api.NewLogin{}, err
	}
	if open >= MaxLogins {
		return api.NewLogin{}, fault.New(fault.Exhausted, "sign in: the tenant has %d sessions, which is the limit: end some", open)
	}

	l, secret := authn.NewLogin()
	l.Tenant, l.Tenants, l.Name, l.Roles, l.Created = r.Tenant, r.Tenants, r.Caller, r.Roles, now
	l.Credential = authn.Credential{Kind: r.Kind, ID: r.Credential, Expires: r.Ends}
	l.Expires = now.Add(cmp.Or(r.Lifetime, api.DefaultLogin))
	if !r.Ends.IsZero() {
		l.Expires = min(l.Expires, r.Ends)
	}
	body, err := json.Marshal(l)
	if err != nil {
		return api.NewLogin{}, err
	}
	key := store.SettingKey{Tenant: l.Tenant, Kind: authn.LoginSetting, Name: l.ID}
	err = a.flow().Change(ctx, key, func(old *store.Setting) ([]byte, bool, error) {
		if old != nil {
			return nil, false, fault.New(fault.Conflict, "sign in: the id %s is taken: try again", l.ID)
		}
		return body, true, nil
	})
	if err != nil {
		return api.NewLogin{}, err
	}
	return api.NewLogin{LoginInfo: loginInfo(&l), Secret: secret}, nil
}

// checkLogin refuses a session that is not valid.
func (a *Admin) checkLogin(r *api.LoginRequest) error {
	v := a.check("sign in")
	if r.Tenant != "" {
		v.Tenant(r.Tenant)
	}
	for _, tenant := range r.Tenants {
		v.Tenant(tenant)
	}
	switch r.Kind {
	case authn.ByKey, authn.ByStatic, authn.ByToken:
	case authn.BySession:
		v.Wrong("the caller has a session: present a key or a token")
	default:
		v.Wrong("the server asks for no key, so it has no sessions")
	}

	if r.Lifetime < 0 || r.Lifetime > api.MaxLogin {
		v.Wrong("the lifetime is %s, must be between 0 and %s", r.Lifetime, api.MaxLogin)
	}
	return v.Err()
}

// sweepLogins removes the sessions of a tenant that have expired or cannot be read. It returns how
// many sessions remain.
func (a *Admin) sweepLogins(ctx context.Context, tenant string, now model.Time) (open int, err error) {
	found, err := a.flow().Settings(ctx, func(k store.SettingKey) bool { return k.Kind == authn.LoginSetting && k.Tenant == tenant })
	if err != nil {
		return 0, err
	}
	for i := range found {
		l, err := authn.ReadLogin(found[i].Tenant, found[i].Name, found[i].Body)
		if err == nil && l.Expires > now {
			open++
			continue
		}
		if err := a.removeLogin(ctx, found[i].SettingKey); err != nil {
			return open, err
		}
	}
	return open, nil
}

func (a *Admin) removeLogin(ctx context.Context, key store.SettingKey) error {
	return a.flow().Change(ctx, key, func(old *store.Setting) ([]byte, bool, error) { return nil, old != nil, nil })
}

func loginInfo(l *authn.Login) api.LoginInfo {
	return api.LoginInfo{
		ID: l.ID, Tenant: l.Tenant, Admin: l.Admin(), Caller: l.Name, Roles: l.Roles, Credential: l.Credential.Kind + " " + l.Credential.ID, Created: l.Created, Expires: l.Expires,
	}
}

// Logins lists sessions that have not expired.
func (a *Admin) Logins(ctx context.Context, tenant string) ([]api.LoginInfo, error) {
	if tenant != "" {
		if err := a.checkTenant("sessions", tenant); err != nil {
			return nil, err
		}
	}
	found, err := a.flow().Settings(ctx, func(k store.SettingKey) bool {
		return k.Kind == authn.LoginSetting && (tenant == "" || k.Tenant == tenant)
	})
	if err != nil {
		return nil, err
	}

	now, list := model.TimeOf(time.Now()), []api.LoginInfo{}
	for i := range found {
		// A session that cannot be read lets no caller in, but it can be ended. So list it with its
		// id.
		l, err := authn.ReadLogin(found[i].Tenant, found[i].Name, found[i].Body)
		if err == nil && l.Expires <= now {
			continue
		}
		l.ID, l.Tenant = found[i].Name, found[i].Tenant
		list = append(list, loginInfo(&l))
	}
	slices.SortStableFunc(list, func(a, b api.LoginInfo) int { return cmp.Compare(a.Created, b.Created) })
	return list, nil
}

// EndLogin ends a session.
func (a *Admin) EndLogin(ctx context.Context, id string) error {
	v := a.check("end session")
	v.Name("session", id)
	if err := v.Err(); err != nil {
		return err
	}
	found, err := a.flow().Settings(ctx, func(k store.SettingKey) bool { return k.Kind == authn.LoginSetting && k.Name == id })
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return fault.New(fault.NotFound, "there is no session %s", id)
	}
	return a.removeLogin(ctx, found[0].SettingKey)
}
