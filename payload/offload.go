package payload

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"iter"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Store is where Offload puts payloads that are too large for the database. A Store must be safe
// for concurrent use.
//
// Keys consist of letters, digits, hyphens and slashes. Offload uses a new key for every Put, so a
// blob never changes.
type Store interface {
	// Put stores a blob. When it returns nil, the blob is durable.
	Put(ctx context.Context, key string, data []byte) error
	// Get reads a blob. It returns ErrNotFound if the blob does not exist.
	Get(ctx context.Context, key string) ([]byte, error)
	// Delete removes a blob. Deleting a blob that does not exist is not an error.
	Delete(ctx context.Context, key string) error
	// List lists the blobs whose keys begin with a prefix, in no particular order.
	List(ctx context.Context, prefix string) iter.Seq2[Blob, error]
}

// Blob is an entry of a Store.
type Blob struct {
	Key    string
	Stored time.Time // when it was put, by the clock of the store
}

// StoreError is an error of a Store, with the operation that failed.
type StoreError struct {
	Op  string // put, get, delete or list
	Key string
	Err error
}

// Error names the operation and the key.
func (e *StoreError) Error() string { return fmt.Sprintf("%s blob %s: %v", e.Op, e.Key, e.Err) }

// Unwrap returns the error of the store.
func (e *StoreError) Unwrap() error { return e.Err }

// Offload returns a Transform that puts data of threshold bytes and more into a store, before the
// commit that refers to the blob. The database stores the key of the blob, its length and its
// SHA-256, and a read checks the length and the SHA-256. Offload must be the last transform of a
// chain, because App.SweepPayloads must find the references in the stored bytes.
//
// A blob stays in the store when its execution is deleted, or when its commit fails.
// App.SweepPayloads removes such blobs.
func Offload(s Store, threshold int) Transform { return offload{s, max(threshold, 1)} }

type offload struct {
	store     Store
	threshold int
}

// Blobs returns the store of a transform that Offload made.
func Blobs(t Transform) (s Store, ok bool) {
	o, ok := t.(offload)
	return o.store, ok
}

func (offload) Name() string { return "blob" }

// A reference is text, so that References can find it in the bytes of any row.
const (
	referenceMark   = "perdure-blob:1:"
	referenceFormat = referenceMark + "%s:%d:%s" // key, length, SHA-256
)

var references = regexp.MustCompile(regexp.QuoteMeta(referenceMark) + `([0-9A-Za-z/-]{1,200}):`)

// ReferenceMark returns the text that begins every reference to a blob.
func ReferenceMark() string { return referenceMark }

// References returns the keys of all blobs that stored bytes refer to.
func References(stored []byte) []string {
	var keys []string
	for _, m := range references.FindAllSubmatch(stored, -1) {
		keys = append(keys, string(m[1]))
	}
	return keys
}

func (o offload) Seal(ctx context.Context, m Meta, data []byte) ([]byte, bool, error) {
	if len(data) < o.threshold {
		return nil, false, nil
	}
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	key := m.Cluster + "/" + hex.EncodeToString(id[:])
	if !validKey(key) {
		return nil, false, fmt.Errorf("the id of the store, %q, cannot be part of a key of a blob: %w", m.Cluster, ErrNotFound)
	}
	if err := o.store.Put(ctx, key, data); err != nil {
		return nil, false, &StoreError{"put", key, err}
	}
	sum := sha256.Sum256(data)
	return fmt.Appendf(nil, referenceFormat, key, len(data), hex.EncodeToString(sum[:])), true, nil
}

func (o offload) Open(ctx context.Context, _ Meta, sealed []byte) ([]byte, error) {
	rest, ok := strings.CutPrefix(string(sealed), referenceMark)
	parts := strings.Split(rest, ":")
	if !ok || len(parts) != 3 || !validKey(parts[0]) {
		return nil, fmt.Errorf("%w: not a reference to a blob", ErrDamaged)
	}
	key := parts[0]
	data, err := o.store.Get(ctx, key)
	if err != nil {
		return nil, &StoreError{"get", key, err}
	}

	if strconv.Itoa(len(data)) != parts[1] {
		return nil, fmt.Errorf("%w: blob %s has %d bytes, not %s", ErrDamaged, key, len(data), parts[1])
	}
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != parts[2] {
		return nil, fmt.Errorf("%w: the content of blob %s has changed", ErrDamaged, key)
	}

	return data, nil
}

func (offload) Digester(context.Context) (func([]byte) []byte, error) { return nil, nil }

// validKey reports whether Offload could have made the key.
func validKey(key string) bool {
	cluster, id, ok := strings.Cut(key, "/")
	if !ok || cluster == "" || len(key) > 200 {
		return false
	}
	for _, c := range []byte(cluster) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-':
		default:
			return false
		}
	}
	raw, err := hex.DecodeString(id)
	return err == nil && len(raw) == 16 && id == strings.ToLower(id)
}
