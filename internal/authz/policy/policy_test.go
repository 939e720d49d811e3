package policy_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/authz"
	"github.com/perdure/perdure/internal/authz/policy"
	"github.com/perdure/perdure/internal/fault"
)

func parse(t *testing.T, text string) *policy.Policies {
	t.Helper()
	p, err := policy.Parse("test.cedar", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// The test computes a matrix of roles and actions from the default policies, and compares it with a
// golden file.
func TestDefaultMatrix(t *testing.T) {
	t.Parallel()
	p, err := policy.Default()
	if err != nil {
		t.Fatal(err)
	}
	callers := []authn.Identity{{Name: "boss", Tenant: "acme", Admin: true}}
	for _, role := range append(authz.TenantRoles(), authz.RoleAdmin, "unknown") {
		callers = append(callers, authn.Identity{Name: role, Tenant: "acme", Roles: []string{role}})
	}
	callers = append(callers, authn.Identity{Name: "no role", Tenant: "acme"}, authn.Identity{Name: "client and worker", Tenant: "acme", Roles: []string{"client", "worker"}})

	var b strings.Builder
	for i := range callers {
		who := &callers[i]
		fmt.Fprintf(&b, "%s (admin %v, roles %v)\n", who.Name, who.Admin, who.Roles)
		for _, r := range authz.Table() {
			err := p.Authorize(who, r.Action)
			if err != nil && !fault.Is(err, fault.Denied) {
				t.Errorf("%s: %s: %v", who.Name, r.Action, err)
			}
			if err == nil {
				fmt.Fprintf(&b, "  %s\n", r.Action)
			}
			if err == nil && r.Group == authz.Administer && !who.Admin {
				t.Errorf("%s may %s", who.Name, r.Action)
			}
			e, failed := p.Explain(who, r.Action)
			if failed != nil || e.Allowed != (err == nil) || len(e.Errors) > 0 || e.Allowed != (len(e.Policies) > 0) {
				t.Errorf("%s: %s: explained as %+v, decided as %v", who.Name, r.Action, e, err)
			}
		}
	}

	file := filepath.Join("testdata", "matrix.txt")
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Error(diff)
	}
}

// If a policy fails, the caller is refused, even if another policy permits the action. Cedar alone
// would skip the failed policy, which could be the one that forbids the action.
func TestPolicyThatFailsRefuses(t *testing.T) {
	t.Parallel()
	p := parse(t, `
permit (principal, action, resource);
@id("overflow") forbid (principal, action in Action::"use", resource) when { 9223372036854775807 + 1 == 0 };
`)

	who := &authn.Identity{Name: "key a", Tenant: "acme"}
	if err := p.Authorize(who, "execution:read"); err != nil {
		t.Error(err)
	}
	if err := p.Authorize(who, "execution:start"); !fault.Is(err, fault.Denied) {
		t.Error(err)
	}
	e, err := p.Explain(who, "execution:start")
	if err != nil || e.Allowed || len(e.Errors) != 1 || !strings.Contains(e.Errors[0], "overflow") {
		t.Errorf("%+v, %v", e, err)
	}
}

func TestPoliciesSeeCallerActionAndResource(t *testing.T) {
	t.Parallel()
	p := parse(t, `
permit (principal, action in [Action::"connect", Action::"read"], resource in Tenant::"acme");
permit (principal in Role::"billing", action == Action::"execution:start", resource is Execution)
  when { resource.tenant == principal.tenant && principal.name like "key *" };
@id("no-deletes") forbid (principal, action == Action::"execution:delete", resource) unless { principal.admin };
`)

	billing := authn.Identity{Name: "key a", Tenant: "beta", Roles: []string{"billing"}}
	for _, c := range []struct {
		who    authn.Identity
		action authz.Action
		want   fault.Kind
	}{
		{authn.Identity{Name: "x", Tenant: "acme"}, "execution:read", 0},
		{authn.Identity{Name: "x", Tenant: "beta"}, "execution:read", fault.Denied},
		{authn.Identity{Name: "x", Tenant: "acme"}, "tenant:read", fault.Denied},
		{billing, "execution:start", 0},
		{billing, "execution:signal", fault.Denied},
		{authn.Identity{Name: "x", Tenant: "beta", Roles: []string{"billing"}}, "execution:start", fault.Denied},
		{authn.Identity{Name: "x", Tenant: "acme"}, "execution:delete", fault.Denied},
		{billing, "no:such", fault.Denied},
		{authn.Identity{Name: "x", Tenant: "acme"}, "", fault.Denied},
	} {
		if err := p.Authorize(&c.who, c.action); fault.KindOf(err) != c.want {
			t.Errorf("%+v: %s: %v, want %v", c.who, c.action, err, c.want)
		}
	}
}

// Policies that cannot work are refused when they are read, and the previous policies stay in use.
func TestBrokenPoliciesAreRefused(t *testing.T) {
	t.Parallel()
	p := parse(t, `permit (principal in Role::"reader", action in Action::"read", resource);`)
	reader := &authn.Identity{Name: "r", Tenant: "acme", Roles: []string{"reader"}}
	for text, want := range map[string]string{
		"":                          "has no policy",
		"// nothing\n":              "has no policy",
		"permit (principal, action": "test.cedar",
		"permit (principal, action == Action::\"execution:fly\", resource);":                                 "policy policy1",
		"permit (principal, action, resource) when { principal.age > 3 };":                                   "policy policy1",
		"permit (principal == User::\"a\", action, resource);":                                               "policy policy1",
		"permit (principal, action, resource) when { context.ip == \"x\" };":                                 "policy policy1",
		"@id(\"a\") permit (principal, action, resource);\n@id(\"a\") forbid (principal, action, resource);": "test.cedar:2: two policies have the id a",
		strings.Repeat("// 0123456789\n", 1<<17):                                                             "at most 1048576",
	} {
		err := p.Replace("test.cedar", []byte(text))
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80q: %v, want %q", text, err, want)
		}
		if err := p.Authorize(reader, "execution:read"); err != nil {
			t.Errorf("after %.80q: %v", text, err)
		}
	}
}

// A remembered decision is used only for the same caller, and only until the policies are replaced.
func TestRememberedDecisions(t *testing.T) {
	t.Parallel()
	p := parse(t, `permit (principal, action, resource) when { principal.name == "good" && principal.tenant == Tenant::"acme" };`)
	var all sync.WaitGroup
	for part := range 4 {
		all.Go(func() {
			for i := range 2900 { // together 11,000 callers, which are more than are remembered
				who := authn.Identity{Name: fmt.Sprint("bad", 2700*part+i), Tenant: "acme"}
				if p.Authorize(&who, "execution:start") == nil {
					t.Errorf("%s may start", who.Name)
				}
			}
		})
	}
	all.Wait()
	good := authn.Identity{Name: "good", Tenant: "acme"}
	for _, c := range []struct {
		who  authn.Identity
		want bool
	}{
		{good, true}, {authn.Identity{Name: "good", Tenant: "beta"}, false}, {authn.Identity{Name: "goo", Tenant: "acme"}, false}, {good, true},
	} {
		if got := p.Authorize(&c.who, "execution:start") == nil; got != c.want {
			t.Errorf("%+v: %v", c.who, got)
		}
	}
	if err := p.Replace("none.cedar", []byte(`forbid (principal, action, resource);`)); err != nil {
		t.Fatal(err)
	}
	if p.Authorize(&good, "execution:start") == nil {
		t.Error("a decision outlives its policies")
	}

	reader, both := authn.Identity{Name: "k", Tenant: "a", Roles: []string{"reader"}}, authn.Identity{Name: "k", Tenant: "a", Roles: []string{"reader", "client"}}
	d, err := policy.Default()
	if err != nil {
		t.Fatal(err)
	}
	if d.Authorize(&reader, "execution:start") == nil || d.Authorize(&both, "execution:start") != nil || d.Authorize(&reader, "execution:start") == nil {
		t.Error("the roles of a caller do not decide")
	}
}

// The schema names every action and every kind of resource.
func TestSchema(t *testing.T) {
	t.Parallel()
	text := policy.Schema()
	for _, r := range authz.Table() {
		if !strings.Contains(text, fmt.Sprintf("action %q in [%q]", r.Action, r.Group)) || !strings.Contains(text, "entity "+string(r.Resource)) {
			t.Errorf("the schema lacks %s or %s", r.Action, r.Resource)
		}
	}
	if !slices.Contains(strings.Split(text, "\n"), "entity Execution in [Tenant] { tenant: Tenant };") {
		t.Error(text)
	}
}

func BenchmarkAuthorize(b *testing.B) {
	p, err := policy.Default()
	if err != nil {
		b.Fatal(err)
	}
	who := &authn.Identity{Name: "key a", Tenant: "acme", Roles: []string{"client"}}

	b.Run("again", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if p.Authorize(who, "execution:start") != nil {
				b.Fatal("refused")
			}
		}
	})

	b.Run("first", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			who := &authn.Identity{Name: fmt.Sprint(i), Tenant: "acme", Roles: []string{"client"}}
			if p.Authorize(who, "execution:start") != nil {
				b.Fatal("refused")
			}
		}
	})
}
