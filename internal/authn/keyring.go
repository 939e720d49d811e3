package authn

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Keyring accepts callers that present the static admin key, a static key of a tenant, a stored
// key, a signed token, or a session of a browser. After TrustUnsigned it also accepts unsigned
// tokens. Set replaces the stored keys while the server runs.
type Keyring struct {
	static atomic.Pointer[AdminKey]
	// trusted are the static keys of tenants, by their digests. They do not change while the
	// server runs.
	trusted map[[sha256.Size]byte]Identity
	// unsigned says that the keyring accepts placeholders of tokens, and every JWT without a check
	// of its signature.
	unsigned bool
	verifier Verifier // nil when signed tokens are not accepted
	all      atomic.Pointer[map[string]*credential]

	// logins are the sessions of browsers, by their ids.
	logins atomic.Pointer[map[string]*login]

	setting sync.Mutex // held while keys, sessions or the admin key are replaced
	mu      sync.Mutex // guards what follows
	tokens  map[[sha256.Size]byte]*verified
	// disabled are the tenants whose keys and tokens are refused.
	disabled map[string]bool
	// trusts says which signers of tokens are trusted; nil before the first Withdraw.
	trusts func(signer string) bool
}

// credential is a stored key as this process knows it.
type credential struct {
	key  Key
	name string // the name of callers with the key
	// refused says why the key is not accepted; nil if it is accepted.
	refused error
	valid   context.Context //nolint:containedctx // ends when the key ends
	end     context.CancelCauseFunc
	expire  *time.Timer // ends the calls of the key; nil if the key does not expire
	// used is when a caller last used the key, as a model.Time; 0 for never.
	used atomic.Int64
}

// NewKeyring returns an authenticator that knows only the static admin key.
func NewKeyring(static *AdminKey) *Keyring {
	r := &Keyring{}
	r.static.Store(static)
	r.all.Store(&map[string]*credential{})
	r.logins.Store(&map[string]*login{})
	return r
}

// Set replaces the stored keys and the set of disabled tenants. It ends the calls of callers whose
// key was removed or has changed, and of callers whose tenant was disabled. If only the expiry of a
// key has changed, its calls continue until the new expiry.
func (r *Keyring) Set(keys []Key, disabled map[string]bool) {
	r.setting.Lock()
	defer r.setting.Unlock()
	r.mu.Lock()
	before := r.disabled
	r.disabled = disabled
	r.mu.Unlock()
	// A caller with several tenants may continue in its other tenants, with a new call.
	why := func(admin bool, tenant string, several []string) error {
		switch gone := newlyDisabled(several, before, disabled); {
		case admin:
		case gone != "":
			return errDisabled(gone)
		case len(several) == 0 && disabled[tenant]:
			return errDisabled(tenant)
		}
		return nil
	}
	r.endLogins(func(l *Login) error { return why(l.Admin(), l.Tenant, l.Tenants) })
	r.endTokens(func(t *Token) error { return why(t.Admin, t.Tenant, t.Tenants) })

	old := maps.Clone(*r.all.Load())
	next := make(map[string]*credential, len(keys))
	for _, k := range keys {
		refused := error(nil)
		if disabled[k.Tenant] {
			refused = errDisabled(k.Tenant)
		}

		was := old[k.ID]
		same := was != nil && was.key.Tenant == k.Tenant && bytes.Equal(was.key.Sum, k.Sum) && slices.Equal(was.key.Roles, k.Roles)
		if same && (was.refused == nil) == (refused == nil) {
			if next[k.ID] = was.withExpiry(k); next[k.ID] != nil {
				delete(old, k.ID)
				continue
			}
		}
		next[k.ID] = newCredential(k, refused)
		if was != nil {
			next[k.ID].used.Store(was.used.Load())
		}
	}

	r.all.Store(&next)
	r.renewLogins()
	for id, gone := range old {
		why := error(errRevoked)
		if now := next[id]; now != nil && now.refused != nil {
			why = now.refused
		}
		gone.end(why)
	}
}

// ReplaceAdmin replaces the static admin key, and reports whether the new key differs from the old
// one. If it does, calls and sessions that use the old key end.
func (r *Keyring) ReplaceAdmin(key *AdminKey) bool {
	r.setting.Lock()
	defer r.setting.Unlock()
	was := r.static.Load()
	if was.sum == key.sum {
		return false
	}

	r.static.Store(key)
	was.end(errReplaced)
	r.endLogins(func(l *Login) error {
		if l.Credential.Kind == ByStatic && l.Credential.ID != key.mark() {
			return errReplaced
		}
		return nil
	})
	return true
}

// Errors of keys that have ended.
var (
	errReplaced = fault.New(fault.Unauthenticated, "the admin key was replaced")
	errRevoked  = fault.New(fault.Unauthenticated, "the key was revoked")
	errExpired  = fault.New(fault.Unauthenticated, "the key has expired")
)

func newCredential(k Key, refused error) *credential {
	c := &credential{key: k, name: "key " + k.ID, refused: refused}
	c.valid, c.end = context.WithCancelCause(context.Background())
	c.endInTime()
	return c
}

// endInTime ends the calls of the key when the key expires.
func (c *credential) endInTime() {
	if c.key.Expires.IsZero() {
		return
	}
	expire := time.AfterFunc(time.Until(c.key.Expires.Std()), func() { c.end(errExpired) })
	context.AfterFunc(c.valid, func() { expire.Stop() })
	c.expire = expire
}

// withExpiry returns the credential of a key k that differs from the key of c only in its expiry.
// The calls of the key continue. withExpiry returns nil if the calls have ended.
func (c *credential) withExpiry(k Key) *credential {
	if c.key.Expires == k.Expires {
		return c
	}
	if c.expire != nil && !c.expire.Stop() || c.valid.Err() != nil {
		return nil
	}
	later := &credential{key: k, name: c.name, refused: c.refused, valid: c.valid, end: c.end}
	later.used.Store(c.used.Load())
	later.endInTime()
	return later
}

// Authenticate returns the caller.
func (r *Keyring) Authenticate(_ context.Context, header map[string][]string) (Identity, error) {
	if len(header[AuthorizationHeader]) == 0 && len(header[SessionHeader]) == 1 {
		return r.authenticateLogin(header[SessionHeader][0], header)
	}
	secret, err := bearer(header)
	if err != nil {
		return Identity{}, err
	}
	if static := r.static.Load(); static.matches(secret) {
		return static.identity(header)
	}
	if who, ok := r.trusted[sha256.Sum256([]byte(secret))]; ok {
		return who, onlyTenant(header, who.Tenant)
	}
	if r.unsigned && strings.Count(secret, ".") == 2 {
		return r.unsignedUser(secret, header)
	}
	if r.unsigned && placeholderToken.MatchString(secret) {
		return r.unnamedUser(header)
	}

	if r.verifier != nil && isToken(secret) {
		return r.authenticateToken(secret, header)
	}
	secret, older := strings.CutPrefix(secret, workerTokenPrefix)
	c := r.find(secret)
	if c == nil {
		return Identity{}, errUnknownKey
	}
	if c.refused != nil {
		return Identity{}, c.refused
	}
	now := model.TimeOf(time.Now())
	if !c.key.Expires.IsZero() && now >= c.key.Expires {
		return Identity{}, errExpired
	}
	who := Identity{Tenant: c.key.Tenant, Name: c.name, Admin: c.key.Admin(), Roles: c.key.Roles, Older: older, Valid: c.valid}
	who.Credential = Credential{Kind: ByKey, ID: c.key.ID, Expires: c.key.Expires}
	if who.Admin {
		who.Tenant, err = anyTenant(header, r.static.Load().tenant)
	} else {
		err = onlyTenant(header, c.key.Tenant)
	}
	if err != nil {
		return Identity{}, err
	}
	c.used.Store(int64(now))
	return who, nil
}

// Use says when a caller last used a key.
type Use struct {
	Tenant, ID string
	At         model.Time
}

// Uses returns when each key was last used, as far as this process knows.
func (r *Keyring) Uses() (all []Use) {
	for id, c := range *r.all.Load() {
		if at := c.used.Load(); at != 0 {
			all = append(all, Use{c.key.Tenant, id, model.Time(at)})
		}
	}
	return all
}

// find returns the credential of a secret, or nil if there is none. The id is not secret, so the
// lookup of the id may take different times. The comparison of the digests takes the same time for
// all secrets.
func (r *Keyring) find(secret string) *credential {
	id, ok := idOf(secret)
	if !ok {
		return nil
	}
	c := (*r.all.Load())[id]
	if c == nil {
		return nil
	}
	sum := sha256.Sum256([]byte(secret))
	if subtle.ConstantTimeCompare(sum[:], c.key.Sum) != 1 {
		return nil
	}
	return c
}
