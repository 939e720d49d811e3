package authn_test

import (
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/fault"
)

const key = "0123456789abcdef0123456789abcdef"

func TestAdminKey(t *testing.T) {
	t.Parallel()
	k, err := authn.NewAdminKey(key, "default")
	if err != nil {
		t.Fatal(err)
	}

	for _, c := range []struct {
		what          string
		authorization []string
		tenants       []string
		tenant        string
		kind          fault.Kind
	}{
		{"the key", []string{"Bearer " + key}, nil, "default", 0},
		{"the scheme in another case", []string{"bEARER " + key}, nil, "default", 0},
		{"a chosen tenant", []string{"Bearer " + key}, []string{"acme"}, "acme", 0},
		{"nothing", nil, nil, "", fault.Unauthenticated},
		{"nothing but a tenant", nil, []string{"acme"}, "", fault.Unauthenticated},
		{"another key", []string{"Bearer " + key + "0"}, nil, "", fault.Unauthenticated},
		{"a part of the key", []string{"Bearer " + key[:31]}, nil, "", fault.Unauthenticated},
		{"no key", []string{"Bearer "}, nil, "", fault.Unauthenticated},
		{"another scheme", []string{"Basic " + key}, nil, "", fault.Unauthenticated},
		{"only the key", []string{key}, nil, "", fault.Unauthenticated},
		{"two keys", []string{"Bearer " + key, "Bearer " + key}, nil, "", fault.Unauthenticated},
		{"two tenants", []string{"Bearer " + key}, []string{"a", "b"}, "", fault.Invalid},
		{"an empty tenant", []string{"Bearer " + key}, []string{""}, "", fault.Invalid},
		{"a tenant with a control character", []string{"Bearer " + key}, []string{"a\x00b"}, "", fault.Invalid},
		{"a long tenant", []string{"Bearer " + key}, []string{strings.Repeat("x", 65)}, "", fault.Invalid},
	} {
		who, err := k.Authenticate(t.Context(), map[string][]string{"authorization": c.authorization, "perdure-tenant": c.tenants})
		if who.Tenant != c.tenant || fault.KindOf(err) != c.kind || (err == nil) != (who.Name == "admin" && who.Admin) {
			t.Errorf("%s: %+v, error %v", c.what, who, err)
		}
		if err != nil && strings.Contains(err.Error(), key[:31]) {
			t.Errorf("%s: the error has the key: %v", c.what, err)
		}
	}
}

func TestAdminKeyThatCanBeGuessed(t *testing.T) {
	t.Parallel()
	for _, bad := range []struct{ key, tenant string }{
		{"", "default"},
		{"secret", "default"},
		{key, ""},
		{strings.Repeat("a", 64), "default"},
		{strings.Repeat("1234567", 8), "default"},
		{"Change-Me-0123456789", "default"},
		{"my Password is 42 bytes long", "default"},
	} {
		if _, err := authn.NewAdminKey(bad.key, bad.tenant); !fault.Is(err, fault.Invalid) {
			t.Errorf("key %q, tenant %q: %v", bad.key, bad.tenant, err)
		}
	}
}

func TestOpen(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		header map[string][]string
		tenant string
		kind   fault.Kind
	}{
		{nil, "default", 0},
		{map[string][]string{"perdure-tenant": {"default"}}, "default", 0},
		{map[string][]string{"perdure-tenant": {"acme"}}, "", fault.Denied},
		{map[string][]string{"authorization": {"Bearer " + key}, "perdure-tenant": {"acme"}}, "", fault.Denied},
	} {
		who, err := authn.Open{Tenant: "default"}.Authenticate(t.Context(), c.header)
		if who.Tenant != c.tenant || who.Admin != (err == nil) || fault.KindOf(err) != c.kind {
			t.Errorf("%v: %+v, error %v", c.header, who, err)
		}
		chooses := authn.Open{Tenant: "default", Choose: true}
		if who, err := chooses.Authenticate(t.Context(), c.header); err != nil || len(c.header["perdure-tenant"]) > 0 && who.Tenant != c.header["perdure-tenant"][0] {
			t.Errorf("%v: %+v, error %v, although callers may choose", c.header, who, err)
		}
	}
}
