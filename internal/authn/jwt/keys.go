package jwt

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"slices"

	"github.com/perdure/perdure/internal/fault"
)

// Bounds of sets of keys.
const (
	maxSet  = 1 << 20 // bytes
	maxKeys = 100
	leastN  = 2048 // bits of an RSA key
	mostN   = 8192
)

// KeySet is the keys of an issuer.
type KeySet struct {
	keys map[string]publicKey
	sum  [sha256.Size]byte // the digest of the text that the set was read from
}

// publicKey is a key, and the only algorithm that it may be used with.
type publicKey struct {
	public    crypto.PublicKey
	algorithm string
}

func (s *KeySet) find(id string) (publicKey, bool) {
	k, ok := s.keys[id]
	return k, ok
}

// Has reports whether the set has a key.
func (s *KeySet) Has(id string) bool {
	_, ok := s.keys[id]
	return ok
}

// Same reports whether two sets were read from the same text.
func (s *KeySet) Same(other *KeySet) bool { return s.sum == other.sum }

// jwk is a key in a set.
type jwk struct {
	Kty, Kid, Use, Alg, Crv string
	N, E, X, Y              string
	Ops                     []string `json:"key_ops"`
}

// ParseKeys reads a JSON web key set. It skips keys that are not for signatures, and keys of other
// types. It refuses a set without a usable key, and a set with a weak key.
func ParseKeys(data []byte) (*KeySet, error) {
	if len(data) > maxSet {
		return nil, fault.New(fault.Invalid, "the key set has %d bytes, at most %d are allowed", len(data), maxSet)
	}
	var all struct{ Keys []jwk }
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, fault.New(fault.Invalid, "the key set is not JSON: %w", err)
	}
	if len(all.Keys) > maxKeys {
		return nil, fault.New(fault.Invalid, "the key set has %d keys, at most %d are allowed", len(all.Keys), maxKeys)
	}

	s := &KeySet{keys: map[string]publicKey{}, sum: sha256.Sum256(data)}
	for i := range all.Keys {
		k := &all.Keys[i]
		if k.Use != "" && k.Use != "sig" || len(k.Ops) > 0 && !slices.Contains(k.Ops, "verify") || !keyID.MatchString(k.Kid) {
			continue
		}
		key, err := k.read()
		if err != nil {
			return nil, err
		}
		if key.public == nil || k.Alg != "" && k.Alg != key.algorithm {
			continue
		}
		if s.Has(k.Kid) {
			return nil, fault.New(fault.Invalid, "the key set has the key %s twice", k.Kid)
		}
		s.keys[k.Kid] = key
	}
	if len(s.keys) == 0 {
		return nil, fault.New(fault.Invalid, "the key set has no key with an id (kid) for signatures with RS256, ES256 or EdDSA")
	}
	return s, nil
}

// read returns the key. The public key is missing if the type is not supported.
func (k *jwk) read() (publicKey, error) {
	switch {
	case k.Kty == "RSA":
		return k.readRSA()
	case k.Kty == "EC" && k.Crv == "P-256":
		x, y := decode(k.X), decode(k.Y)
		if len(x) != 32 || len(y) != 32 {
			return publicKey{}, fault.New(fault.Invalid, "key %s is not a point of P-256", k.Kid)
		}
		public, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), slices.Concat([]byte{4}, x, y))
		if err != nil {
			return publicKey{}, fault.New(fault.Invalid, "key %s is not a point of P-256", k.Kid)
		}
		return publicKey{public, "ES256"}, nil
	case k.Kty == "OKP" && k.Crv == "Ed25519":
		x := decode(k.X)
		if len(x) != ed25519.PublicKeySize {
			return publicKey{}, fault.New(fault.Invalid, "key %s has %d bytes, must have %d", k.Kid, len(x), ed25519.PublicKeySize)
		}
		return publicKey{ed25519.PublicKey(x), "EdDSA"}, nil
	}

	return publicKey{}, nil
}

func (k *jwk) readRSA() (publicKey, error) {
	n, e := new(big.Int).SetBytes(decode(k.N)), new(big.Int).SetBytes(decode(k.E))
	if bits := n.BitLen(); bits < leastN || bits > mostN {
		return publicKey{}, fault.New(fault.Invalid, "key %s has %d bits, must have between %d and %d", k.Kid, bits, leastN, mostN)
	}
	if !e.IsInt64() || e.Int64() < 3 || e.Int64() > 1<<31-1 || e.Int64()%2 == 0 {
		return publicKey{}, fault.New(fault.Invalid, "key %s has an exponent that is not usable", k.Kid)
	}
	return publicKey{&rsa.PublicKey{N: n, E: int(e.Int64())}, "RS256"}, nil
}

// decode reads base64. It returns nil for other texts.
func decode(text string) []byte {
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return nil
	}
	return b
}
