package perdure

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"reflect"
	"strconv"
	"strings"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Void is the input or output of something that has none.
type Void = struct{}

// encode is a value as the format of the app writes it. It has its stored form only once it is sealed.
func encode[T any](h *host, kind, name string, v T) (p model.Payload, err error) {
	if h.plain {
		p.Data, err = json.Marshal(v)
	} else {
		p, err = h.codec.Marshal(v)
	}
	if err != nil {
		return model.Payload{}, fault.New(fault.Invalid, "%s %s cannot be encoded: %w", kind, name, err)
	}
	return p, nil
}

// encodeFor is encode for a value that workflow code stores; it must not be too large.
func encodeFor[T any](h *host, kind, name string, v T) (model.Payload, error) {
	p, err := encode(h, kind, name, v)
	if err != nil {
		return p, Permanent(public(err))
	}
	if err := h.limit(kind, name, p); err != nil {
		return p, Permanent(public(err))
	}
	return p, nil
}

// result is what the body of a step returns: a value in its stored form.
func result[T any](ctx context.Context, h *host, kind, name string, v T) (model.Payload, error) {
	p, err := encodeFor(h, kind, name, v)
	if err != nil || h.plain {
		return p, err
	}
	// What the body did is done: it is not done again because a store of blobs is away.
	if p, err = h.seal(ctx, patient, kind, name, p); err != nil && !fault.Is(err, fault.Unavailable) {
		err = Permanent(err)
	}
	return p, public(err)
}

// decode reads a stored value. Fields that today's type does not know are ignored, so that a type may grow and shrink.
func decode[T any, R reader](r R, kind, name string, p model.Payload) (v T, err error) {
	if p.Encoding != model.JSON {
		if p, err = r.open(kind, name, p); err != nil {
			return v, err
		}
	}
	return unmarshal[T](r.host(), kind, name, p)
}

// unmarshal reads an encoded value.
func unmarshal[T any](h *host, kind, name string, p model.Payload) (v T, err error) {
	switch {
	case p.Encoding != model.JSON:
		err = h.codec.Unmarshal(p, &v)
	case len(p.Data) > 0:
		err = json.Unmarshal(p.Data, &v)
	}
	if err != nil {
		return v, misfit[T](kind, name, err)
	}
	return v, nil
}

// misfit is the error of a value that the type T cannot hold. A format that this app does not know says nothing about the type.
func misfit[T any](kind, name string, err error) error {
	if fault.Is(err, fault.Blocked) {
		return named(err, kind, name)
	}
	return fault.New(fault.WrongType, "%s %s cannot be decoded as %s: %w", kind, name, reflect.TypeFor[T](), err)
}

// recorded is the outcome of a step as the code knows it. When today's type cannot hold what is recorded, the code does not fit the
// history: the execution is blocked, as by any other mismatch, and goes on with a build that can.
func recorded[T any](ctx WorkflowCtx, kind, name string, p model.Payload) T {
	v, err := decode[T](ctx, kind, name, p)
	if err != nil {
		ctx.x.Block(err.Error())
	}
	return v
}

// sent is a value that somebody sent to the run, where the code cannot be given an error. A value that does not fit fails the
// run: it was wrong when it came, and nobody else can read it for this code.
func sent[T any](ctx WorkflowCtx, kind, name string, p model.Payload) T {
	v, err := decode[T](ctx, kind, name, p)
	switch {
	case err == nil:
	case fault.Is(err, fault.WrongType):
		ctx.x.FailType(err)
	default:
		ctx.x.Block(err.Error())
	}
	return v
}

// normalize decodes a recorded value into today's type and encodes it again, so that a new optional field changes nothing. It is what
// a step or child of that input is recognised by today.
func normalize[T any](of any, p model.Payload) ([]byte, error) {
	h := of.(*host)
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	v, err := decode[T](callReader{h, ctx}, "input", "", p)
	if err != nil {
		return nil, err
	}
	p, err = encode(h, "input", "", v)
	if err != nil {
		return nil, err
	}
	return h.codec.Identity(p), nil
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
	data, err := json.Marshal(v)
	if err != nil {
		return Key{err: fault.New(fault.Invalid, "key cannot be encoded: %w", err)}
	}
	return hashJSON(data)
}

// String is the text of the key.
func (k Key) String() string { return k.id }

func (k Key) applyStart(o *startOptions) {
	if o.keyed {
		o.refuse("a start has two keys, %q and %q: give it one", o.key.id, k.id)
	}
	o.key, o.keyed = k, true
}

func hashJSON(data []byte) Key {
	if replacesBytes(data) {
		return Key{err: fault.New(fault.Invalid, "the key, or the input that it is the hash of, contains text that is not valid UTF-8: two such values could become one key")}
	}
	canonical, err := canonicalMsgpack(data)
	if err != nil {
		return Key{err: fault.New(fault.Invalid, "key cannot be encoded: %w", err)}
	}
	sum := sha256.Sum256(canonical)
	return Key{id: hex.EncodeToString(sum[:])}
}

// replacesBytes reports whether JSON has the escape that the encoder writes in place of bytes which are not valid UTF-8. A character
// U+FFFD that was there before is not escaped.
func replacesBytes(data []byte) bool {
	const escape = `\ufffd`
	for rest := data; ; {
		i := bytes.Index(rest, []byte(escape))
		if i < 0 {
			return false
		}
		slashes := 0
		for j := i - 1; j >= 0 && rest[j] == '\\'; j-- {
			slashes++
		}
		if slashes%2 == 0 {
			return true
		}
		rest = rest[i+len(escape):]
	}
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

// numbers makes numbers of JSON numbers.
func numbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		return number(v.String())
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

// number is the value of a JSON number: an integer where it is one, else a float, and its digits where both would lose some of them: two
// keys must not become one.
func number(text string) any {
	if !strings.ContainsAny(text, ".eE") {
		if i, err := strconv.ParseInt(text, 10, 64); err == nil {
			return i
		}
		if u, err := strconv.ParseUint(text, 10, 64); err == nil {
			return u
		}
		return text
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || digits(text) != digits(strconv.FormatFloat(f, 'e', -1, 64)) {
		return text
	}
	if i := int64(f); float64(i) == f && i > -1<<53 && i < 1<<53 {
		return i
	}
	return f
}

// digits are the significant digits of a number.
func digits(text string) string {
	mantissa, _, _ := strings.Cut(strings.ToLower(text), "e")
	return strings.Trim(strings.Map(func(r rune) rune {
		if r < '0' || r > '9' {
			return -1
		}
		return r
	}, mantissa), "0")
}
