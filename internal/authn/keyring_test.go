package authn_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// newKeyring returns a keyring with an admin key and no other key.
func newKeyring(t *testing.T) *authn.Keyring {
	t.Helper()
	static, err := authn.NewAdminKey(key, "default")
	if err != nil {
		t.Fatal(err)
	}
	return authn.NewKeyring(static)
}

// present is the header of a caller with a key.
func present(secret string, tenants ...string) map[string][]string {
	return map[string][]string{"authorization": {"Bearer " + secret}, "perdure-tenant": tenants}
}

// A stored key is accepted until it is revoked or its tenant is disabled. At that time, calls that
// use the key end. Other keys are not affected.
func TestKeyring(t *testing.T) {
	t.Parallel()
	ring := newKeyring(t)
	a, secretA := authn.NewKey("acme")
	b, secretB := authn.NewKey("beta")
	boss, secretBoss := authn.NewKey("")

	enter := func(what string, header map[string][]string, tenant string, kind fault.Kind) authn.Identity {
		t.Helper()
		who, err := ring.Authenticate(t.Context(), header)
		if who.Tenant != tenant || fault.KindOf(err) != kind {
			t.Errorf("%s: %+v, error %v", what, who, err)
		}
		if err != nil && (who.Tenant != "" || who.Name != "" || who.Admin || strings.Contains(err.Error(), secretA[12:])) {
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

// The stored record has no secret, and a damaged record is an error.
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

// When a key expires, calls that use it end. If the roles of a key change, calls that use the key
// end as well.
func TestKeyExpires(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ring := newKeyring(t)
		k, secret := authn.NewKey("acme")
		k.Roles, k.Expires = []string{"worker"}, model.TimeOf(time.Now().Add(time.Hour))
		ring.Set([]authn.Key{k}, nil)
		if used := ring.Uses(); len(used) > 0 {
			t.Errorf("used %+v before the first call", used)
		}
		who, err := ring.Authenticate(t.Context(), present(secret))
		if err != nil || who.Valid.Err() != nil || !slices.Equal(who.Roles, []string{"worker"}) {
			t.Fatalf("%+v, %v", who, err)
		}
		if used := ring.Uses(); len(used) != 1 || used[0] != (authn.Use{Tenant: "acme", ID: k.ID, At: model.TimeOf(time.Now())}) {
			t.Errorf("used %+v", used)
		}

		time.Sleep(time.Hour)
		synctest.Wait()
		if cause := context.Cause(who.Valid); cause == nil || cause.Error() != "the key has expired" {
			t.Errorf("the credential ended with %v", cause)
		}
		if _, err := ring.Authenticate(t.Context(), present(secret)); !fault.Is(err, fault.Unauthenticated) {
			t.Errorf("an expired key: %v", err)
		}

		k.Expires = 0
		ring.Set([]authn.Key{k}, nil)
		who, err = ring.Authenticate(t.Context(), present(secret))
		if err != nil {
			t.Fatal(err)
		}
		k.Roles = []string{"reader"}
		ring.Set([]authn.Key{k}, nil)
		if who.Valid.Err() == nil {
			t.Error("a credential keeps roles that its key has lost")
		}
		if now, err := ring.Authenticate(t.Context(), present(secret)); err != nil || !slices.Equal(now.Roles, k.Roles) {
			t.Errorf("%+v, %v", now, err)
		}
	})
}

// The calls of a key continue when the key gets another expiry, as when an operator rotates it with
// an overlap, and end when it has expired.
func TestKeyGetsAnotherExpiry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ring := newKeyring(t)
		k, secret := authn.NewKey("acme")
		k.Roles = []string{"worker"}
		ring.Set([]authn.Key{k}, nil)
		who, err := ring.Authenticate(t.Context(), present(secret))
		if err != nil {
			t.Fatal(err)
		}

		for _, hours := range []int{1, 3, 2} {
			k.Expires = model.TimeOf(time.Now().Add(time.Duration(hours) * time.Hour))
			ring.Set([]authn.Key{k}, nil)
			if who.Valid.Err() != nil {
				t.Fatalf("the calls have ended: %v", context.Cause(who.Valid))
			}
			if used := ring.Uses(); len(used) != 1 {
				t.Errorf("used %+v", used)
			}
		}
		time.Sleep(2*time.Hour - 1)
		synctest.Wait()
		if who.Valid.Err() != nil {
			t.Fatalf("the calls have ended early: %v", context.Cause(who.Valid))
		}
		time.Sleep(time.Microsecond)
		synctest.Wait()
		if cause := context.Cause(who.Valid); cause == nil || cause.Error() != "the key has expired" {
			t.Errorf("the calls ended with %v", cause)
		}

		k.Expires = model.TimeOf(time.Now().Add(time.Hour))
		ring.Set([]authn.Key{k}, nil)
		if who, err = ring.Authenticate(t.Context(), present(secret)); err != nil || who.Valid.Err() != nil {
			t.Errorf("a key that has got more time: %v, %v", err, context.Cause(who.Valid))
		}
		ring.Set(nil, nil)
		if cause := context.Cause(who.Valid); cause == nil || cause.Error() != "the key was revoked" {
			t.Errorf("the calls ended with %v", cause)
		}
	})
}
