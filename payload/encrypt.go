package payload

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
)

// Encrypt returns a Transform that encrypts with AES-256-GCM. Every payload gets a random nonce and
// a key of its own. HKDF-SHA-256 derives that key from the current key of the ring and 16 random
// bytes. So one key of the ring may encrypt any number of payloads. The id of the ring's key is
// stored with the payload. Reading fails if the payload or its recorded encoding was changed in the
// store.
//
// Encrypt hides the content from readers of the store. It does not stop an attacker with write
// access from replacing a payload with an older payload of the same app.
func Encrypt(ring Keyring) Transform { return encryption{ring} }

type encryption struct{ ring Keyring }

func (encryption) Name() string { return "aes-gcm" }

// The sealed form: version, length of the key id, key id, salt, nonce and ciphertext.
const (
	sealVersion = 1
	saltSize    = 16
)

func (e encryption) Seal(ctx context.Context, m Meta, data []byte) ([]byte, bool, error) {
	id, key, err := e.ring.Current(ctx)
	if err != nil {
		return nil, false, fmt.Errorf("current key: %w", err)
	}
	if !validID(id) {
		return nil, false, fmt.Errorf("current key %q: its id cannot be stored: %w", id, ErrNoKey)
	}

	sealed := make([]byte, 0, 2+len(id)+saltSize+12+len(data)+16)
	sealed = append(sealed, sealVersion, byte(len(id)))
	sealed = append(sealed, id...)
	sealed = sealed[:len(sealed)+saltSize]
	_, _ = rand.Read(sealed[len(sealed)-saltSize:]) // never fails
	aead, err := messageKey(id, key, sealed[len(sealed)-saltSize:])
	if err != nil {
		return nil, false, err
	}

	return aead.Seal(sealed, nil, data, bound(m, id)), true, nil
}

func (e encryption) Open(ctx context.Context, m Meta, sealed []byte) ([]byte, error) {
	if len(sealed) < 2 || sealed[0] != sealVersion || len(sealed) < 2+int(sealed[1])+saltSize {
		return nil, fmt.Errorf("%w: it does not have the form of an encrypted payload", ErrDamaged)
	}
	n := 2 + int(sealed[1])
	id := string(sealed[2:n])
	if !validID(id) {
		return nil, fmt.Errorf("%w: no id of a key", ErrDamaged)
	}

	key, err := e.ring.Key(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("key %q: %w", id, err)
	}
	aead, err := messageKey(id, key, sealed[n:n+saltSize])
	if err != nil {
		return nil, err
	}

	data, err := aead.Open(nil, nil, sealed[n+saltSize:], bound(m, id))
	if err != nil {
		return nil, fmt.Errorf("%w: it does not decrypt with key %q", ErrDamaged, id)
	}
	return data, nil
}

// messageKey returns the cipher of one payload.
func messageKey(id string, key, salt []byte) (cipher.AEAD, error) {
	if len(key) != KeySize {
		return nil, fmt.Errorf("key %q has %d bytes, want %d: %w", id, len(key), KeySize, ErrNoKey)
	}
	derived, err := hkdf.Key(sha256.New, key, salt, "perdure payload encryption 1", KeySize)
	if err != nil {
		return nil, fmt.Errorf("key %q: %w", id, err)
	}
	block, err := aes.NewCipher(derived)
	if err != nil {
		return nil, fmt.Errorf("key %q: %w", id, err)
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// bound returns the data that is authenticated in addition to the content: the encoding and the key
// id.
func bound(m Meta, id string) []byte {
	return fmt.Appendf(nil, "%d:%s%d:%s", len(m.Encoding), m.Encoding, len(id), id)
}

// Digester returns an HMAC-SHA-256 under a key that is derived from the root of the ring.
func (e encryption) Digester(ctx context.Context) (func([]byte) []byte, error) {
	root, err := e.ring.Root(ctx)
	if err != nil {
		return nil, fmt.Errorf("root of the keyring: %w", err)
	}
	if len(root) != KeySize {
		return nil, fmt.Errorf("the root of the keyring has %d bytes, want %d", len(root), KeySize)
	}

	key, err := hkdf.Key(sha256.New, root, nil, "perdure payload digest 1", KeySize)
	if err != nil {
		return nil, fmt.Errorf("root of the keyring: %w", err)
	}
	return func(data []byte) []byte {
		h := hmac.New(sha256.New, key)
		h.Write(data)
		return h.Sum(nil)
	}, nil
}
