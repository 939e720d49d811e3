package perdure

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
)

// Void is the input or output of something that has none.
type Void = struct{}

// encode is a value as it is stored: JSON.
func encode[T any](kind, name string, v T) (model.Payload, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return model.Payload{}, fault.New(fault.Invalid, "%s %s cannot be encoded: %w", kind, name, err)
	}
	return model.Payload{Data: data}, nil
}

// encodeFor is encode for a value that workflow code stores; it must not be too large.
func encodeFor[T any](h *host, kind, name string, v T) (model.Payload, error) {
	p, err := encode(kind, name, v)
	if err != nil {
		return p, Permanent(public(err))
	}
	return p, h.limit(kind, name, p)
}

// decode reads a stored value. Fields that today's type does not know are ignored, so that a type may grow and shrink.
func decode[T any](kind, name string, p model.Payload) (v T, err error) {
	if len(p.Data) == 0 {
		return v, nil
	}
	if p.Encoding != model.JSON {
		return v, fault.New(fault.Invalid, "%s %s is encoded as %q, which this program does not know", kind, name, p.Encoding)
	}
	if err := json.Unmarshal(p.Data, &v); err != nil {
		return v, fault.New(fault.Invalid, "%s %s cannot be decoded: %w", kind, name, err)
	}
	return v, nil
}

// recorded is the outcome of a step as the code knows it. When today's type cannot hold what is recorded, the code does not fit the
// history: the execution is blocked, as by any other mismatch, and goes on with a build that can.
func recorded[T any](x replay.Ctx, kind, name string, p model.Payload) T {
	v, err := decode[T](kind, name, p)
	if err != nil {
		x.Block(err.Error())
	}
	return v
}

// normalize decodes a recorded value into today's type and encodes it again, so that a new optional field changes nothing.
func normalize[T any](data []byte) ([]byte, error) {
	v, err := decode[T]("input", "", model.Payload{Data: data})
	if err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

// Key identifies an execution of a workflow.
type Key struct {
	id  string
	err error
}

// RawKey is the text itself.
func RawKey(s string) Key { return Key{id: s} }

// HashKey is the SHA-256, in hexadecimal, of the canonical encoding of v: msgpack of its JSON form, with map keys in order and numbers as short as
// they can be. It does not depend on the order of fields or of map iteration.
func HashKey[K any](v K) Key {
	p, err := encode("key", "", v)
	if err != nil {
		return Key{err: err}
	}
	return hashPayload(p)
}

// String is the text of the key.
func (k Key) String() string { return k.id }

func (k Key) applyStart(o *startOptions) { o.key, o.keyed = k, true }

func hashPayload(p model.Payload) Key {
	canonical, err := canonicalMsgpack(p.Data)
	if err != nil {
		return Key{err: fault.New(fault.Invalid, "key cannot be encoded: %w", err)}
	}
	sum := sha256.Sum256(canonical)
	return Key{id: hex.EncodeToString(sum[:])}
}

// canonicalMsgpack turns JSON into msgpack that is the same for equal values.
func canonicalMsgpack(data []byte) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	enc := msgpack.NewEncoder(&buf)
	enc.SetSortMapKeys(true)
	enc.UseCompactInts(true)
	if err := enc.Encode(numbers(v)); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// numbers makes integers of JSON numbers where they are, and floats of the others.
func numbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		if !strings.ContainsAny(v.String(), ".eE") {
			if i, err := v.Int64(); err == nil {
				return i
			}
		}
		if f, err := v.Float64(); err == nil {
			return f
		}
		return v.String() // beyond both: its digits
	case []any:
		for i := range v {
			v[i] = numbers(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = numbers(v[k])
		}
	}
	return v
}
