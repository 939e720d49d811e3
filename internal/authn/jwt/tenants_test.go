package jwt_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// A caller whose token has several tenants chooses one of them for each call, and cannot choose
// another tenant. The server refuses a token whose list of tenants makes no sense. A list that the
// server is not configured to read has no effect.
func TestTenantsOfToken(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	several := config
	several.TenantsClaim = "tenants"
	r, _ := ring(t, i, several)
	plain, _ := ring(t, i, config)
	sign := func(changes object) string {
		return i.sign("RS256", head("RS256", "r", nil), claims(time.Now(), changes))
	}

	token := sign(object{"tenants": []string{"globex", "acme"}})
	for _, c := range []struct {
		token, chosen, want string
	}{
		{token, "", "acme"},
		{token, "acme", "acme"},
		{token, "globex", "globex"},
		{sign(object{"tenant": nil, "tenants": []string{"globex", "acme"}}), "", "globex"},
		{sign(nil), "", "acme"}, // a token of one tenant
	} {
		header := present(c.token)
		if c.chosen != "" {
			header = present(c.token, c.chosen)
		}
		who, err := r.Authenticate(t.Context(), header)
		if err != nil || who.Tenant != c.want || who.Admin {
			t.Errorf("%q: %+v, %v; want tenant %s", c.chosen, who, err, c.want)
		}
	}
	if who, err := r.Authenticate(t.Context(), present(token)); err != nil || !slices.Equal(who.Tenants, []string{"globex", "acme"}) {
		t.Errorf("the caller may choose %v, %v", who.Tenants, err)
	}
	for _, chosen := range []string{"initech", "default", "ACME"} {
		if who, err := r.Authenticate(t.Context(), present(token, chosen)); !fault.Is(err, fault.Denied) || who.Tenant != "" {
			t.Errorf("tenant %s: %+v, %v", chosen, who, err)
		}
	}
	if _, err := plain.Authenticate(t.Context(), present(token, "globex")); !fault.Is(err, fault.Denied) {
		t.Errorf("a server that reads no lists: %v", err)
	}

	var many []string
	for n := range 101 {
		many = append(many, fmt.Sprint("t", n))
	}
	for what, changes := range map[string]object{
		"no list": {"tenants": "acme"}, "an empty list": {"tenants": []string{}}, "a number": {"tenants": []any{"acme", 1}}, "an empty name": {"tenants": []string{"acme", ""}},
		"a name twice": {"tenants": []string{"acme", "acme"}}, "too many": {"tenants": append(many, "acme")}, "no name": {"tenants": []string{"acme", "../globex"}},
		"another tenant": {"tenants": []string{"globex"}}, "a tenant that is a list": {"tenant": []string{"acme"}, "tenants": []string{"acme"}},
	} {
		if who, err := r.Authenticate(t.Context(), present(sign(changes))); !fault.Is(err, fault.Unauthenticated) || who.Tenant != "" {
			t.Errorf("%s: %+v, %v", what, who, err)
		}
	}
}

// When one of several tenants of a caller is disabled, the calls of the caller in that tenant end.
// The caller may continue in the other tenants. The same holds for a session.
func TestOneOfSeveralTenantsIsDisabled(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	several := config
	several.TenantsClaim = "tenants"
	synctest.Test(t, func(t *testing.T) {
		r, _ := ring(t, i, several)
		login, secret := authn.NewLogin()
		login.Tenant, login.Tenants, login.Name, login.Roles = "acme", []string{"acme", "globex"}, "ann", []string{"client"}
		login.Expires = model.TimeOf(time.Now().Add(time.Hour))
		login.Credential = authn.Credential{Kind: authn.ByToken, ID: "r"}
		r.SetLogins([]authn.Login{login})
		token := i.sign("RS256", head("RS256", "r", nil), claims(time.Now(), object{"tenants": []string{"acme", "globex"}}))

		for what, header := range map[string]func(tenant string) map[string][]string{
			"a token": func(tenant string) map[string][]string { return present(token, tenant) },
			"a session": func(tenant string) map[string][]string {
				return map[string][]string{":session": {secret}, "perdure-tenant": {tenant}}
			},
		} {
			enter := func(tenant string, want fault.Kind) context.Context {
				t.Helper()
				who, err := r.Authenticate(t.Context(), header(tenant))
				if fault.KindOf(err) != want || err == nil && who.Tenant != tenant {
					t.Fatalf("%s in %s: %+v, %v", what, tenant, who, err)
				}
				return who.Valid
			}
			enter("initech", fault.Denied)
			was := enter("acme", fault.Unclassified)
			r.Set(nil, map[string]bool{"acme": true})
			synctest.Wait()
			if !fault.Is(context.Cause(was), fault.Denied) {
				t.Errorf("%s: what it does in the disabled tenant ended with %v", what, context.Cause(was))
			}
			enter("acme", fault.Denied)
			other := enter("globex", fault.Unclassified)
			r.Set(nil, map[string]bool{"acme": true}) // another change
			synctest.Wait()
			if other.Err() != nil {
				t.Errorf("%s: what it does in another tenant ended with %v", what, context.Cause(other))
			}
			r.Set(nil, nil)
			enter("acme", fault.Unclassified)
		}
		r.SetLogins(nil)
		time.Sleep(2 * time.Hour) // the token ends, and its timer with it
	})
}
