package restapi

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/fault"
)

const adminTag = "Administration"

// addTenants adds the operations on tenants and their settings.
func (s *Server) addTenants() {
	add(s, operation{id: "list-tenants", method: http.MethodGet, path: "/tenants", tag: adminTag, summary: "List tenants"}, s.listTenants)
	add(s, operation{id: "get-tenant", method: http.MethodGet, path: "/tenants/{tenant}", tag: adminTag, summary: "Read a tenant"}, s.tenant)
	add(s, operation{id: "create-tenant", method: http.MethodPost, path: "/tenants", tag: adminTag, summary: "Create a tenant", status: http.StatusCreated}, s.createTenant)
	add(s, operation{id: "change-tenant", method: http.MethodPatch, path: "/tenants/{tenant}", tag: adminTag, summary: "Change a tenant"}, s.changeTenant)
	add(s, operation{id: "list-settings", method: http.MethodGet, path: "/tenants/{tenant}/settings", tag: adminTag, summary: "List stored settings of a tenant"}, s.listSettings)
	add(s, operation{id: "get-setting", method: http.MethodGet, path: "/tenants/{tenant}/settings/{kind}/{name}", tag: adminTag, summary: "Read a setting"}, s.setting)
	add(s, operation{id: "set-setting", method: http.MethodPut, path: "/tenants/{tenant}/settings/{kind}/{name}", tag: adminTag, summary: "Create or replace a setting"}, s.setSetting)
	add(s, operation{id: "delete-setting", method: http.MethodDelete, path: "/tenants/{tenant}/settings/{kind}/{name}", tag: adminTag, summary: "Remove a setting", status: http.StatusNoContent}, s.deleteSetting)
}

// tenant is a tenant.
type tenant struct {
	Allowance

	Name     string     `json:"name"`
	Disabled bool       `json:"disabled"`
	Note     string     `json:"note,omitempty"`
	Created  *time.Time `json:"created,omitempty" doc:"When its record was created; absent for a tenant without a record, which only has executions"`
}

func tenantOf(t *api.TenantInfo) tenant {
	return tenant{allowanceOf(&t.Allowance), t.Name, t.Disabled, t.Note, at(t.Created)}
}

func (s *Server) listTenants(ctx context.Context, _ *authn.Identity, _ *nothing) (*reply[page[tenant]], error) {
	got, err := s.config.Admin.Tenants(ctx)
	if err != nil {
		return nil, err
	}
	return ok(page[tenant]{Items: each(got, tenantOf)})
}

// TenantPath names a tenant.
type TenantPath struct {
	Tenant string `path:"tenant" example:"acme"`
}

// tenantReply returns a tenant.
func tenantReply(t api.TenantInfo, err error) (*reply[tenant], error) {
	if err != nil {
		return nil, err
	}
	return ok(tenantOf(&t))
}

func (s *Server) tenant(ctx context.Context, _ *authn.Identity, in *TenantPath) (*reply[tenant], error) {
	return tenantReply(s.config.Admin.Tenant(ctx, in.Tenant))
}

// TenantChange changes a tenant. Absent fields stay as they are.
type TenantChange struct {
	Note      *string `json:"note,omitempty"`
	Disabled  *bool   `json:"disabled,omitempty" doc:"Whether the server refuses the keys of the tenant"`
	Open      *int64  `json:"open,omitempty" minimum:"0"`
	Starts    *int64  `json:"starts,omitempty" minimum:"0"`
	Weight    *int    `json:"weight,omitempty" minimum:"0"`
	Retention *string `json:"retention,omitempty" example:"720h"`
}

func (c *TenantChange) change(name string) (api.TenantChange, error) {
	r := api.TenantChange{Name: name, Note: c.Note, Disabled: c.Disabled, Open: c.Open, Starts: c.Starts, Weight: c.Weight}
	if c.Retention != nil {
		d, err := readDuration("retention", *c.Retention)
		if err != nil {
			return r, err
		}
		r.Retention = &d
	}
	return r, nil
}

type createTenantInput struct {
	Body struct {
		TenantChange

		Name string `json:"name" minLength:"1" example:"acme"`
	}
}

func (s *Server) createTenant(ctx context.Context, _ *authn.Identity, in *createTenantInput) (*reply[tenant], error) {
	c, err := in.Body.change(in.Body.Name)
	if err != nil {
		return nil, err
	}
	return tenantReply(s.config.Admin.CreateTenant(ctx, c))
}

type changeTenantInput struct {
	TenantPath

	Body TenantChange
}

func (s *Server) changeTenant(ctx context.Context, _ *authn.Identity, in *changeTenantInput) (*reply[tenant], error) {
	c, err := in.Body.change(in.Tenant)
	if err != nil {
		return nil, err
	}
	return tenantReply(s.config.Admin.SetTenant(ctx, c))
}

// setting is a stored setting.
type setting struct {
	Kind    string     `json:"kind"`
	Name    string     `json:"name"`
	Version int64      `json:"version" doc:"The ETag of the setting; a number that grows with every change of any setting"`
	At      *time.Time `json:"at,omitempty"`
	Fixed   bool       `json:"fixed" doc:"Whether this operation cannot change it, because nodes or other operations write it"`
	Value   any        `json:"value,omitempty"`
}

func settingOf(t *api.Setting) setting {
	o := setting{Kind: t.Kind, Name: t.Name, Version: t.Version, At: at(t.At), Fixed: t.Fixed}
	if len(t.Body) > 0 {
		o.Value = json.RawMessage(t.Body)
	}
	return o
}

type settingsInput struct {
	TenantPath

	Kind string `query:"kind"`
}

func (s *Server) listSettings(ctx context.Context, _ *authn.Identity, in *settingsInput) (*reply[page[setting]], error) {
	got, err := s.config.Admin.Settings(ctx, in.Tenant, in.Kind)
	if err != nil {
		return nil, err
	}
	return ok(page[setting]{Items: each(got, settingOf)})
}

// SettingPath names a setting.
type SettingPath struct {
	TenantPath

	Kind string `path:"kind" example:"limit"`
	Name string `path:"name" example:"smtp"`
}

type settingOutput struct {
	ETag string `header:"ETag"`
	Body setting
}

func settingReply(t *api.Setting) (*settingOutput, error) {
	return &settingOutput{`"` + strconv.FormatInt(t.Version, 10) + `"`, settingOf(t)}, nil
}

func (s *Server) setting(ctx context.Context, _ *authn.Identity, in *SettingPath) (*settingOutput, error) {
	got, err := s.config.Admin.Settings(ctx, in.Tenant, in.Kind)
	if err != nil {
		return nil, err
	}
	for i := range got {
		if got[i].Name == in.Name {
			return settingReply(&got[i])
		}
	}
	return nil, fault.New(fault.NotFound, "tenant %s has no setting %.80s/%.80s", in.Tenant, in.Kind, in.Name)
}

// MatchHeader makes a change depend on the version that the caller has seen.
type MatchHeader struct {
	IfMatch     string `header:"If-Match" doc:"The ETag that the setting must have"`
	IfNoneMatch string `header:"If-None-Match" doc:"If it is *, the setting must not exist"`
}

// version returns the version that the setting must have, or nil if any version will do.
func (h *MatchHeader) version() (*int64, error) {
	switch {
	case h.IfNoneMatch == "*" && h.IfMatch == "":
		return new(int64), nil
	case h.IfNoneMatch != "":
		return nil, fault.New(fault.Invalid, "If-None-Match is %.40q, must be * and alone", h.IfNoneMatch)
	case h.IfMatch == "":
		return nil, nil //nolint:nilnil // any version
	}
	n, err := strconv.ParseInt(strings.Trim(h.IfMatch, `"`), 10, 64)
	if err != nil || n <= 0 {
		return nil, fault.New(fault.Invalid, "If-Match is %.40q, must be the ETag of the setting", h.IfMatch)
	}
	return &n, nil
}

// unmet gives a conflict error the HTTP status for a failed precondition, if the request has named
// a version.
func unmet(want *int64, err error) error {
	if want != nil && fault.Is(err, fault.Conflict) {
		p := problemOf(err)
		p.Status, p.Title = http.StatusPreconditionFailed, http.StatusText(http.StatusPreconditionFailed)
		return p
	}
	return err
}

type setSettingInput struct {
	SettingPath
	MatchHeader

	Body json.RawMessage `doc:"The setting in its stored form"`
}

func (s *Server) setSetting(ctx context.Context, _ *authn.Identity, in *setSettingInput) (*settingOutput, error) {
	want, err := in.version()
	if err != nil {
		return nil, err
	}
	got, err := s.config.Admin.SetSetting(ctx, api.SettingChange{Tenant: in.Tenant, Kind: in.Kind, Name: in.Name, Body: in.Body, Version: want})
	if err != nil {
		return nil, unmet(want, err)
	}
	return settingReply(&got)
}

type deleteSettingInput struct {
	SettingPath
	MatchHeader
}

func (s *Server) deleteSetting(ctx context.Context, _ *authn.Identity, in *deleteSettingInput) (*none, error) {
	want, err := in.version()
	if err != nil {
		return nil, err
	}
	_, err = s.config.Admin.SetSetting(ctx, api.SettingChange{Tenant: in.Tenant, Kind: in.Kind, Name: in.Name, Version: want})
	return done(unmet(want, err))
}
