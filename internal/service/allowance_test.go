package service_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/service"
	"github.com/perdure/perdure/internal/store/memory"
)

// Clients of a tenant cannot start more open executions than its allowance, no matter how they
// start them. A repeated start finds its execution, the end of an execution makes room, and other
// tenants are not affected.
func TestAllowanceOfOpenExecutions(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := live(t, service.Limits{})
	start := func(tenant string, key int) api.StartRequest {
		return api.StartRequest{Address: model.Address{Tenant: tenant, Type: "order", Key: fmt.Sprint(key)}}
	}
	if err := s.SetAllowance(ctx, "acme", api.Allowance{Open: 3}); err != nil {
		t.Fatal(err)
	}
	if a, err := s.Allowance(ctx, "acme"); err != nil || a.Open != 3 {
		t.Fatalf("%+v, %v", a, err)
	}

	for i := range 3 {
		if _, err := s.Start(ctx, start("acme", i)); err != nil {
			t.Fatal(err)
		}
	}
	_, err := s.Start(ctx, start("acme", 3))
	wantKind(t, "a start above the allowance", err, fault.Exhausted)
	_, err = s.Run(ctx, start("acme", 4))
	wantKind(t, "a run above the allowance", err, fault.Exhausted)
	many, err := s.StartMany(ctx, []api.StartRequest{start("acme", 0), start("acme", 5), start("globex", 5)})
	if err != nil || many[0].Err != nil || !many[0].Existing || !fault.Is(many[1].Err, fault.Exhausted) || many[2].Err != nil {
		t.Errorf("many: %+v, %v", many, err)
	}
	if reply, err := s.Start(ctx, start("acme", 1)); err != nil || !reply.Existing {
		t.Errorf("a repeated start: %+v, %v", reply, err)
	}

	if err := s.Terminate(ctx, api.CancelRequest{Target: api.Target{Address: start("acme", 0).Address}}); err != nil {
		t.Fatal(err)
	}
	for { // until the next count
		if _, err = s.Start(ctx, start("acme", 6)); !fault.Is(err, fault.Exhausted) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		t.Error(err)
	}
	if err := s.SetAllowance(ctx, "acme", api.Allowance{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Start(ctx, start("acme", 7)); err != nil {
		t.Errorf("without an allowance: %v", err)
	}
}

// Starts per second are bounded per tenant, and numbers that make no sense are refused.
func TestAllowanceOfStarts(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := live(t, service.Limits{})
	if err := s.SetAllowance(ctx, "acme", api.Allowance{Starts: 5}); err != nil {
		t.Fatal(err)
	}
	refused := 0
	for i := range 200 {
		_, err := s.Start(ctx, api.StartRequest{Address: model.Address{Tenant: "acme", Type: "order", Key: fmt.Sprint(i)}})
		if fault.Is(err, fault.Exhausted) && strings.Contains(err.Error(), "5 executions per second") {
			refused++
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if refused == 0 {
		t.Error("200 starts at once were all admitted")
	}
	for _, a := range []api.Allowance{{Open: -1}, {Starts: -1}, {Weight: 1001}, {Retention: time.Millisecond}} {
		wantKind(t, fmt.Sprintf("%+v", a), s.SetAllowance(ctx, "acme", a), fault.Invalid)
	}
}

// The engine keeps closed runs of a tenant for the time in its allowance.
func TestAllowanceOfRetention(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	st := memory.New(memory.Options{Shards: shards})
	s := run(t, engine.Config{Store: st}, service.Limits{})
	if err := s.SetAllowance(ctx, "acme", api.Allowance{Retention: time.Hour}); err != nil {
		t.Fatal(err)
	}
	for tenant, want := range map[string]time.Duration{"acme": time.Hour, "globex": 0} {
		target := api.Target{Address: model.Address{Tenant: tenant, Type: "order", Key: "1"}}
		if _, err := s.Start(ctx, api.StartRequest{Address: target.Address}); err != nil {
			t.Fatal(err)
		}
		if err := s.Terminate(ctx, api.CancelRequest{Target: target}); err != nil {
			t.Fatal(err)
		}
		d, err := s.Describe(ctx, target)
		if err != nil {
			t.Fatal(err)
		}
		if keep := d.Outcome.Leaves; want == 0 && keep != 0 || want != 0 && keep != d.Outcome.At.Add(want) {
			t.Errorf("a run of %s that closed at %s leaves at %s", tenant, d.Outcome.At, keep)
		}
	}
}
