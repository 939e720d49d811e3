package authz_test

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/authz"
	"github.com/perdure/perdure/internal/fault"
)

// methods returns all methods of the native protocol, unary and streaming.
func methods() (all []string) {
	for _, desc := range []grpc.ServiceDesc{pb.ClientService_ServiceDesc, pb.WorkerService_ServiceDesc, pb.AdminService_ServiceDesc} {
		for _, m := range desc.Methods {
			all = append(all, "/"+desc.ServiceName+"/"+m.MethodName)
		}
		for _, s := range desc.Streams {
			all = append(all, "/"+desc.ServiceName+"/"+s.StreamName)
		}
	}
	return all
}

// The table has one row for every method of the protocol, and no row for a method that does not
// exist.
func TestTableIsComplete(t *testing.T) {
	t.Parallel()
	all := methods()
	if len(all) < 75 {
		t.Errorf("found %d methods, want at least 75", len(all))
	}
	if err := authz.Check(authz.Served{Methods: all}); err != nil {
		t.Error(err)
	}

	routed := map[authz.Action]bool{}
	for _, route := range authz.Routes() {
		rule := authz.ByRoute(route)
		if rule == nil {
			t.Errorf("%s has an action that does not exist", route)
			continue
		}
		routed[rule.Action] = true
	}
	actions, seen := map[authz.Action]bool{}, map[string]bool{}
	for _, r := range authz.Table() {
		if actions[r.Action] {
			t.Errorf("%s has two rows", r.Action)
		}
		actions[r.Action] = true
		if !slices.Contains(authz.Groups(), r.Group) {
			t.Errorf("%s has group %q, which does not exist", r.Action, r.Group)
		}
		if len(r.Methods)+len(r.Operations) == 0 && !routed[r.Action] {
			t.Errorf("no method, operation or route has action %s", r.Action)
		}
		for _, name := range slices.Concat(r.Methods, r.Operations) {
			if seen[name] {
				t.Errorf("%s has two rows", name)
			}
			seen[name] = true
			if strings.HasPrefix(name, "/perdure.") && !slices.Contains(all, name) {
				t.Errorf("%s is in the table, but not in the protocol", name)
			}
		}

		// Actions that concern the whole server need an admin, and other actions do not.
		if (r.Group == authz.Administer) != (r.Resource == authz.Server) {
			t.Errorf("%s is in group %s and concerns %s", r.Action, r.Group, r.Resource)
		}
		for _, m := range r.Methods {
			// AdminService also has the audit log, which callers of a tenant may read.
			if strings.Contains(m, "AdminService") && r.Group != authz.Administer && r.Group != authz.Audit {
				t.Errorf("%s is in group %s", m, r.Group)
			}
		}
	}
}

// A server does not start if the table has no row for something that the server serves. The error
// names everything that is missing.
func TestCheckNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	err := authz.Check(authz.Served{
		Methods: []string{"/perdure.v1.ClientService/Start", "/x.Y/Z"}, Operations: []string{"start-execution", "do-harm"}, Routes: []string{"POST orgs", "PUT orgs"},
	})
	if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "no row for /x.Y/Z, PUT orgs, do-harm") {
		t.Error(err)
	}
}

// authz.Admins lets admins do everything and denies all other callers everything. A caller is an
// admin because of its identity, and not because of the names of its roles.
func TestAdmins(t *testing.T) {
	t.Parallel()
	if err := (authz.Admins{}).Authorize(&authn.Identity{Tenant: "acme", Admin: true}, "tenant:write"); err != nil {
		t.Error(err)
	}
	for _, roles := range [][]string{nil, {authz.RoleAdmin}, {authz.RoleOwner}} {
		who := &authn.Identity{Tenant: "acme", Roles: roles}
		if err := (authz.Admins{}).Authorize(who, "execution:read"); !fault.Is(err, fault.Denied) {
			t.Errorf("roles %v: %v, want the call denied", roles, err)
		}
		if slices.Contains(authz.RolesOf(who), authz.RoleAdmin) {
			t.Errorf("roles %v: the caller has the role of admins", roles)
		}
	}
}
