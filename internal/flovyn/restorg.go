package flovyn

import (
	"net/http"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/authz"
	"github.com/perdure/perdure/internal/fault"
)

// createOrg creates an organization. Only an admin may do that.
func createOrg(c *call) (int, any, error) {
	var m struct{ Name, Slug, Tier, Region string }
	if err := c.read(&m); err != nil {
		return 0, nil, err
	}
	if c.d.cfg.Admin == nil {
		return 0, nil, fault.New(fault.Denied, "this server creates no organizations")
	}

	org := Org{ID: derivedOrg(m.Slug), Slug: m.Slug, Name: m.Name, Tier: m.Tier, Region: m.Region, Tenant: m.Slug, Older: c.who.Older}
	if err := c.d.createOrg(c, &org); err != nil {
		return 0, nil, err
	}

	return http.StatusCreated, orgJSON(org), nil
}

func orgJSON(o Org) map[string]any {
	return map[string]any{"id": o.ID, "slug": o.Slug, "name": o.Name, "tier": o.Tier, "region": o.Region}
}

func getOrg(c *call) (int, any, error) { return http.StatusOK, orgJSON(c.org), nil }

// workerTokenPrefix is the prefix of the worker tokens of the older dialect. A key follows it.
const workerTokenPrefix = "fwt_"

// createToken creates a key with the roles of a client and of a worker. The caller itself must be
// allowed to work as a worker and to start executions, so that it does not gain these rights with
// the new key.
func createToken(c *call) (int, any, error) {
	var m struct{ DisplayName string }
	if err := c.read(&m); err != nil {
		return 0, nil, err
	}
	if c.d.cfg.Admin == nil {
		return 0, nil, fault.New(fault.Denied, "this server creates no tokens")
	}

	for _, action := range []authz.Action{"worker:work", "execution:start"} {
		if err := c.d.cfg.Authorizer.Authorize(&c.who, action); err != nil {
			return 0, nil, err
		}
	}

	k, err := c.d.cfg.Admin.CreateKey(c, api.KeyRequest{Tenant: c.org.Tenant, Note: m.DisplayName, Roles: []string{authz.RoleClient, authz.RoleWorker}})
	if err != nil {
		return 0, nil, err
	}
	return http.StatusCreated, map[string]any{"id": k.ID, "token": workerTokenPrefix + k.Secret, "displayName": m.DisplayName}, nil
}

func workerJSON(w *workerInfo) map[string]any {
	status := "ONLINE"
	if time.Since(w.heard) > 2*time.Minute {
		status = "OFFLINE"
	}
	return map[string]any{
		"id": w.id, "workerName": w.name, "workerVersion": w.version, "workerType": w.kind, "hostName": w.host, "processId": w.process,
		"workflows": kindsOf(w.workflows), "tasks": kindsOf(w.tasks), "status": status, "lastHeartbeatAt": w.heard.UTC(), "registeredAt": w.registered.UTC(),
	}
}

// listWorkers lists the workers that have registered at this server.
func listWorkers(c *call) (int, any, error) {
	all := c.d.workers.list(c.org.Tenant)
	list := make([]any, 0, len(all))
	for i := range all {
		list = append(list, workerJSON(&all[i]))
	}
	return http.StatusOK, map[string]any{"workers": list, "total": len(list)}, nil
}

func getWorker(c *call) (int, any, error) {
	for _, w := range c.d.workers.list(c.org.Tenant) {
		if w.id == c.r.PathValue("id") {
			return http.StatusOK, workerJSON(&w), nil
		}
	}
	return 0, nil, fault.New(fault.NotFound, "there is no worker %.80q", c.r.PathValue("id"))
}
