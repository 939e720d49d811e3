package authn

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"strings"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Kinds of settings that hold keys and tenants. A key is a setting of its tenant. An admin key is a
// setting without a tenant. The time when a key was last used is another setting with the same
// name. The record of a tenant is stored next to its allowance.
const (
	KeySetting    = "key"
	KeyUseSetting = "key_use"
	TenantSetting = "tenant"
	TenantRecord  = "record"
)

// Tenant is what is stored about a tenant.
type Tenant struct {
	Note     string     `json:"note,omitempty"`
	Disabled bool       `json:"disabled,omitempty"`
	Created  model.Time `json:"created,omitempty"`
}

// Key is what is stored about a key.
type Key struct {
	// ID identifies the key. It is part of what the caller presents, and is not secret.
	ID string `json:"-"`
	// Tenant is the tenant that the key belongs to; empty for an admin key.
	Tenant string `json:"-"`
	// Sum is the SHA-256 digest of what the caller presents. A slow hash such as bcrypt protects
	// passwords, which can be guessed. A key has 260 random bits, which cannot be guessed. So it
	// needs no slow hash, which would delay every call by many milliseconds.
	Sum     []byte     `json:"sum"`
	Note    string     `json:"note,omitempty"`
	Created model.Time `json:"created,omitempty"`
	// Roles say what the key may do. A key without roles may do everything in its tenant.
	Roles []string `json:"roles,omitempty"`
	// Expires is when the key expires; zero for never.
	Expires model.Time `json:"expires,omitempty"`
}

// Admin reports whether the key is an admin key, which belongs to no tenant.
func (k *Key) Admin() bool { return k.Tenant == "" }

// A key has three parts, separated by underscores: the prefix, its id, and the secret part. The
// prefix lets tools find keys that were published by accident.
const (
	keyPrefix = "perdure_"
	idLength  = 12 // characters of 5 random bits
)

// NewKey returns a random key of a tenant, or a random admin key if the tenant is empty. The secret
// is what callers present.
func NewKey(tenant string) (k Key, secret string) {
	id := strings.ToLower(rand.Text()[:idLength])
	secret = keyPrefix + id + "_" + rand.Text() + rand.Text()
	sum := sha256.Sum256([]byte(secret))
	return Key{ID: id, Tenant: tenant, Sum: sum[:]}, secret
}

// idOf returns the id in what a caller presents.
func idOf(secret string) (id string, ok bool) {
	rest, ok := strings.CutPrefix(secret, keyPrefix)
	if !ok {
		return "", false
	}
	id, _, ok = strings.Cut(rest, "_")
	return id, ok
}

// ReadKey reads the setting of a key.
func ReadKey(tenant, name string, body []byte) (Key, error) {
	k := Key{}
	if err := json.Unmarshal(body, &k); err != nil {
		return k, fault.New(fault.Corrupt, "key %s: %w", name, err)
	}
	if len(k.Sum) != sha256.Size {
		return k, fault.New(fault.Corrupt, "key %s: its digest has %d bytes, must have %d", name, len(k.Sum), sha256.Size)
	}
	k.ID, k.Tenant = name, tenant
	return k, nil
}

// ReadTenant reads the record of a tenant.
func ReadTenant(name string, body []byte) (t Tenant, err error) {
	if err := json.Unmarshal(body, &t); err != nil {
		return t, fault.New(fault.Corrupt, "tenant %s: %w", name, err)
	}
	return t, nil
}

// KeyUse is what is stored about the use of a key.
type KeyUse struct {
	At model.Time `json:"at"`
}

// ReadKeyUse reads when a key was last used. It returns zero if that cannot be read.
func ReadKeyUse(body []byte) model.Time {
	u := KeyUse{}
	if json.Unmarshal(body, &u) != nil {
		return 0
	}
	return u.At
}
