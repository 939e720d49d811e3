package flovyn

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Org is an organization, which is a tenant under another name.
type Org struct {
	ID, Slug, Name, Tier, Region string
	// Tenant is the tenant of the organization.
	Tenant string
	// Older says that the clients of the organization speak the older dialect of the protocol,
	// which calls organizations tenants.
	Older bool
}

// TenantOf returns the tenant of an organization: its slug, or "org-" and its id if the slug cannot
// be the name of a tenant.
func TenantOf(slug, id string) string {
	if model.ValidTenant(slug) {
		return slug
	}
	return "org-" + id
}

// Orgs are the organizations that a server knows. It is safe for concurrent use.
type Orgs struct {
	mu     sync.Mutex
	bySlug map[string]*Org
	byID   map[string]*Org
	of     map[string]*Org // organizations by tenant
	// plain are tenants that have no record of an organization, with the time of the lookup.
	plain map[string]time.Time
}

// NewOrgs returns an empty list.
func NewOrgs() *Orgs {
	return &Orgs{bySlug: map[string]*Org{}, byID: map[string]*Org{}, of: map[string]*Org{}, plain: map[string]time.Time{}}
}

// Put adds an organization, or replaces the organization that has the same slug.
func (o *Orgs) Put(org Org) error {
	id, err := parseID("organization", org.ID)
	if err != nil {
		return err
	}
	org.ID = id
	if org.Slug == "" {
		return fault.New(fault.Invalid, "organization %s has no slug", id)
	}
	if org.Tenant == "" {
		org.Tenant = TenantOf(org.Slug, id)
	}

	o.mu.Lock()
	defer o.mu.Unlock()
	if was := o.byID[id]; was != nil && was.Slug != org.Slug {
		return fault.New(fault.AlreadyExists, "organizations %s and %s have the same id", was.Slug, org.Slug)
	}
	if was := o.bySlug[org.Slug]; was != nil && was.ID != id {
		return fault.New(fault.AlreadyExists, "organization %s exists under another id", org.Slug)
	}
	o.bySlug[org.Slug], o.byID[id], o.of[org.Tenant] = &org, &org, &org
	delete(o.plain, org.Tenant)
	return nil
}

// All returns the organizations, sorted by slug.
func (o *Orgs) All() []Org {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := make([]Org, 0, len(o.bySlug))
	for _, slug := range slices.Sorted(maps.Keys(o.bySlug)) {
		all = append(all, *o.bySlug[slug])
	}
	return all
}

// Tenant returns the tenant of an organization id. It returns false if the server does not know the
// id.
func (o *Orgs) Tenant(id string) (string, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if org := o.byID[id]; org != nil {
		return org.Tenant, true
	}
	return "", false
}

// slugTenant returns the tenant of a slug. A tenant that was created without the protocol is an
// organization as well.
func (o *Orgs) slugTenant(slug string) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if org := o.bySlug[slug]; org != nil {
		return org.Tenant
	}
	return slug
}

// ofTenant returns the organization of a tenant. known is false if the caller must ask the store.
func (o *Orgs) ofTenant(tenant string, now time.Time) (org Org, known bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if org := o.of[tenant]; org != nil {
		return *org, true
	}
	looked, plain := o.plain[tenant]
	return plainOrg(tenant), plain && now.Sub(looked) < plainFor
}

// Bounds of what is remembered about tenants without a record of an organization.
const (
	// plainFor is how long the door remembers that a tenant has no record. After that it looks
	// again, because another node may have created the record.
	plainFor = time.Minute
	// maxPlain is how many such tenants are remembered.
	maxPlain = 10_000
)

// setPlain remembers that a tenant has no record of an organization.
func (o *Orgs) setPlain(tenant string, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.plain) >= maxPlain {
		clear(o.plain)
	}
	o.plain[tenant] = now
}

// plainOrg is the organization of a tenant that has no record of one.
func plainOrg(tenant string) Org {
	return Org{ID: derivedOrg(tenant), Slug: tenant, Name: tenant, Tenant: tenant}
}

// derivedOrg returns the organization id of a tenant that was created without one.
func derivedOrg(tenant string) string {
	return uuid.NewSHA1(uuid.NameSpaceOID, []byte("perdure tenant "+tenant)).String()
}

// tenant returns the tenant that a call works in. The credential decides. A request may name only
// the organization of its credential. An admin may name any organization.
func (d *Door) tenant(ctx context.Context, org string) (string, error) {
	who, ok := d.caller(ctx)
	if !ok || who.Tenant == "" {
		return "", fault.New(fault.Unauthenticated, "the request has no key")
	}
	return d.inOrg(ctx, who, org)
}

func (d *Door) inOrg(ctx context.Context, who authn.Identity, org string) (string, error) {
	if org == "" || org == who.Tenant || org == d.org(ctx, who.Tenant).ID {
		return who.Tenant, nil
	}
	if _, err := uuid.Parse(org); err != nil {
		return "", fault.New(fault.Invalid, "the id of the organization is %.80q, must be a UUID", org)
	}
	if !who.Admin {
		return "", fault.New(fault.Denied, "the key does not belong to organization %s", org)
	}

	if tenant, known := d.cfg.Orgs.Tenant(org); known {
		return tenant, nil
	}

	// If a tenant was created without an organization id, the id is derived from the name of the
	// tenant.
	for _, tenant := range d.tenants(ctx) {
		if derivedOrg(tenant) == org {
			return tenant, nil
		}
	}

	if d.cfg.AnyOrg {
		return who.Tenant, nil
	}
	return "", fault.New(fault.NotFound, "there is no organization %s", org)
}

// tenants lists the tenants of the server. It returns none if the door cannot list them.
func (d *Door) tenants(ctx context.Context) []string {
	if d.cfg.Admin == nil {
		return nil
	}
	all, err := d.cfg.Admin.Tenants(ctx)
	if err != nil {
		d.log.Warn("the tenants cannot be listed", "error", err)
	}
	names := make([]string, 0, len(all))
	for i := range all {
		names = append(names, all[i].Name)
	}
	return names
}

// inTenant makes a call that names no organization. It uses the tenant of the credential. An admin
// has no tenant of its own, so inTenant tries one tenant after the other until one has what the
// call names.
func (d *Door) inTenant(ctx context.Context, do func(tenant string) error) error {
	own, err := d.tenant(ctx, "")
	if err != nil {
		return err
	}
	err = do(own)
	if who, _ := d.caller(ctx); !who.Admin || !fault.Is(err, fault.NotFound) {
		return err
	}

	for _, tenant := range d.tenants(ctx) {
		if tenant == own {
			continue
		}
		if other := do(tenant); !fault.Is(other, fault.NotFound) {
			return other
		}
	}

	return err
}

// older reports whether a caller speaks the older dialect.
func (d *Door) older(ctx context.Context, tenant string) bool {
	if who, ok := d.caller(ctx); ok && who.Older {
		return true
	}
	return d.org(ctx, tenant).Older
}
