// Package authn says who is calling: it turns the headers of a request into a tenant and a name, or
// refuses them. It decides nothing about what the caller may do.
//
// An authenticator is safe for concurrent use and never blocks: the server calls it before it reads
// the body of a request.
package authn

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/perdure/perdure/internal/fault"
)

// Headers that authenticators read, in lower case.
const (
	// AuthorizationHeader has "Bearer " and the key.
	AuthorizationHeader = "authorization"
	// TenantHeader chooses the tenant. Only a caller with an admin key may use it.
	TenantHeader = "perdure-tenant"
)

const (
	// leastKey is the least length of an admin key, so that it cannot be guessed.
	leastKey = 16
	// maxTenant bounds the name of a tenant, as the service does.
	maxTenant = 200
)

// AdminKey lets callers in who have one static key. They may choose their tenant.
type AdminKey struct {
	sum    [sha256.Size]byte
	tenant string
}

// NewAdminKey returns an authenticator for one key. The tenant is that of callers that choose none.
func NewAdminKey(key, tenant string) (*AdminKey, error) {
	if len(key) < leastKey {
		return nil, fault.New(fault.Invalid, "the admin key has %d bytes, must be >= %d", len(key), leastKey)
	}
	if err := checkTenant(tenant); err != nil {
		return nil, err
	}
	return &AdminKey{sha256.Sum256([]byte(key)), tenant}, nil
}

// Authenticate returns the tenant and the name of the caller. The comparison takes the same time
// for every key.
func (k *AdminKey) Authenticate(_ context.Context, header map[string][]string) (tenant, name string, err error) {
	key, err := bearer(header)
	if err != nil {
		return "", "", err
	}
	sum := sha256.Sum256([]byte(key))
	if subtle.ConstantTimeCompare(sum[:], k.sum[:]) != 1 {
		return "", "", fault.New(fault.Unauthenticated, "the key is not known")
	}

	tenant, chosen, err := chosenTenant(header)
	if err != nil {
		return "", "", err
	}
	if !chosen {
		tenant = k.tenant
	}
	return tenant, "admin", nil
}

// Open lets everyone in, into one tenant. It is for servers that listen on loopback only.
type Open struct{ Tenant string }

// Authenticate returns the tenant. A caller that chooses another one is refused.
func (o Open) Authenticate(_ context.Context, header map[string][]string) (tenant, name string, err error) {
	tenant, chosen, err := chosenTenant(header)
	if err != nil {
		return "", "", err
	}
	if chosen && tenant != o.Tenant {
		return "", "", fault.New(fault.Denied, "only a caller with an admin key may choose the tenant")
	}
	return o.Tenant, "anonymous", nil
}

// bearer returns the key of a request.
func bearer(header map[string][]string) (string, error) {
	values := header[AuthorizationHeader]
	if len(values) == 0 {
		return "", fault.New(fault.Unauthenticated, "the request has no key")
	}
	if len(values) > 1 {
		return "", fault.New(fault.Unauthenticated, "the request has %d keys, must have one", len(values))
	}
	scheme, key, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "bearer") || key == "" {
		return "", fault.New(fault.Unauthenticated, `the authorization is not "Bearer" and a key`)
	}
	return key, nil
}

// chosenTenant returns the tenant that a request chooses, if it does.
func chosenTenant(header map[string][]string) (tenant string, chosen bool, err error) {
	values := header[TenantHeader]
	switch len(values) {
	case 0:
		return "", false, nil
	case 1:
		return values[0], true, checkTenant(values[0])
	}
	return "", false, fault.New(fault.Invalid, "the request chooses %d tenants, must choose one", len(values))
}

func checkTenant(name string) error {
	if name == "" || len(name) > maxTenant || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
		return fault.New(fault.Invalid, "%.80q is not the name of a tenant: 1 to %d bytes of text", name, maxTenant)
	}
	return nil
}
