package payload

import (
	"context"
	"errors"
)

// Codec is how an app stores payloads. The zero value is JSON without transforms.
type Codec struct {
	// Format of values; JSON.
	Format Format
	// Chain is applied to what the format makes, in this order: compress, then encrypt, then
	// offload. An offload can only be the last.
	Chain []Transform
	// OldFormats and OldChain are not used for writing any more, or not by this app, but payloads
	// that were written with them can be read. JSON and Msgpack can always be read.
	OldFormats []Format
	OldChain   []Transform
	// MaxPlain is the largest value in bytes, as the format makes it. The limit of what is stored
	// (MaxPayload) applies to what the chain makes of it. 0 is MaxPayload, or 64 MiB when the chain
	// offloads.
	MaxPlain int
}

// Transform changes encoded values on their way into the store, and back. It is safe for concurrent
// use.
//
// An error of Seal or Open is taken as passing (a store or a key service that is away) and tried
// again, unless it is ErrNoKey, ErrDamaged or ErrNotFound. It must not contain what is being
// transformed, nor secrets.
type Transform interface {
	// Name becomes part of the recorded encoding: letters, digits and hyphens, in lower case. It
	// names the form of the bytes and never changes.
	Name() string
	// Seal transforms data for the store. When it reports false, data is stored without this
	// transform.
	Seal(ctx context.Context, m Meta, data []byte) (sealed []byte, applied bool, err error)
	// Open undoes Seal.
	Open(ctx context.Context, m Meta, sealed []byte) (data []byte, err error)
	// Digester is asked for once, when an app is opened. Equal inputs must be recognised (the
	// second start of a key, a step that is replayed), so the store holds digests of them. A
	// transform that hides data from readers of the store returns a keyed digest here, which does
	// not give it away and never changes, however keys rotate. One that hides nothing returns nil.
	Digester(ctx context.Context) (func(data []byte) []byte, error)
}

// Meta is what a transform may know about data.
type Meta struct {
	// Encoding is what was done to the data before this transform, such as "json+zstd".
	Encoding string
	// Cluster is the id of the store whose executions the data belongs to. It is empty when it is
	// not known, as in Open.
	Cluster string
}

// Errors that trying again does not help against.
var (
	ErrNoKey    = errors.New("the key is not in the keyring")
	ErrDamaged  = errors.New("the payload is damaged")
	ErrNotFound = errors.New("not found")
)
