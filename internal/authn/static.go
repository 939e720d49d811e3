package authn

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"regexp"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/fault"
)

// workerTokenPrefix is the prefix of the worker tokens of the older Flovyn dialect. A key follows
// it.
const workerTokenPrefix = "fwt_"

// placeholderToken matches the placeholder that native bindings of Flovyn SDKs present when they
// have no token. The client of the Kotlin SDK, for example, has no way to set a token.
var placeholderToken = regexp.MustCompile(`^f[wc]t_placeholder-[0-9a-f-]{36}$`)

// Trust adds a static key of a tenant. It must be called before the server runs.
func (r *Keyring) Trust(key string, who Identity) error {
	if err := checkStrength("a static key of tenant "+who.Tenant, key); err != nil {
		return err
	}
	if err := checkTenant(who.Tenant); err != nil {
		return err
	}
	if r.trusted == nil {
		r.trusted = map[[sha256.Size]byte]Identity{}
	}
	sum := sha256.Sum256([]byte(key))
	if was, ok := r.trusted[sum]; ok && was.Tenant != who.Tenant {
		return fault.New(fault.Invalid, "tenants %s and %s have the same static key", was.Tenant, who.Tenant)
	}
	r.trusted[sum] = who
	return nil
}

// TrustUnsigned makes the keyring accept callers that present a JWT or the placeholder of a token.
// The keyring does not check the signature of the JWT. TrustUnsigned is only for tests of clients,
// because anyone can forge both. It must be called before the server runs.
func (r *Keyring) TrustUnsigned() { r.unsigned = true }

// unnamedUser returns the caller that presents a placeholder. The tenant of the caller decides
// which dialect the caller speaks, because bindings for both dialects have placeholders.
func (r *Keyring) unnamedUser(header map[string][]string) (Identity, error) {
	tenant, err := anyTenant(header, r.static.Load().tenant)
	if err != nil {
		return Identity{}, err
	}
	return Identity{Tenant: tenant, Name: "unverified user without a token", Admin: true}, nil
}

// unsignedUser returns the caller that an unverified JWT names.
func (r *Keyring) unsignedUser(token string, header map[string][]string) (Identity, error) {
	var claims struct {
		Sub string  `json:"sub"`
		Exp float64 `json:"exp"`
	}

	raw, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	if err != nil || json.Unmarshal(raw, &claims) != nil {
		return Identity{}, errUnknownKey
	}
	if claims.Exp != 0 && claims.Exp < float64(time.Now().Unix()) {
		return Identity{}, fault.New(fault.Unauthenticated, "the token has expired")
	}

	tenant, err := anyTenant(header, r.static.Load().tenant)
	if err != nil {
		return Identity{}, err
	}
	return Identity{Tenant: tenant, Name: "unverified user " + claims.Sub, Admin: true, Older: true}, nil
}
