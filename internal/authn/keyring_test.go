package authn_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/fault"
)

// present is the header of a caller with a key.
func present(secret string, tenants ...string) map[string][]string {
	return map[string][]string{"authorization": {"Bearer " + secret}, "perdure-tenant": tenants}
}

// A stored key lets its tenant in until it is gone or the tenant is disabled; then what uses it
// ends. Other keys are not affected.
func TestKeyring(t *testing.T) {
	t.Parallel()
	static, err := authn.NewAdminKey(key, "default")
	if err != nil {
		t.Fatal(err)
	}
	ring := authn.NewKeyring(static)
	a, secretA := authn.NewKey("acme")
	b, secretB := authn.NewKey("beta")
	boss, secretBoss := authn.NewKey("")

	enter := func(what string, header map[string][]string, tenant string, kind fault.Kind) authn.Identity {
		t.Helper()
		who, err := ring.Authenticate(t.Context(), header)
		if who.Tenant != tenant || fault.KindOf(err) != kind {
			t.Errorf("%s: %+v, error %v", what, who, err)
		}
		if err != nil && (who != authn.Identity{} || strings.Contains(err.Error(), secretA[12:])) {
			t.Errorf("%s: %+v, error %v", what, who, err)
		}
		return who
	}
	enter("a key that is not stored", present(secretA), "", fault.Unauthenticated)

	ring.Set([]authn.Key{a, b, boss}, nil)
	whoA := enter("a key", present(secretA), "acme", 0)
	whoB := enter("another key", present(secretB), "beta", 0)
	enter("its own tenant", present(secretA, "acme"), "acme", 0)
	enter("another tenant", present(secretA, "beta"), "", fault.Denied)
	enter("the static key", present(key, "beta"), "beta", 0)
	enter("a shortened key", present(secretA[:len(secretA)-1]), "", fault.Unauthenticated)
	enter("the id of one and the secret of another", present(secretA[:20]+secretB[20:]), "", fault.Unauthenticated)
	enter("only the id", present("perdure_"+a.ID+"_"), "", fault.Unauthenticated)
	enter("two tenants", present(secretBoss, "a", "b"), "", fault.Invalid)
	if who := enter("an admin key", present(secretBoss), "default", 0); !who.Admin || whoA.Admin {
		t.Errorf("the admin key is %+v, the key of a tenant %+v", who, whoA)
	}
	enter("an admin key that chooses", present(secretBoss, "acme"), "acme", 0)

	ring.Set([]authn.Key{a, b, boss}, map[string]bool{"acme": true})
	enter("a disabled tenant", present(secretA), "", fault.Denied)
	enter("an admin in a disabled tenant", present(secretBoss, "acme"), "acme", 0)
	if err := context.Cause(whoA.Valid); !fault.Is(err, fault.Denied) {
		t.Errorf("a caller of a disabled tenant ends with %v", err)
	}

	ring.Set([]authn.Key{a, b, boss}, nil)
	again := enter("an enabled tenant", present(secretA), "acme", 0)
	ring.Set([]authn.Key{b}, nil)
	enter("a revoked key", present(secretA), "", fault.Unauthenticated)
	if err := context.Cause(again.Valid); !fault.Is(err, fault.Unauthenticated) {
		t.Errorf("a caller with a revoked key ends with %v", err)
	}
	if whoB.Valid.Err() != nil {
		t.Error("a key ends with another one")
	}
}

// What is stored has no secret, and a damaged record is an error.
func TestStoredKey(t *testing.T) {
	t.Parallel()
	k, secret := authn.NewKey("acme")
	if len(secret) < 60 || !strings.HasPrefix(secret, "perdure_"+k.ID+"_") {
		t.Errorf("the secret is %q", secret)
	}
	body, err := json.Marshal(k)
	if err != nil {
		t.Fatal(err)
	}

	if strings.Contains(string(body), secret[len(secret)-20:]) {
		t.Errorf("%s has the secret", body)
	}
	if back, err := authn.ReadKey("acme", k.ID, body); err != nil || string(back.Sum) != string(k.Sum) || back.Tenant != "acme" || back.ID != k.ID {
		t.Errorf("read %+v, %v", back, err)
	}

	for _, damaged := range []string{"", "{}", `{"sum":"AAAA"}`, "[]"} {
		if _, err := authn.ReadKey("acme", "x", []byte(damaged)); !fault.Is(err, fault.Corrupt) {
			t.Errorf("%q: %v", damaged, err)
		}
	}
}
