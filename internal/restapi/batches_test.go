package restapi_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/authz"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/remote"
)

// To start a batch, a caller must be allowed to apply its verb to a single execution. REST and gRPC
// make the same decision for every role and every verb.
func TestBatchNeedsTheRightOfItsVerb(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	if _, err := w.admin.CreateTenant(w.ctx, api.TenantChange{Name: "acme"}); err != nil {
		t.Fatal(err)
	}
	for _, roles := range [][]string{{"reader"}, {"client"}, {"worker"}, {"operator"}, {"auditor"}, {"owner"}} {
		key := w.key("acme", roles...).Secret
		w.token = key
		far, err := remote.Dial(w.ctx, remote.Config{Addresses: []string{w.server.Addr().String()}, PlainText: true, Token: key})
		if err != nil {
			t.Fatal(err)
		}
		defer far.Close()

		who := &authn.Identity{Name: "x", Tenant: "acme", Roles: roles}
		for _, verb := range api.BatchVerbs() {
			may := w.policies.Authorize(who, "batch:start") == nil
			for _, action := range authz.BatchActions(verb) {
				may = may && w.policies.Authorize(who, action) == nil
			}
			r := api.BatchRequest{Tenant: "acme", Verb: verb, Query: `workflow = "order"`, DryRun: true}
			body := fmt.Sprintf(`{"verb":%q,"query":"workflow = \"order\"","dry_run":true`, verb)
			if verb == api.BatchSignal {
				r.Signal, body = "go", body+`,"signal":"go"`
			}
			_, err := far.StartBatch(w.ctx, r)
			status := w.send(http.MethodPost, "/v1/batches", body+"}").status
			if fault.Is(err, fault.Denied) == may || (status == http.StatusForbidden) == may || may && (err != nil || status != http.StatusOK) {
				t.Errorf("%v: %s: allowed %v; gRPC %v, REST %d", roles, verb, may, err, status)
			}
		}
	}
}

// A caller may start batches, but may not delete executions. Such a caller cannot delete executions
// with a batch either.
func TestBatchGrantsNoOtherRight(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	if err := w.policies.Replace("test.cedar", []byte(`
permit (principal, action in [Action::"connect", Action::"read", Action::"use", Action::"administer"], resource);
permit (principal in Role::"sweeper", action == Action::"batch:start", resource);
`)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.admin.CreateTenant(w.ctx, api.TenantChange{Name: "acme"}); err != nil {
		t.Fatal(err)
	}

	w.token = w.key("acme", "sweeper").Secret
	w.want(201, "", http.MethodPost, "/v1/executions", `{"workflow":"idle","key":"1"}`)
	w.want(200, `"matched":1`, http.MethodPost, "/v1/batches", `{"verb":"cancel","query":"workflow = \"idle\"","dry_run":true}`)
	for _, verb := range []string{"terminate", "pause", "resume", "retry", "delete"} {
		p := w.want(403, "batch of "+verb, http.MethodPost, "/v1/batches", fmt.Sprintf(`{"verb":%q,"query":"workflow = \"idle\""}`, verb)).problem(t)
		if p.Kind != fault.Denied.String() {
			t.Errorf("%s: %+v", verb, p)
		}
	}
	ctx := authn.WithCall(context.Background(), authn.Call{Identity: authn.Identity{Name: "x", Tenant: "acme", Roles: []string{"sweeper"}}})
	page, err := w.server.Node().Backend().ListBatches(ctx, api.BatchListRequest{Tenant: "acme"})
	if err != nil || len(page.Batches) != 0 {
		t.Errorf("%+v, %v", page, err)
	}
}
