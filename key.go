package perdure

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/perdure/perdure/internal/fault"
)

// Key identifies an execution of a workflow, or a task. Pass it as an option of a start to set the
// key of the execution.
type Key struct {
	id  string
	err error
}

// RawKey uses a text as the key: up to 512 bytes of UTF-8 without control characters.
func RawKey(s string) Key { return Key{id: s} }

// HashKey makes a key from a value. The key is the SHA-256, in hexadecimal, of the canonical
// encoding of v: msgpack of its JSON form, with sorted map keys and integers as short as possible.
// So the key does not depend on the order of fields or of map iteration.
func HashKey[K any](v K) Key {
	data, err := json.Marshal(v)
	if err != nil {
		return Key{err: fault.New(fault.Invalid, "key cannot be encoded: %w", err)}
	}
	return hashJSON(data)
}

// String returns the text of the key.
func (k Key) String() string { return k.id }

func (k Key) applyStart(o *startOptions) {
	if o.keyed {
		o.refuse("a start has two keys, %q and %q: give it one", o.key.id, k.id)
	}
	o.key, o.keyed = k, true
}

func (k Key) applyPast(o *pastOptions) { o.key, o.keyed = k, true }

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

// replacesBytes reports whether JSON contains the escape that the encoder writes in place of
// invalid UTF-8. The encoder does not escape a U+FFFD that was in the text before.
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

// numbers replaces the JSON numbers in a value with Go numbers.
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

// number returns the value of a JSON number: an integer if possible, otherwise a float. If both
// would lose digits, it returns the digits as text, so that two different values cannot get the
// same key.
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

// digits returns the significant digits of a number.
func digits(text string) string {
	mantissa, _, _ := strings.Cut(strings.ToLower(text), "e")
	return strings.Trim(strings.Map(func(r rune) rune {
		if r < '0' || r > '9' {
			return -1
		}
		return r
	}, mantissa), "0")
}
