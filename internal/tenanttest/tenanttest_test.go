package tenanttest_test

import (
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
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

// No call in one tenant of a node reaches anything of another tenant, and no call works without a
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

// The engine serves the schedules of every tenant, even of a tenant that no app serves.
func TestSchedulesOfEveryTenant(t *testing.T) {
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
	stop, err := schedule.ServeAll(t.Context(), n.Backend().(schedule.Host), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer stop()

	spec := &schedule.Spec{Every: schedule.Duration(time.Hour), Job: schedule.Job{Kind: schedule.KindWorkflow, Name: "order"}}
	for _, tenant := range []string{"acme", "globex"} {
		s := schedule.In(n.Backend(), tenant)
		if change, err := s.Apply(t.Context(), "hourly", schedule.Command{Spec: spec}, false); err != nil || change != schedule.Created {
			t.Fatalf("%s: %s, %v", tenant, change, err)
		}
		if _, err := s.Ask(t.Context(), "hourly", &schedule.Command{Verb: schedule.VerbTrigger}); err != nil {
			t.Fatal(err)
		}
		eventuallyCounts(t, n.Backend(), tenant)
	}
	if seen, err := schedule.In(n.Backend(), "nobody").Look(t.Context(), "hourly"); !fault.Is(err, fault.NotFound) {
		t.Errorf("a tenant without schedules sees %+v, %v", seen, err)
	}
	_, err = n.Backend().Join(t.Context(), nil, api.Offer{Tenant: model.EveryTenant, Workflows: []string{"order"}})
	if !fault.Is(err, fault.Invalid) {
		t.Errorf("a worker joins for every tenant: %v", err)
	}
}

// eventuallyCounts waits until the schedule of a tenant has started its job in that tenant.
func eventuallyCounts(t *testing.T, b api.Client, tenant string) {
	t.Helper()
	for {
		n, err := b.Count(t.Context(), api.ListRequest{Tenant: tenant, Workflows: []string{"order"}})
		if err != nil || n == 1 {
			if err != nil {
				t.Fatal(err)
			}
			return
		}
		time.Sleep(time.Millisecond)
	}
}
