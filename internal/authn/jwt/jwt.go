// Package jwt verifies signed tokens of an identity provider: JSON web tokens with RS256, ES256 or
// EdDSA.
//
// A token must name its issuer, its audience, when it was issued and when it expires, and the key
// that has signed it. The verifier looks the key up only in the set of the issuer: it ignores keys
// and addresses in the token. In any doubt it refuses the token.
package jwt

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	gojwt "github.com/golang-jwt/jwt/v5"

	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/fault"
)

// Bounds of tokens.
const (
	// leeway is how much the clocks of the issuer and the server may differ.
	leeway = 30 * time.Second
	// maxLife is the longest time between the issue of a token and its end.
	maxLife = 24 * time.Hour
	// maxRoles is how many roles a token may have.
	maxRoles = 16
	// maxTenants is how many tenants a token may have.
	maxTenants = 100
)

// Algorithms are the algorithms that tokens may use.
func Algorithms() []string { return []string{"RS256", "ES256", "EdDSA"} }

// Config says which tokens are accepted.
type Config struct {
	// Issuer and Audience must be in every token.
	Issuer, Audience string
	// Algorithms are the algorithms that tokens may use. Empty means RS256, ES256 and EdDSA.
	Algorithms []string
	// TenantClaim and RolesClaim are the names of the claims with the tenant and the roles of the
	// caller. Empty means "tenant" and "roles".
	TenantClaim, RolesClaim string
	// TenantsClaim is the name of a claim with a list of tenants. The caller chooses one of them
	// for each call. It is empty if tokens have one tenant.
	TenantsClaim string
	// AdminRole is the role whose callers are admins. If it is empty, no caller with a token is an
	// admin.
	AdminRole string
}

// validate returns all problems of the config.
func (c *Config) validate() error {
	var problems []error
	if c.Issuer == "" {
		problems = append(problems, fault.New(fault.Invalid, "tokens need an issuer"))
	}
	if c.Audience == "" {
		problems = append(problems, fault.New(fault.Invalid, "tokens need an audience"))
	}
	for _, a := range c.Algorithms {
		if !slices.Contains(Algorithms(), a) {
			problems = append(problems, fault.New(fault.Invalid, "%.40q is not an algorithm for tokens: %s are", a, strings.Join(Algorithms(), ", ")))
		}
	}
	return errors.Join(problems...)
}

// Verifier verifies tokens.
type Verifier struct {
	config Config
	keys   atomic.Pointer[KeySet]
	parser *gojwt.Parser
	// The verifier calls unknown when a token names a key that the set does not have. unknown must
	// not block.
	unknown func()
}

// New returns a verifier that trusts a set of keys. The verifier calls unknown when a token names a
// key that is not in the set, because the issuer may have added the key. unknown must not block.
func New(cfg Config, keys *KeySet, unknown func()) (*Verifier, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if len(cfg.Algorithms) == 0 {
		cfg.Algorithms = Algorithms()
	}
	if cfg.TenantClaim == "" {
		cfg.TenantClaim = "tenant"
	}
	if cfg.RolesClaim == "" {
		cfg.RolesClaim = "roles"
	}
	v := &Verifier{config: cfg, unknown: unknown}
	v.keys.Store(keys)
	v.parser = gojwt.NewParser(gojwt.WithValidMethods(cfg.Algorithms), gojwt.WithoutClaimsValidation(), gojwt.WithStrictDecoding())

	return v, nil
}

// Trust replaces the trusted keys.
func (v *Verifier) Trust(keys *KeySet) { v.keys.Store(keys) }

var _ authn.Verifier = (*Verifier)(nil)

// refuse returns the error for a token.
func refuse(format string, args ...any) error {
	return fault.New(fault.Unauthenticated, "the token "+format, args...)
}

// Verify checks a token and returns its content.
func (v *Verifier) Verify(token string, now time.Time) (authn.Token, error) {
	claims := gojwt.MapClaims{}
	parsed, err := v.parser.ParseWithClaims(token, claims, v.find)
	if err != nil {
		if own := (*fault.Error)(nil); errors.As(err, &own) {
			return authn.Token{}, own
		}
		return authn.Token{}, refuse("is not a signed JWT, or its signature does not fit its key and algorithm")
	}
	if err := checkDuplicates(token); err != nil {
		return authn.Token{}, err
	}

	t := authn.Token{}
	t.Signer, _ = parsed.Header["kid"].(string)
	if t.Expires, err = v.checkClaims(claims, now); err != nil {
		return authn.Token{}, err
	}
	err = v.read(claims, &t) // not in the return statement, which may copy t before the call
	return t, err
}

// keyID matches valid ids of keys.
var keyID = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// find returns the key that a token names as its signer. The algorithm of the token must be the
// algorithm of the key.
func (v *Verifier) find(t *gojwt.Token) (any, error) {
	if typ, found := t.Header["typ"]; found && typ != "JWT" && typ != "at+jwt" {
		return nil, refuse("is of another type: its header typ must be JWT or at+jwt, or be left out")
	}
	if _, found := t.Header["crit"]; found {
		return nil, refuse("has the header crit, and the server supports no extensions of tokens: the issuer must leave it out")
	}
	id, _ := t.Header["kid"].(string)
	if !keyID.MatchString(id) {
		return nil, refuse("does not name its key: its header kid must have 1 to 64 letters, digits, dots, dashes and underscores")
	}

	key, found := v.keys.Load().find(id)
	if !found {
		v.unknown()
		return nil, refuse("names a key that the server does not have; if the issuer has just added the key, try again in a minute")
	}

	if t.Method.Alg() != key.algorithm {
		return nil, refuse("uses another algorithm than its key")
	}
	return key.public, nil
}

// checkClaims checks the issuer, the audience and the times of a token, and returns when it ends.
func (v *Verifier) checkClaims(claims gojwt.MapClaims, now time.Time) (time.Time, error) {
	issuer, _ := claims["iss"].(string)
	if issuer != v.config.Issuer {
		return time.Time{}, refuse("is of an issuer that the server does not trust: its claim iss is another one")
	}
	audience, err := claims.GetAudience()
	if err != nil || !slices.Contains(audience, v.config.Audience) {
		return time.Time{}, refuse("is for another audience: its claim aud does not name this server")
	}
	expires, err := claims.GetExpirationTime()
	if err != nil || expires == nil {
		return time.Time{}, refuse("does not say when it expires: its claim exp must be a time in seconds")
	}
	issued, err := claims.GetIssuedAt()
	if err != nil || issued == nil {
		return time.Time{}, refuse("does not say when it was issued: its claim iat must be a time in seconds")
	}
	before, err := claims.GetNotBefore()
	if err != nil {
		return time.Time{}, refuse("does not say from when on it is valid: its claim nbf must be a time in seconds, or be left out")
	}

	switch {
	case !now.Before(expires.Time):
		return time.Time{}, refuse("has expired")
	case issued.After(now.Add(leeway)):
		return time.Time{}, refuse("was issued in the future")
	case before != nil && before.After(now.Add(leeway)):
		return time.Time{}, refuse("is not valid yet")
	case expires.Sub(issued.Time) > maxLife:
		return time.Time{}, refuse("lasts longer than %s", maxLife)
	}
	return expires.Time, nil
}

// read reads the name, the roles and the tenants of the caller.
func (v *Verifier) read(claims gojwt.MapClaims, t *authn.Token) error {
	if t.Name, _ = claims["sub"].(string); t.Name == "" || len(t.Name) > 200 {
		return refuse("does not say who the caller is: its claim sub must have 1 to 200 bytes")
	}
	list, ok := claims[v.config.RolesClaim].([]any)
	if !ok || len(list) == 0 || len(list) > maxRoles {
		return refuse("does not name the roles of the caller: its claim %s must be a list of 1 to %d roles", v.config.RolesClaim, maxRoles)
	}

	for _, one := range list {
		role, ok := one.(string)
		if !ok || !keyID.MatchString(role) {
			return refuse("has a role in its claim %s that is not a name of 1 to 64 letters, digits, dots, dashes and underscores", v.config.RolesClaim)
		}
		if v.config.AdminRole != "" && role == v.config.AdminRole {
			t.Admin = true
		}
		t.Roles = append(t.Roles, role)
	}

	if t.Admin {
		t.Roles = nil
		return nil
	}

	if t.Tenant, _ = claims[v.config.TenantClaim].(string); claims[v.config.TenantClaim] != nil && t.Tenant == "" {
		return refuse("does not name the tenant of the caller: its claim %s must be a text", v.config.TenantClaim)
	}
	if err := v.readTenants(claims, t); err != nil {
		return err
	}
	if t.Tenant == "" {
		return refuse("does not name the tenant of the caller: it has no claim %s", v.config.TenantClaim)
	}
	return nil
}

// readTenants reads the tenants that the caller may choose, if tokens have a list of them. If the
// token has no single tenant, the caller acts in the first one of the list by default.
func (v *Verifier) readTenants(claims gojwt.MapClaims, t *authn.Token) error {
	if v.config.TenantsClaim == "" || claims[v.config.TenantsClaim] == nil {
		return nil
	}
	list, ok := claims[v.config.TenantsClaim].([]any)
	if !ok || len(list) == 0 || len(list) > maxTenants {
		return refuse("does not name the tenants of the caller: its claim %s must be a list of 1 to %d tenants", v.config.TenantsClaim, maxTenants)
	}

	for _, one := range list {
		tenant, ok := one.(string)
		if !ok || tenant == "" || slices.Contains(t.Tenants, tenant) {
			return refuse("has an entry in its claim %s that is empty, is not a text, or occurs twice", v.config.TenantsClaim)
		}
		t.Tenants = append(t.Tenants, tenant)
	}
	switch {
	case t.Tenant == "":
		t.Tenant = t.Tenants[0]
	case !slices.Contains(t.Tenants, t.Tenant):
		return refuse("has a tenant in its claim %s that is not in its claim %s", v.config.TenantClaim, v.config.TenantsClaim)
	}
	return nil
}

// checkDuplicates refuses a token whose header or whose claims have two values with the same name,
// because the issuer and the server might use different ones.
func checkDuplicates(token string) error {
	for _, part := range strings.SplitN(token, ".", 3)[:2] {
		data, err := base64.RawURLEncoding.DecodeString(part)
		if err != nil {
			return refuse("is not valid")
		}
		if err := uniqueNames(data); err != nil {
			return err
		}
	}
	return nil
}

// uniqueNames checks that no name occurs twice in a JSON object. It does not look into values.
func uniqueNames(data []byte) error {
	d := json.NewDecoder(bytes.NewReader(data))
	if first, err := d.Token(); err != nil || first != json.Delim('{') {
		return refuse("is not valid")
	}

	names := map[any]bool{}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return refuse("is not a JWT: its header or its claims are not JSON")
		}
		if names[name] {
			return refuse("has %.40q twice in its header or its claims", name)
		}
		names[name] = true
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return refuse("is not valid")
		}
	}

	if _, err := d.Token(); err != nil {
		return refuse("is not valid")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return refuse("has data after its claims")
	}

	return nil
}
