package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go/x/exp/schema"
	"github.com/cedar-policy/cedar-go/x/exp/schema/validate"

	"github.com/perdure/perdure/internal/authz"
	"github.com/perdure/perdure/internal/fault"
)

// Schema returns the schema of policies: the entities and the actions that they may name.
func Schema() string {
	var b strings.Builder
	b.WriteString(`entity Role;
entity Tenant;
entity Caller in [Role] { name: String, tenant: Tenant, admin: Bool };
entity Server;
`)

	for _, kind := range kinds() {
		if kind != authz.Server && kind != tenantType {
			fmt.Fprintf(&b, "entity %s in [Tenant] { tenant: Tenant };\n", kind)
		}
	}

	b.WriteByte('\n')
	for _, g := range authz.Groups() {
		fmt.Fprintf(&b, "action %q;\n", g)
	}
	for _, r := range authz.Table() {
		fmt.Fprintf(&b, "action %q in [%q] appliesTo { principal: Caller, resource: %s };\n", r.Action, r.Group, r.Resource)
	}

	return b.String()
}

// kinds are the kinds of resources, by name.
func kinds() []authz.Resource {
	var all []authz.Resource
	for _, r := range authz.Table() {
		all = append(all, r.Resource)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// newValidator returns a validator of policies.
func newValidator() (*validate.Validator, error) {
	var s schema.Schema
	if err := s.UnmarshalCedar([]byte(Schema())); err != nil {
		return nil, fault.New(fault.Internal, "read the schema of policies: %w", err)
	}
	resolved, err := s.Resolve()
	if err != nil {
		return nil, fault.New(fault.Internal, "resolve the schema of policies: %w", err)
	}
	return validate.New(resolved), nil
}
