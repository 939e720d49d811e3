package authn

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/perdure/perdure/internal/fault"
)

// Keyring lets callers in who have the static admin key or a stored key. Set replaces the stored
// keys while the server runs.
type Keyring struct {
	static *AdminKey

	mu  sync.Mutex // of Set
	all atomic.Pointer[map[string]*credential]
}

// credential is a stored key as this process knows it.
type credential struct {
	key Key
	// refused says why the key is not accepted; nil when it is.
	refused error
	valid   context.Context //nolint:containedctx // ends with the key
	end     context.CancelCauseFunc
}

// NewKeyring returns an authenticator that knows only the static admin key.
func NewKeyring(static *AdminKey) *Keyring {
	r := &Keyring{static: static}
	r.all.Store(&map[string]*credential{})
	return r
}

// Set replaces the stored keys, and says which tenants are disabled. What callers do with a key
// that is gone, or whose tenant is disabled, ends.
func (r *Keyring) Set(keys []Key, disabled map[string]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := maps.Clone(*r.all.Load())
	next := make(map[string]*credential, len(keys))
	for _, k := range keys {
		refused := error(nil)
		if disabled[k.Tenant] {
			refused = fault.New(fault.Denied, "tenant %s is disabled", k.Tenant)
		}

		was := old[k.ID]
		same := was != nil && was.key.Tenant == k.Tenant && bytes.Equal(was.key.Sum, k.Sum)
		if same && (was.refused == nil) == (refused == nil) {
			next[k.ID] = was
			delete(old, k.ID)
			continue
		}
		next[k.ID] = newCredential(k, refused)
	}

	r.all.Store(&next)
	for id, gone := range old {
		why := error(errRevoked)
		if now := next[id]; now != nil && now.refused != nil {
			why = now.refused
		}
		gone.end(why)
	}
}

var errRevoked = fault.New(fault.Unauthenticated, "the key was revoked")

func newCredential(k Key, refused error) *credential {
	c := &credential{key: k, refused: refused}
	c.valid, c.end = context.WithCancelCause(context.Background())
	return c
}

// Authenticate returns the caller.
func (r *Keyring) Authenticate(_ context.Context, header map[string][]string) (Identity, error) {
	secret, err := bearer(header)
	if err != nil {
		return Identity{}, err
	}
	if r.static.matches(secret) {
		return r.static.identity(header)
	}

	c := r.find(secret)
	if c == nil {
		return Identity{}, errUnknownKey
	}
	if c.refused != nil {
		return Identity{}, c.refused
	}
	who := Identity{Tenant: c.key.Tenant, Name: "key " + c.key.ID, Admin: c.key.Admin(), Valid: c.valid}
	if who.Admin {
		who.Tenant, err = anyTenant(header, r.static.tenant)
	} else {
		err = onlyTenant(header, c.key.Tenant)
	}
	if err != nil {
		return Identity{}, err
	}
	return who, nil
}

// find returns the credential of a secret; nil when there is none. The id is no secret, so looking
// it up may take a different time. The comparison of the digests takes the same time for all.
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
