package authn

import (
	"context"
	"crypto/sha256"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// maxToken is the longest signed token, in bytes. The keyring refuses a longer token without
// reading it.
const maxToken = 8 << 10

// maxTokens is how many verified tokens the keyring keeps in memory.
const maxTokens = 10_000

// Verifier reads signed tokens.
type Verifier interface {
	// Verify returns the content of a token, or an error that refuses it. It must not block.
	Verify(token string, now time.Time) (Token, error)
}

// Token is the content of a signed token.
type Token struct {
	// Tenant, Name, Roles and Admin describe the caller.
	Tenant, Name string
	// Tenants are the tenants that the caller may choose; nil for a caller that has only Tenant.
	Tenants []string
	Roles   []string
	Admin   bool
	// Signer is the id of the key that has signed the token.
	Signer string
	// Expires is when the token ends.
	Expires time.Time
}

// verified is a token that was accepted. The keyring keeps it, because a lookup is much faster than
// the verification of a signature.
type verified struct {
	token Token
	valid context.Context //nolint:containedctx // ends when the token ends
	end   context.CancelCauseFunc
}

// UseTokens accepts callers with signed tokens that the verifier accepts. It must be called before
// the first call of Authenticate.
func (r *Keyring) UseTokens(v Verifier) { r.verifier = v }

// isToken reports whether a secret looks like a signed token: three parts with dots between them.
func isToken(secret string) bool {
	return !strings.HasPrefix(secret, keyPrefix) && strings.Count(secret, ".") == 2
}

// authenticateToken returns the caller that presents a signed token.
func (r *Keyring) authenticateToken(secret string, header map[string][]string) (Identity, error) {
	if len(secret) > maxToken {
		return Identity{}, fault.New(fault.Unauthenticated, "the token has %d bytes, at most %d are allowed", len(secret), maxToken)
	}
	t, err := r.verify(secret, time.Now())
	if err != nil {
		return Identity{}, err
	}

	who := Identity{Tenant: t.token.Tenant, Tenants: t.token.Tenants, Name: t.token.Name, Admin: t.token.Admin, Roles: t.token.Roles, Older: true, Valid: t.valid}
	who.Credential = Credential{Kind: ByToken, ID: t.token.Signer, Expires: model.TimeOf(t.token.Expires)}
	if who.Admin {
		who.Tenant, err = anyTenant(header, r.static.Load().tenant)
	} else {
		who.Tenant, err = r.enabledTenant(header, who.Tenant, who.Tenants)
	}

	if err != nil {
		return Identity{}, err
	}
	return who, nil
}

// enabledTenant is like ownTenant, but refuses a tenant that is disabled.
func (r *Keyring) enabledTenant(header map[string][]string, otherwise string, own []string) (string, error) {
	tenant, err := ownTenant(header, otherwise, own)
	if err != nil {
		return "", err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.disabled[tenant] {
		return "", errDisabled(tenant)
	}
	return tenant, nil
}

// newlyDisabled returns the first of some tenants that is disabled now and was enabled before. It
// returns an empty text if there is none.
func newlyDisabled(tenants []string, before, now map[string]bool) string {
	for _, tenant := range tenants {
		if now[tenant] && !before[tenant] {
			return tenant
		}
	}
	return ""
}

// verify returns the content of a token. It verifies the signature only if the token is not in
// memory.
func (r *Keyring) verify(secret string, now time.Time) (*verified, error) {
	sum := sha256.Sum256([]byte(secret))
	r.mu.Lock()
	known := r.tokens[sum]
	r.mu.Unlock()
	if known != nil {
		if !now.Before(known.token.Expires) {
			return nil, errTokenExpired
		}
		return known, context.Cause(known.valid)
	}

	token, err := r.verifier.Verify(secret, now)
	if err != nil {
		return nil, err
	}
	if !token.Admin {
		for _, tenant := range append([]string{token.Tenant}, token.Tenants...) {
			if err := checkTenant(tenant); err != nil {
				return nil, fault.New(fault.Unauthenticated, "the token: %w", err)
			}
		}
	}
	return r.remember(sum, token, now)
}

var (
	errTokenExpired = fault.New(fault.Unauthenticated, "the token has expired")
	errWithdrawn    = fault.New(fault.Unauthenticated, "the key that has signed the token was withdrawn")
)

// remember keeps an accepted token in memory until the token expires.
func (r *Keyring) remember(sum [sha256.Size]byte, token Token, now time.Time) (*verified, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known := r.tokens[sum]; known != nil {
		return known, context.Cause(known.valid)
	}
	if r.disabled[token.Tenant] && !token.Admin && len(token.Tenants) == 0 {
		return nil, errDisabled(token.Tenant)
	}
	if len(r.tokens) >= maxTokens {
		return nil, fault.New(fault.Exhausted, "%d tokens are in use, which is the limit: try again later", len(r.tokens))
	}

	t := &verified{token: token}
	t.valid, t.end = context.WithCancelCause(context.Background())
	expire := time.AfterFunc(token.Expires.Sub(now), func() { t.end(errTokenExpired) })
	context.AfterFunc(t.valid, func() {
		expire.Stop()
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.tokens, sum)
	})
	if r.tokens == nil {
		r.tokens = map[[sha256.Size]byte]*verified{}
	}
	r.tokens[sum] = t
	return t, nil
}

// Withdraw ends the tokens of signers that are no longer trusted, and the sessions that were opened
// with such tokens.
func (r *Keyring) Withdraw(trusted func(signer string) bool) {
	r.mu.Lock()
	r.trusts = trusted
	r.mu.Unlock()
	r.endLogins(func(l *Login) error {
		if l.Credential.Kind != ByToken || trusted(l.Credential.ID) {
			return nil
		}
		return errWithdrawn
	})
	r.endTokens(func(t *Token) error {
		if trusted(t.Signer) {
			return nil
		}
		return errWithdrawn
	})
}

// endTokens ends the tokens for which why returns an error.
func (r *Keyring) endTokens(why func(*Token) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.tokens {
		if err := why(&t.token); err != nil {
			t.end(err)
		}
	}
}

func errDisabled(tenant string) error {
	return fault.New(fault.Denied, "tenant %s is disabled", tenant)
}
