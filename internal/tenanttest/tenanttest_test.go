package tenanttest_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/node"
	"github.com/perdure/perdure/internal/schedule"
	"github.com/perdure/perdure/internal/tenanttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Every method of api.Client has a verb, and every verb is a method.
func TestVerbsAreComplete(t *testing.T) {
	t.Parallel()
	var methods, verbs []string
	for m := range reflect.TypeFor[api.Client]().Methods() {
		methods = append(methods, m.Name)
	}
	for _, v := range tenanttest.Verbs() {
		verbs = append(verbs, v.Name)
	}
	slices.Sort(methods)
	slices.Sort(verbs)
	if !slices.Equal(methods, verbs) {
		t.Errorf("verbs    %v\nmethods  %v", verbs, methods)
	}
}

// Two tenants of one node do not reach each other, whatever they call, and no call works without a
// tenant.
func TestTenantsDoNotReachEachOther(t *testing.T) {
	t.Parallel()
	n, err := node.Open(t.Context(), node.Config{URL: "memory:"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})

	b := n.Backend()
	acme, globex, usual := tenanttest.Fill(t, b, "acme"), tenanttest.Fill(t, b, "globex"), tenanttest.Fill(t, b, model.DefaultTenant)
	tenanttest.Refuse(t, b, acme)
	tenanttest.Probe(t, b, model.DefaultTenant, "acme", acme)
	tenanttest.Probe(t, b, "acme", "globex", globex)
	tenanttest.Probe(t, b, "globex", model.DefaultTenant, usual)

	for tenant, want := range map[string]int{"acme": 1, "globex": 1, model.DefaultTenant: 1, "nobody": 0} {
		var names []string
		for s, err := range schedule.In(b, tenant).List(t.Context(), "") {
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, s.Tenant+"/"+s.Name)
		}
		if len(names) != want || want > 0 && names[0] != tenant+"/nightly" {
			t.Errorf("the schedules of %s are %s", tenant, strings.Join(names, ", "))
		}
	}
}
