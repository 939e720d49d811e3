package flovyn

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// orgType is the type of the entity that records the organization of a tenant. Each tenant that was
// created over this protocol has one.
const orgType = model.EntityPrefix + "flovyn.org"

// opDescribe sets the record of an organization.
const opDescribe = "describe"

// maxOrgText is the longest text in the record of an organization, in bytes.
const maxOrgText = 500

// orgRecord is what the store keeps about an organization in addition to its tenant.
type orgRecord struct {
	Name   string `json:"name"`
	Tier   string `json:"tier,omitempty"`
	Region string `json:"region,omitempty"`
	Older  bool   `json:"older,omitempty"`
}

// orgAddress is the address of the record of an organization.
func orgAddress(tenant string) model.Address {
	return model.Address{Tenant: tenant, Type: orgType, Key: "organization"}
}

// operateOrg applies calls to the record of an organization.
func operateOrg(o *model.Operations) model.Operated {
	out := model.Operated{Entity: o.Entity, Generation: o.Generation, State: o.State, Exists: o.Exists}
	for i := range o.Calls {
		if o.Calls[i].Name != opDescribe {
			out.Results = append(out.Results, model.OperationResult{Failure: &model.Failure{Kind: model.FailureInvalid, Message: "the operation is not known"}, Unmade: true})
			continue
		}
		out.State, out.Exists, out.Changed = o.Calls[i].Input, true, true
		out.Results = append(out.Results, model.OperationResult{Output: jsonPayload(nil)})
	}
	return out
}

// createOrg records an organization and creates its tenant. It writes the record first, so that
// every tenant of this protocol has one. A call that failed between the two steps can be repeated.
func (d *Door) createOrg(ctx context.Context, org *Org) error {
	for what, text := range map[string]string{"the name": org.Name, "the tier": org.Tier, "the region": org.Region} {
		if len(text) > maxOrgText {
			return fault.New(fault.Invalid, "%s of the organization has %d bytes, at most %d are allowed", what, len(text), maxOrgText)
		}
	}
	if !model.ValidTenant(org.Tenant) {
		return fault.New(fault.Invalid, "the slug of the organization is %.80q, which cannot be the name of a tenant", org.Slug)
	}
	t, err := d.cfg.Admin.Tenant(ctx, org.Tenant)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}
	if err == nil && t.Created != 0 {
		return fault.New(fault.AlreadyExists, "organization %s exists", org.Slug)
	}

	if err := d.keysOf(ctx, org.Tenant); err != nil {
		return err
	}
	record := orgRecord{Name: org.Name, Tier: org.Tier, Region: org.Region, Older: org.Older}
	_, err = d.backend.Call(ctx, api.CallRequest{Address: orgAddress(org.Tenant), Name: opDescribe, Input: mustJSON(record), RequestID: uuid.NewString()})
	if err != nil {
		return err
	}
	if _, err := d.cfg.Admin.CreateTenant(ctx, api.TenantChange{Name: org.Tenant, Note: &org.Name}); err != nil {
		return err
	}
	return d.cfg.Orgs.Put(*org)
}

// org returns the organization of a tenant. It asks the store about a tenant that the door does not
// know, because another node, or this node before a restart, may have created the organization.
func (d *Door) org(ctx context.Context, tenant string) Org {
	now := time.Now()
	org, known := d.cfg.Orgs.ofTenant(tenant, now)
	if known {
		return org
	}

	n, err := d.backend.Entity(ctx, orgAddress(tenant))
	if err != nil && !fault.Is(err, fault.NotFound) {
		d.log.Warn("the organization of a tenant cannot be read", "tenant", tenant, "error", err)
		return org
	}
	var record orgRecord
	if err != nil || !n.Entity.Exists || json.Unmarshal(n.Entity.State.Data, &record) != nil {
		d.cfg.Orgs.setPlain(tenant, now)
		return org
	}

	org.Name, org.Tier, org.Region, org.Older = record.Name, record.Tier, record.Region, record.Older
	if err := d.cfg.Orgs.Put(org); err != nil {
		d.log.Warn("the organization of a tenant is not the one that the configuration has", "tenant", tenant, "error", err)
		d.cfg.Orgs.setPlain(tenant, now)
	}
	return org
}
