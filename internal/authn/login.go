package authn

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// LoginSetting is the kind of the setting of a session. A session is a setting of its tenant. A
// session of an admin is a setting of no tenant.
const LoginSetting = "login"

// Login is what is stored about a session of a browser. A caller that has presented a key or a
// token gets a session, and presents the secret of the session as a cookie. The session gives its
// caller the same rights as the key or the token, and ends when that key or token ends.
type Login struct {
	// ID identifies the session, and is not secret. Tenant is empty for a session of an admin.
	ID     string `json:"-"`
	Tenant string `json:"-"`
	// Sum is the SHA-256 digest of the secret, which has 260 random bits.
	Sum []byte `json:"sum"`
	// Tenants are the tenants that the caller may choose; nil for a caller that has only Tenant.
	Tenants []string `json:"tenants,omitempty"`
	// Name and Roles belong to the caller that has signed in.
	Name  string   `json:"name"`
	Roles []string `json:"roles,omitempty"`
	// Credential is what the caller has presented to sign in.
	Credential Credential `json:"credential"`
	Created    model.Time `json:"created"`
	Expires    model.Time `json:"expires"`
}

// Admin reports whether it is a session of an admin.
func (l *Login) Admin() bool { return l.Tenant == "" }

// loginPrefix is the prefix of the secret of a session. The id of the session and the secret part
// follow, as in a key.
const loginPrefix = "perdure-session_"

// NewLogin returns a session with a random id and a random secret. The secret is what the browser
// presents.
func NewLogin() (l Login, secret string) {
	id := strings.ToLower(rand.Text()[:idLength])
	secret = loginPrefix + id + "_" + rand.Text() + rand.Text()
	sum := sha256.Sum256([]byte(secret))
	return Login{ID: id, Sum: sum[:]}, secret
}

// ReadLogin reads the setting of a session.
func ReadLogin(tenant, name string, body []byte) (l Login, err error) {
	if err := json.Unmarshal(body, &l); err != nil {
		return l, fault.New(fault.Corrupt, "session %s: %w", name, err)
	}
	if len(l.Sum) != sha256.Size || l.Expires.IsZero() {
		return l, fault.New(fault.Corrupt, "session %s: it has no digest or no end", name)
	}
	l.ID, l.Tenant = name, tenant
	return l, nil
}

// Guard returns what a page must send, in addition to the cookie, with a request that changes
// something. A page of another site can make a browser send the cookie, but cannot read the guard.
func Guard(secret string) string {
	sum := sha256.Sum256([]byte("guard " + secret))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// CheckGuard refuses a request whose guard does not belong to the session.
func CheckGuard(secret, presented string) error {
	if subtle.ConstantTimeCompare([]byte(Guard(secret)), []byte(presented)) != 1 {
		return fault.New(fault.Denied, "a request of a session that changes something needs the guard of the session")
	}
	return nil
}

// login is a session as this process knows it.
type login struct {
	Login

	valid context.Context //nolint:containedctx // ends when the session ends
	end   context.CancelCauseFunc
	tie   sync.Once // ties the session to the key that it was opened with
}

// Errors of sessions that have ended.
var (
	errNoSession = fault.New(fault.Unauthenticated, "the session is not known, or has ended: sign in again")
	errSignedOut = fault.New(fault.Unauthenticated, "the session was ended: sign in again")
	errTooOld    = fault.New(fault.Unauthenticated, "the session has expired: sign in again")
)

// SetLogins replaces the stored sessions. It ends the calls of sessions that no longer exist.
func (r *Keyring) SetLogins(all []Login) {
	r.setting.Lock()
	defer r.setting.Unlock()
	r.setLogins(all)
}

// renewLogins restores sessions that are still stored, but have ended in this process because their
// tenant was disabled or their key ended. The tenant may be enabled again. The caller holds
// r.setting.
func (r *Keyring) renewLogins() {
	var all []Login
	for _, l := range *r.logins.Load() {
		all = append(all, l.Login)
	}
	r.setLogins(all)
}

func (r *Keyring) setLogins(all []Login) {
	old := maps.Clone(*r.logins.Load())
	next := make(map[string]*login, len(all))
	for _, l := range all {
		if was := old[l.ID]; was != nil && slices.Equal(was.Sum, l.Sum) && was.Expires == l.Expires && was.valid.Err() == nil {
			next[l.ID] = was
			delete(old, l.ID)
			continue
		}
		n := &login{Login: l}
		n.valid, n.end = context.WithCancelCause(context.Background())
		expire := time.AfterFunc(time.Until(l.Expires.Std()), func() { n.end(errTooOld) })
		context.AfterFunc(n.valid, func() { expire.Stop() })
		next[l.ID] = n
	}

	r.logins.Store(&next)
	for _, gone := range old {
		gone.end(errSignedOut)
	}
}

// endLogins ends the sessions for which why returns an error, in this process.
func (r *Keyring) endLogins(why func(*Login) error) {
	for _, l := range *r.logins.Load() {
		if err := why(&l.Login); err != nil {
			l.end(err)
		}
	}
}

// authenticateLogin returns the caller that presents a session.
func (r *Keyring) authenticateLogin(secret string, header map[string][]string) (Identity, error) {
	rest, ok := strings.CutPrefix(secret, loginPrefix)
	id, _, found := strings.Cut(rest, "_")
	l := (*r.logins.Load())[id]
	if !ok || !found || l == nil {
		return Identity{}, errNoSession
	}
	sum := sha256.Sum256([]byte(secret))
	if subtle.ConstantTimeCompare(sum[:], l.Sum) != 1 {
		return Identity{}, errNoSession
	}
	if l.valid.Err() != nil {
		return Identity{}, context.Cause(l.valid)
	}
	if model.TimeOf(time.Now()) >= l.Expires {
		return Identity{}, errTooOld
	}

	valid, err := r.parent(l)
	if err != nil {
		return Identity{}, err
	}
	who := Identity{Tenant: l.Tenant, Tenants: l.Tenants, Name: l.Name, Admin: l.Admin(), Roles: l.Roles, Valid: valid}
	who.Credential = Credential{Kind: BySession, ID: l.ID, Expires: l.Expires}
	if who.Admin {
		who.Tenant, err = anyTenant(header, r.static.Load().tenant)
	} else {
		who.Tenant, err = r.enabledTenant(header, l.Tenant, l.Tenants)
	}
	if err != nil {
		return Identity{}, err
	}
	return who, nil
}

// parent refuses a session whose key has ended or changed, whose token has a signer that is no
// longer trusted, whose tenant is disabled, or whose admin key the server no longer has. It returns
// a context that ends when the session or its key ends.
func (r *Keyring) parent(l *login) (context.Context, error) {
	r.mu.Lock()
	disabled, trusts := r.disabled[l.Tenant], r.trusts
	r.mu.Unlock()
	switch c := l.Credential; {
	case disabled && !l.Admin() && len(l.Tenants) == 0:
		return nil, errDisabled(l.Tenant)
	case c.Kind == ByStatic && c.ID != r.static.Load().mark():
		return nil, errNoSession
	case c.Kind == ByToken && (r.verifier == nil || trusts != nil && !trusts(c.ID)):
		return nil, errNoSession
	case c.Kind == ByKey:
		k := (*r.all.Load())[c.ID]
		if k == nil || k.key.Tenant != l.Tenant || k.refused != nil || k.valid.Err() != nil || !slices.Equal(k.key.Roles, l.Roles) {
			return nil, errNoSession
		}
		l.tie.Do(func() { context.AfterFunc(k.valid, func() { l.end(context.Cause(k.valid)) }) })
	}
	return l.valid, nil
}
