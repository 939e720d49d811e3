package policy

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	cedar "github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/x/exp/ast"

	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/authz"
	"github.com/perdure/perdure/internal/fault"
)

// defaults is the text of the default policies.
//
//go:embed default.cedar
var defaults []byte

// DefaultText returns the default policies.
func DefaultText() string { return string(defaults) }

// Bounds.
const (
	// maxText is how large a set of policies may be. It bounds the time that one decision takes.
	maxText = 1 << 20
	// maxCallers is the number of callers whose decisions stay in memory.
	maxCallers = 10_000
)

// Policies is an Authorizer that decides with Cedar policies.
type Policies struct {
	set atomic.Pointer[set]
}

// set is one set of policies and the decisions that it has made.
type set struct {
	policies *cedar.PolicySet
	actions  []authz.Rule

	mu      sync.RWMutex
	granted map[subject]map[authz.Action]error
}

// subject is what a decision depends on, apart from the action.
type subject struct {
	name, tenant, roles string
	admin               bool
}

// Default returns the default policies.
func Default() (*Policies, error) { return Parse("default.cedar", defaults) }

// Parse reads policies. name is the name of their file, for errors.
func Parse(name string, text []byte) (*Policies, error) {
	p := &Policies{}
	return p, p.Replace(name, text)
}

// Replace reads other policies and uses them for all later decisions. If the new policies have an
// error, the current ones stay in use.
func (p *Policies) Replace(name string, text []byte) error {
	s, err := parse(name, text)
	if err != nil {
		return err
	}
	p.set.Store(s)
	return nil
}

func parse(name string, text []byte) (*set, error) {
	if len(text) > maxText {
		return nil, fault.New(fault.Invalid, "%s has %d bytes, at most %d are allowed", name, len(text), maxText)
	}
	list, err := cedar.NewPolicyListFromBytes(name, text)
	if err != nil {
		return nil, fault.New(fault.Invalid, "%s: %w", name, err)
	}
	if len(list) == 0 {
		return nil, fault.New(fault.Invalid, "%s has no policy, so no caller could do anything", name)
	}
	validator, err := newValidator()
	if err != nil {
		return nil, err
	}

	all := cedar.NewPolicySet()
	for i, policy := range list {
		id := idOf(policy, i)
		if err := validator.Policy(id, (*ast.Policy)(policy.AST())); err != nil {
			return nil, fault.New(fault.Invalid, "%s:%d: policy %s: %w", name, policy.Position().Line, id, err)
		}
		if !all.Add(cedar.PolicyID(id), policy) {
			return nil, fault.New(fault.Invalid, "%s:%d: two policies have the id %s", name, policy.Position().Line, id)
		}
	}
	return &set{policies: all, actions: authz.Table(), granted: map[subject]map[authz.Action]error{}}, nil
}

// idOf returns the id of a policy. The annotation @id gives the id. Without that annotation, the id
// is made of the place of the policy in the file.
func idOf(p *cedar.Policy, i int) string {
	if id := p.Annotations()["id"]; id != "" {
		return string(id)
	}
	return fmt.Sprintf("policy%d", i+1)
}

// Authorize decides whether a caller may take an action. It refuses an action that is not in the
// table of actions.
func (p *Policies) Authorize(who *authn.Identity, action authz.Action) error {
	s := p.set.Load()
	key := subjectOf(who)
	s.mu.RLock()
	decisions, known := s.granted[key]
	s.mu.RUnlock()
	if !known {
		decisions = s.decideAll(who, key)
	}

	refused, exists := decisions[action]
	if !exists {
		return fault.New(fault.Denied, "there is no action %s", action)
	}
	return refused
}

func subjectOf(who *authn.Identity) subject {
	k := subject{name: who.Name, tenant: who.Tenant, admin: who.Admin}
	switch len(who.Roles) {
	case 0:
	case 1:
		k.roles = who.Roles[0]
	default:
		k.roles = strings.Join(who.Roles, "\n")
	}
	return k
}

// decideAll decides all actions of a caller and remembers the decisions.
func (s *set) decideAll(who *authn.Identity, key subject) map[authz.Action]error {
	decisions := make(map[authz.Action]error, len(s.actions))
	for _, r := range s.actions {
		decisions[r.Action] = nil
		if e := s.explain(who, r); !e.Allowed {
			decisions[r.Action] = authz.Refusal(who, r.Action)
		}
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.granted) >= maxCallers {
		clear(s.granted) // for callers that call again, the set decides again
	}
	s.granted[key] = decisions
	return decisions
}

// Explanation says why a caller may take an action, or may not.
type Explanation struct {
	Allowed bool
	// Policies are the ids of the policies that forbid the action. If no policy forbids the action,
	// they are the ids of the policies that permit it, if there are any.
	Policies []string
	// Errors are the errors of policies. One error is enough to refuse the caller.
	Errors []string
}

// Explain makes a decision and says why. It does not use the remembered decisions.
func (p *Policies) Explain(who *authn.Identity, action authz.Action) (Explanation, error) {
	r := authz.ByAction(action)
	if r == nil {
		return Explanation{}, fault.New(fault.NotFound, "there is no action %.80q", action)
	}
	return p.set.Load().explain(who, *r), nil
}

func (s *set) explain(who *authn.Identity, r authz.Rule) (e Explanation) {
	entities, request := facts(who, r)
	decision, why := cedar.Authorize(s.policies, entities, request)
	for _, reason := range why.Reasons {
		e.Policies = append(e.Policies, string(reason.PolicyID))
	}
	for _, failed := range why.Errors {
		e.Errors = append(e.Errors, fmt.Sprintf("policy %s: %s", failed.PolicyID, failed.Message))
	}
	slices.Sort(e.Policies)
	slices.Sort(e.Errors)

	// Cedar skips a policy that fails. The failed policy could be the one that forbids the action,
	// so refuse the caller.
	e.Allowed = decision == cedar.Allow && len(e.Errors) == 0
	return e
}

// Names of entities.
const (
	tenantType = "Tenant"
	serverID   = "server"
)

// facts returns the Cedar entities and the Cedar request of a decision.
func facts(who *authn.Identity, r authz.Rule) (cedar.EntityMap, cedar.Request) {
	tenant := cedar.NewEntityUID(tenantType, cedar.String(who.Tenant))
	caller := cedar.NewEntityUID("Caller", cedar.String(who.Name))
	action := cedar.NewEntityUID("Action", cedar.String(r.Action))
	group := cedar.NewEntityUID("Action", cedar.String(r.Group))
	roles := []cedar.EntityUID{}
	for _, role := range authz.RolesOf(who) {
		roles = append(roles, cedar.NewEntityUID("Role", cedar.String(role)))
	}

	entities := cedar.EntityMap{
		tenant: {UID: tenant},
		group:  {UID: group},
		action: {UID: action, Parents: cedar.NewEntityUIDSet(group)},
		caller: {UID: caller, Parents: cedar.NewEntityUIDSet(roles...), Attributes: cedar.NewRecord(cedar.RecordMap{
			"name": cedar.String(who.Name), "tenant": tenant, "admin": cedar.Boolean(who.Admin),
		})},
	}
	resource := tenant
	switch r.Resource {
	case tenantType:
	case authz.Server:
		resource = cedar.NewEntityUID("Server", serverID)
		entities[resource] = cedar.Entity{UID: resource}
	default:
		resource = cedar.NewEntityUID(cedar.EntityType(r.Resource), cedar.String(who.Tenant))
		entities[resource] = cedar.Entity{
			UID: resource, Parents: cedar.NewEntityUIDSet(tenant), Attributes: cedar.NewRecord(cedar.RecordMap{"tenant": tenant}),
		}
	}
	return entities, cedar.Request{Principal: caller, Action: action, Resource: resource}
}
