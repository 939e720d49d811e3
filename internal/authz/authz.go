// Package authz says what callers may do. One table has a row for every method of gRPC, every
// operation of the REST API and every route of the Flovyn contract. The row names the action, and
// the kind of thing that the action acts on. An Authorizer decides whether a caller may take an
// action.
//
// A call that has no row in the table is refused. Servers check at start that the table covers
// everything that they serve, so a server with a method that has no row does not start.
//
// The policies of package policy are the Authorizer of a server. This package itself links no
// policy engine, so that programs with an embedded store stay small.
package authz

import (
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/fault"
)

// Action is what a caller wants to do, such as "execution:start".
type Action string

// Group is a set of actions that policies allow together.
type Group string

// The groups. Every action is in one.
const (
	Connect    Group = "connect"    // learn what the server is and who the caller is
	Read       Group = "read"       // look at what the tenant has; change nothing
	Use        Group = "use"        // start, signal and call: what programs do
	Operate    Group = "operate"    // repair, pause, bound and remove: what people do
	Work       Group = "work"       // execute code of the tenant as a worker
	Audit      Group = "audit"      // see which caller has taken which administrative action
	Administer Group = "administer" // change tenants, keys, settings and nodes of the server
)

// Groups lists the groups.
func Groups() []Group { return []Group{Connect, Read, Use, Operate, Work, Audit, Administer} }

// Resource is the kind of thing that an action concerns. All kinds but Server belong to the tenant
// of the caller.
type Resource string

// Server is the resource of actions that concern all tenants.
const Server Resource = "Server"

// Rule is a row of the table.
type Rule struct {
	Action   Action
	Group    Group
	Resource Resource
	// Methods are full names of methods of gRPC services.
	Methods []string
	// Operations are ids of operations of the REST API.
	Operations []string
}

// Roles of the default policies. A key has one or more of them.
const (
	RoleReader   = "reader"
	RoleClient   = "client"
	RoleWorker   = "worker"
	RoleOperator = "operator"
	RoleAuditor  = "auditor"
	RoleOwner    = "owner" // the role of a key that names no role
	RoleAdmin    = "admin" // the role of admin keys only
)

// TenantRoles are the roles that a key of a tenant can have.
func TenantRoles() []string {
	return []string{RoleReader, RoleClient, RoleWorker, RoleOperator, RoleAuditor, RoleOwner}
}

// Authorizer decides what callers may do. It is safe for concurrent use and does not block.
type Authorizer interface {
	// Authorize returns nil if the caller may take the action, and an error of kind Denied
	// otherwise.
	Authorize(who *authn.Identity, action Action) error
}

// Admins lets admins do everything, and other callers nothing. It is for servers that only their
// own user can reach.
type Admins struct{}

// Authorize refuses callers that are not admins.
func (Admins) Authorize(who *authn.Identity, action Action) error {
	if who.Admin {
		return nil
	}
	return Refusal(who, action)
}

// Quiet returns an authorizer that makes the same decisions and records nothing. It is for code
// that only wants to know what a caller may do.
func Quiet(a Authorizer) Authorizer {
	if recording, ok := a.(interface{ Unwrap() Authorizer }); ok {
		return recording.Unwrap()
	}
	return a
}

// Refusal is the error for a caller that may not take an action.
func Refusal(who *authn.Identity, action Action) error {
	role := "it has no role"
	if roles := RolesOf(who); len(roles) > 0 {
		role = "its role is " + strings.Join(roles, ", ")
	}
	if r := ByAction(action); r != nil && r.Group == Administer && !who.Admin {
		return fault.New(fault.Denied, "%s needs an admin key, and the caller has a key of tenant %s", action, who.Tenant)
	}
	return fault.New(fault.Denied, "%s may not %s in tenant %s: %s", who.Name, action, who.Tenant, role)
}

// Allowed returns the actions that a caller may take, in the order of the table. It records no
// decision.
func Allowed(a Authorizer, who *authn.Identity) []Action {
	quiet, may := Quiet(a), []Action{}
	for i := range table {
		if quiet.Authorize(who, table[i].Action) == nil {
			may = append(may, table[i].Action)
		}
	}
	return may
}

// RolesOf returns the roles of a caller. A caller without roles is the owner of its tenant. An
// admin has the role of admins and no other role. No other caller has that role.
func RolesOf(who *authn.Identity) []string {
	switch {
	case who.Admin:
		return []string{RoleAdmin}
	case len(who.Roles) == 0:
		return []string{RoleOwner}
	}
	return slices.DeleteFunc(slices.Clone(who.Roles), func(role string) bool { return role == RoleAdmin })
}

// index finds rows of the table.
type index struct {
	methods, operations map[string]*Rule
	actions             map[Action]*Rule
}

var rows = newIndex(table)

func newIndex(table []Rule) index {
	x := index{map[string]*Rule{}, map[string]*Rule{}, map[Action]*Rule{}}
	for i := range table {
		r := &table[i]
		x.actions[r.Action] = r
		for _, m := range r.Methods {
			x.methods[m] = r
		}
		for _, o := range r.Operations {
			x.operations[o] = r
		}
	}
	return x
}

// ByMethod returns the row of a method of gRPC, or nil if there is none.
func ByMethod(full string) *Rule { return rows.methods[full] }

// ByOperation returns the row of an operation of the REST API, or nil if there is none.
func ByOperation(id string) *Rule { return rows.operations[id] }

// ByAction returns the row of an action, or nil if there is none.
func ByAction(a Action) *Rule { return rows.actions[a] }

// Table returns all rows, in the order of the table.
func Table() []Rule { return slices.Clone(table) }

// Served lists what a server serves: methods of gRPC, operations of the REST API, and routes of the
// Flovyn contract.
type Served struct{ Methods, Operations, Routes []string }

// Check returns an error that names everything that a server serves and that the table does not
// cover.
func Check(all Served) error {
	var missing []string
	look := func(names []string, find func(string) *Rule) {
		for _, name := range names {
			if find(name) == nil {
				missing = append(missing, name)
			}
		}
	}
	look(all.Methods, ByMethod)
	look(all.Operations, ByOperation)
	look(all.Routes, ByRoute)

	if len(missing) == 0 {
		return nil
	}
	slices.Sort(missing)
	return fault.WithHint(fault.New(fault.Invalid, "the table of actions has no row for %s", strings.Join(missing, ", ")),
		"this build is not complete: use another one, and report it")
}
