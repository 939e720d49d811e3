// Package authn identifies callers: it turns the headers of a request into an identity, or refuses
// the request. An identity says in which tenant the caller acts, which roles the caller has, and
// whether it is an admin. Package authz decides what such a caller may do.
//
// An authenticator is safe for concurrent use and never blocks. A server calls its authenticator
// for every request, before the server reads the body of the request.
package authn

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Headers that authenticators read, in lower case.
const (
	// AuthorizationHeader has the text "Bearer " followed by the key.
	AuthorizationHeader = "authorization"
	// SessionHeader has the secret of a session, from the cookie of a browser. The HTTP server sets
	// it. No client can send a header with this name.
	SessionHeader = ":session"
	// TenantHeader chooses the tenant. An admin may choose any tenant (but see Open.Choose), and a
	// caller with several tenants may choose one of them. Every other caller may only name its own
	// tenant.
	TenantHeader = "perdure-tenant"
)

// Identity describes the caller of a call.
type Identity struct {
	// Tenant is the tenant that the caller acts in.
	Tenant string
	// Tenants are the tenants that the caller may choose, if there are several. Tenant is one of
	// them. Tenants is nil for a caller that has one tenant, and for an admin, who may choose any.
	Tenants []string
	// Name is the name of the caller, for logs and people.
	Name string
	// Admin says that the caller is an admin, for example because it has an admin key.
	Admin bool
	// Older says that callers with this credential speak the older dialect of the Flovyn protocol.
	Older bool
	// Roles are the roles of the caller. A caller without roles is an owner of its tenant; see
	// authz.RolesOf.
	Roles []string
	// Credential is what the caller has presented.
	Credential Credential
	// Valid is a context that ends when the credential ends, for example because its key was
	// revoked or its tenant disabled. The cause of its end is the error for the caller. Valid is
	// nil for a credential that lasts as long as the server.
	Valid context.Context //nolint:containedctx // the life of a credential, not of a call
}

// Kinds of credentials.
const (
	ByKey     = "key"     // a stored key
	ByStatic  = "static"  // the admin key of the configuration
	ByToken   = "token"   // a signed token
	BySession = "session" // a session of a browser
)

// Credential is what a caller has presented, without secrets.
type Credential struct {
	// Kind is one of the constants above. It is empty if the server needs no credential, and for
	// the static keys and unsigned tokens of the Flovyn contract.
	Kind string
	// ID is the id of a key or a session, or names the admin key or the signer of a token.
	ID string
	// Expires is when the credential expires; zero for never.
	Expires model.Time
}

// AdminKey accepts callers with one static key. They may choose their tenant.
type AdminKey struct {
	sum    [sha256.Size]byte
	tenant string
	valid  context.Context //nolint:containedctx // ends when a server replaces the key
	end    context.CancelCauseFunc
}

// NewAdminKey returns an authenticator for one key. Callers that choose no tenant act in the given
// tenant.
func NewAdminKey(key, tenant string) (*AdminKey, error) {
	if err := checkStrength("the admin key", key); err != nil {
		return nil, err
	}
	if err := checkTenant(tenant); err != nil {
		return nil, err
	}
	k := &AdminKey{sum: sha256.Sum256([]byte(key)), tenant: tenant}
	k.valid, k.end = context.WithCancelCause(context.Background())
	return k, nil
}

// Authenticate returns the caller. The comparison takes the same time for every key.
func (k *AdminKey) Authenticate(_ context.Context, header map[string][]string) (Identity, error) {
	key, err := bearer(header)
	if err != nil {
		return Identity{}, err
	}
	if !k.matches(key) {
		return Identity{}, errUnknownKey
	}
	return k.identity(header)
}

// errUnknownKey is the error for a wrong key. It does not say what is wrong with the key.
var errUnknownKey = fault.New(fault.Unauthenticated, "the key is not known")

func (k *AdminKey) matches(key string) bool {
	sum := sha256.Sum256([]byte(key))
	return subtle.ConstantTimeCompare(sum[:], k.sum[:]) == 1
}

// identity is the caller that has the key.
func (k *AdminKey) identity(header map[string][]string) (Identity, error) {
	tenant, err := anyTenant(header, k.tenant)
	if err != nil {
		return Identity{}, err
	}
	return Identity{Tenant: tenant, Name: "admin", Admin: true, Credential: Credential{Kind: ByStatic, ID: k.mark()}, Valid: k.valid}, nil
}

// mark returns a name of the key. A session that a caller has opened with the key stores this name,
// so that the keyring can tell whether the server still has the key. The name is a digest of the
// digest of the key, so it reveals nothing about the key.
func (k *AdminKey) mark() string {
	sum := sha256.Sum256(append([]byte("admin key "), k.sum[:]...))
	return hex.EncodeToString(sum[:8])
}

// anyTenant returns the tenant that a request chooses, and checks only that its name is valid. If
// the request chooses none, anyTenant returns the parameter otherwise.
func anyTenant(header map[string][]string, otherwise string) (string, error) {
	tenant, chosen, err := chosenTenant(header)
	if !chosen {
		tenant = otherwise
	}
	return tenant, err
}

// Open accepts every caller as an admin. It is for servers that no other machine can reach: on
// loopback, or on a socket.
type Open struct {
	// Tenant is the tenant of callers that choose none.
	Tenant string
	// Choose lets callers choose another tenant.
	Choose bool
}

// Authenticate returns the caller.
func (o Open) Authenticate(_ context.Context, header map[string][]string) (Identity, error) {
	tenant, err := anyTenant(header, o.Tenant)
	if err == nil && !o.Choose {
		err = onlyTenant(header, o.Tenant)
	}
	if err != nil {
		return Identity{}, err
	}
	return Identity{Tenant: tenant, Name: "anonymous", Admin: true}, nil
}

// onlyTenant refuses a caller that chooses another tenant than its own.
func onlyTenant(header map[string][]string, own string) error {
	tenant, chosen, err := chosenTenant(header)
	if err == nil && chosen && tenant != own {
		err = fault.New(fault.Denied, "only a caller with an admin key may choose the tenant")
	}
	return err
}

// ownTenant returns the tenant that a caller chooses among its own tenants. If the caller chooses
// none, ownTenant returns the parameter otherwise. If own is empty, otherwise is the only tenant of
// the caller.
func ownTenant(header map[string][]string, otherwise string, own []string) (string, error) {
	if len(own) == 0 {
		return otherwise, onlyTenant(header, otherwise)
	}
	tenant, err := anyTenant(header, otherwise)
	if err == nil && !slices.Contains(own, tenant) {
		err = fault.New(fault.Denied, "the caller may not act in tenant %s", tenant)
	}
	return tenant, err
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

// chosenTenant returns the tenant that a request chooses. chosen is false if it chooses none.
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
	if !model.ValidTenant(name) {
		return fault.New(fault.Invalid, "%.80q is not the name of a tenant: letters, digits, dots, dashes and underscores, at most %d", name, model.MaxTenant)
	}
	return nil
}
