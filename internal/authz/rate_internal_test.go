package authz

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/fault"
)

// always allows everything, and counts its decisions.
type always struct{ asked int }

func (a *always) Authorize(*authn.Identity, Action) error { a.asked++; return nil }

// The rate refuses a caller that makes too many calls until time has passed. It does not refuse
// other callers. The question whether a caller may do something is not counted as a call.
func TestRate(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	r, inner := NewRate(10), &always{}
	r.now = func() time.Time { return now }
	a := r.Authorizer(inner)
	who := func(tenant, id string) *authn.Identity {
		return &authn.Identity{Tenant: tenant, Name: "ann", Credential: authn.Credential{Kind: authn.ByKey, ID: id}}
	}
	calls := func(who *authn.Identity, n int) (allowed int) {
		t.Helper()
		for range n {
			switch err := a.Authorize(who, "execution:read"); {
			case err == nil:
				allowed++
			case !fault.Is(err, fault.Exhausted):
				t.Fatal(err)
			}
		}
		return allowed
	}

	if n := calls(who("acme", "k1"), 15); n != 10 || inner.asked != 10 {
		t.Errorf("%d of 15 calls, and %d decisions, want 10", n, inner.asked)
	}
	for _, other := range []*authn.Identity{who("globex", "k1"), who("acme", "k2")} {
		if n := calls(other, 1); n != 1 {
			t.Errorf("%+v is refused", other)
		}
	}
	if err := Quiet(a).Authorize(who("acme", "k1"), "execution:read"); err != nil {
		t.Errorf("a question is refused: %v", err)
	}
	now = now.Add(500 * time.Millisecond)
	if n := calls(who("acme", "k1"), 15); n != 5 {
		t.Errorf("%d of 15 calls half a second later, want 5", n)
	}
	now = now.Add(time.Hour)
	if n := calls(who("acme", "k1"), 15); n != 10 {
		t.Errorf("%d of 15 calls an hour later, want 10", n)
	}

	// An admin does not get more calls by changing the tenant.
	boss := func(tenant string) *authn.Identity {
		return &authn.Identity{Tenant: tenant, Name: "admin", Admin: true}
	}
	if n := calls(boss("acme"), 6) + calls(boss("globex"), 6); n != 10 {
		t.Errorf("%d of 12 calls of an admin, want 10", n)
	}
}

// The rate remembers a bounded number of callers. Callers beyond the bound share a budget. The rate
// forgets callers that are quiet.
func TestRateIsBounded(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	r := NewRate(10)
	r.now = func() time.Time { return now }
	take := func(id int) error {
		return r.Take(&authn.Identity{Tenant: "acme", Credential: authn.Credential{Kind: authn.ByKey, ID: fmt.Sprint(id)}})
	}
	for id := range mostCallers {
		if err := take(id); err != nil {
			t.Fatal(err)
		}
	}
	var errs []error
	for id := range 20 {
		errs = append(errs, take(mostCallers+id))
	}
	if len(r.all) != mostCallers || errs[9] != nil || !fault.Is(errors.Join(errs[10:]...), fault.Exhausted) {
		t.Errorf("%d callers are known; %v", len(r.all), errors.Join(errs...))
	}
	now = now.Add(2 * time.Second)
	if err := take(2 * mostCallers); err != nil || len(r.all) != 1 {
		t.Errorf("%d callers are known after they were quiet, %v", len(r.all), err)
	}
}
