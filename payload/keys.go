package payload

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// KeySize is the size of a key in bytes.
const KeySize = 32

// Keyring holds the keys of Encrypt. It must be safe for concurrent use.
type Keyring interface {
	// Current returns the key for encryption and its id.
	Current(ctx context.Context) (id string, key []byte, err error)
	// Key returns the key with an id. If it returns ErrNoKey, the executions that need the key are
	// blocked. Perdure treats other errors as temporary.
	Key(ctx context.Context, id string) (key []byte, err error)
	// Root returns the secret from which digests are derived. The secret has no other use and must
	// never change. With another root, a repeated start of a key looks like a start with another
	// input, and a replay does not recognise steps that started before the change.
	Root(ctx context.Context) ([]byte, error)
}

// Keys is a Keyring whose keys are known when the program starts: one key for writing, and any
// number of other keys for reading. To rotate keys, add a new key and make it the current key.
// Remove an old key when no stored payload needs that key.
type Keys struct {
	current string
	keys    map[string][]byte
	root    []byte
}

// NewKeys returns a keyring. Keys and root are 32 random bytes each. The ids are short texts, such
// as a date, that are stored with the encrypted payloads.
func NewKeys(current string, keys map[string][]byte, root []byte) (*Keys, error) {
	var problems []error
	for _, id := range slices.Sorted(maps.Keys(keys)) {
		if !validID(id) {
			problems = append(problems, fmt.Errorf("key id %q: use 1 to 64 letters, digits, dots, hyphens, underscores", id))
		}
		if n := len(keys[id]); n != KeySize {
			problems = append(problems, fmt.Errorf("key %q has %d bytes, want %d", id, n, KeySize))
		}
	}

	if _, ok := keys[current]; !ok {
		problems = append(problems, fmt.Errorf("the current key %q is not among the keys", current))
	}
	if n := len(root); n != KeySize {
		problems = append(problems, fmt.Errorf("the root has %d bytes, want %d", n, KeySize))
	}
	if err := errors.Join(problems...); err != nil {
		return nil, fmt.Errorf("keyring: %w", err)
	}

	k := &Keys{current: current, keys: make(map[string][]byte, len(keys)), root: slices.Clone(root)}
	for id, key := range keys {
		k.keys[id] = slices.Clone(key)
	}
	return k, nil
}

// Current returns the key for writing.
func (k *Keys) Current(context.Context) (string, []byte, error) {
	return k.current, k.keys[k.current], nil
}

// Key returns a key by its id.
func (k *Keys) Key(_ context.Context, id string) ([]byte, error) {
	key, ok := k.keys[id]
	if !ok {
		return nil, ErrNoKey
	}
	return key, nil
}

// Root returns the secret from which digests are derived.
func (k *Keys) Root(context.Context) ([]byte, error) { return k.root, nil }

// String lists the ids, without the keys.
func (k *Keys) String() string {
	return fmt.Sprintf("keys %v, current %s", slices.Sorted(maps.Keys(k.keys)), k.current)
}

// GoString returns the same text as String, so that %#v does not print keys either.
func (k *Keys) GoString() string { return k.String() }

const maxID = 64

func validID(id string) bool {
	if id == "" || len(id) > maxID {
		return false
	}
	for _, c := range []byte(id) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '-', c == '_':
		default:
			return false
		}
	}
	return true
}
