package payload

import (
	"context"
	"errors"
)

// Codec says how an app stores payloads. The zero value is JSON without transforms.
type Codec struct {
	// Format encodes values. The default is JSON.
	Format Format
	// Chain is applied to the output of the format, in the order of the slice. Compress first, then
	// encrypt, then offload. An offload must be the last element.
	Chain []Transform
	// OldFormats and OldChain are formats and transforms that this app can read but does not use
	// for writing. They keep earlier payloads readable. JSON and Msgpack can always be read.
	OldFormats []Format
	OldChain   []Transform
	// MaxPlain is the maximum size in bytes of a value that the format has encoded, before the
	// chain is applied. A MaxPlain of 0 means MaxPayload, or 64 MiB if the chain offloads.
	// MaxPayload is another limit: it applies to the output of the chain, which is what the app
	// stores.
	MaxPlain int
}

// Transform changes encoded values before they are stored, and changes them back when they are
// read. It must be safe for concurrent use.
//
// Perdure treats an error of Seal or Open as temporary (a store or a key service is unavailable)
// and tries again, unless the error is ErrNoKey, ErrDamaged or ErrNotFound. The error must contain
// neither the data nor secrets.
type Transform interface {
	// Name becomes part of the recorded encoding. It consists of lower-case letters, digits and
	// hyphens. It identifies the form of the bytes and must never change.
	Name() string
	// Seal transforms data for the store. If applied is false, data is stored without this
	// transform.
	Seal(ctx context.Context, m Meta, data []byte) (sealed []byte, applied bool, err error)
	// Open reverses Seal.
	Open(ctx context.Context, m Meta, sealed []byte) (data []byte, err error)
	// Perdure calls Digester once, when an app opens. The store contains digests of inputs, because
	// Perdure must recognise equal inputs, for example in the second start of a key or in a step
	// that is replayed. A transform that hides data from readers of the store returns a keyed
	// digest here. The digest must not reveal the data and must never change, even if keys rotate.
	// A transform that hides nothing returns nil.
	Digester(ctx context.Context) (func(data []byte) []byte, error)
}

// Meta describes data to a transform.
type Meta struct {
	// Encoding names the format and the transforms that were applied before this transform, such as
	// "json+zstd".
	Encoding string
	// Cluster is the id of the store that the data belongs to. It is empty if the id is not known,
	// as in Open.
	Cluster string
}

// Errors that another attempt cannot solve.
var (
	ErrNoKey    = errors.New("the key is not in the keyring")
	ErrDamaged  = errors.New("the payload is damaged")
	ErrNotFound = errors.New("not found")
)
