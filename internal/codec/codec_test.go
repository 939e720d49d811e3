package codec_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/codec"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/payload"
	"github.com/perdure/perdure/payload/zstd"
)

var address = model.Address{Tenant: "t", Type: "order", Key: "1"}

func keys(t testing.TB, current string, more ...string) *payload.Keys {
	t.Helper()
	all := map[string][]byte{}
	for _, id := range append(more, current) {
		all[id] = bytes.Repeat([]byte(id[1:2]), 32)
	}
	k, err := payload.NewKeys(current, all, bytes.Repeat([]byte("r"), 32))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func open(t testing.TB, s payload.Codec) *codec.Codec {
	t.Helper()
	c, err := codec.New(t.Context(), codec.Config{Settings: s, Cluster: "c1", MaxPayload: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// everything returns one transform of each kind.
func everything(t testing.TB, dir string) []payload.Transform {
	return []payload.Transform{zstd.Compress(40), payload.Encrypt(keys(t, "k1")), payload.Offload(payload.Dir(dir), 200)}
}

// A codec can read a value that any chain has written, if the codec knows the parts of the chain.
// It may use another chain for writing.
func TestEveryChainRoundTrips(t *testing.T) {
	t.Parallel()
	all := everything(t, t.TempDir())
	reader := open(t, payload.Codec{OldChain: all})
	for set := range 1 << len(all) {
		for _, f := range []payload.Format{payload.JSON, payload.Msgpack} {
			var chain []payload.Transform
			for i := range all {
				if set&(1<<i) != 0 {
					chain = append(chain, all[i])
				}
			}

			c := open(t, payload.Codec{Format: f, Chain: chain})
			t.Run(fmt.Sprintf("%s %b", f.Name(), set), func(t *testing.T) {
				t.Parallel()
				rapid.Check(t, func(t *rapid.T) {
					in := rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "bytes")
					in = bytes.Repeat(in, rapid.IntRange(1, 5).Draw(t, "times"))
					plain, err := c.Marshal(in)
					if err != nil {
						t.Fatal(err)
					}
					sealed, err := c.SealStart(context.Background(), address, plain)
					if err != nil {
						t.Fatal(err)
					}

					again, err := c.SealStart(context.Background(), address, plain)
					if err != nil || !sealed.Equal(again) || !bytes.Equal(sealed.Digest(), again.Digest()) {
						t.Fatalf("equal inputs are not equal: %v, %v, %v", sealed, again, err)
					}

					for _, r := range []*codec.Codec{c, reader} {
						opened, err := r.Open(context.Background(), sealed)
						if err != nil || !opened.Equal(plain) {
							t.Fatalf("%v came back as %v, %v", plain, opened, err)
						}
						var out []byte
						if err := r.Unmarshal(opened, &out); err != nil || !bytes.Equal(in, out) {
							t.Fatalf("%x came back as %x, %v", in, out, err)
						}
					}
				})
			})
		}
	}
}

// The engine compares inputs by content, even if one of them was written before compression or
// offloading was switched on. Hidden inputs can be compared only within the same execution.
func TestComparison(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	value := strings.Repeat("x", 1000)

	seal := func(s payload.Codec, a model.Address, v any) model.Payload {
		t.Helper()
		c := open(t, s)
		plain, err := c.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		p, err := c.SealStart(t.Context(), a, plain)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}

	all := everything(t, dir)
	plain := seal(payload.Codec{}, address, value)
	compressed := seal(payload.Codec{Chain: all[:1]}, address, value)
	offloaded := seal(payload.Codec{Chain: all[2:]}, address, value)
	hidden := seal(payload.Codec{Chain: all[:2]}, address, value)
	rotated := seal(payload.Codec{Chain: []payload.Transform{payload.Encrypt(keys(t, "k2"))}}, address, value)
	other := address
	other.Key = "2"
	elsewhere := seal(payload.Codec{Chain: all[:2]}, other, value)
	if plain.Form() != "" || compressed.Form() != "json+zstd" || offloaded.Form() != "json+blob" || hidden.Form() != "json+zstd+aes-gcm" {
		t.Fatal(plain.Encoding, compressed.Encoding, offloaded.Encoding, hidden.Encoding)
	}

	for what, c := range map[string]struct {
		a, b model.Payload
		same bool
	}{
		"plain and compressed":         {plain, compressed, true},
		"plain and offloaded":          {plain, offloaded, true},
		"compressed and offloaded":     {compressed, offloaded, true},
		"two keys, two chains":         {hidden, rotated, true},
		"plain and hidden":             {plain, hidden, false},
		"hidden in two executions":     {hidden, elsewhere, false},
		"compressed and another value": {compressed, seal(payload.Codec{Chain: all[:1]}, address, value+"y"), false},
		"hidden and another value":     {hidden, seal(payload.Codec{Chain: all[:2]}, address, value+"y"), false},
	} {
		if c.a.Equal(c.b) != c.same || c.b.Equal(c.a) != c.same || bytes.Equal(c.a.Digest(), c.b.Digest()) != c.same {
			t.Errorf("%s: equal %v, want %v", what, c.a.Equal(c.b), c.same)
		}
	}

	if bytes.Equal(hidden.Digest(), plain.Digest()) {
		t.Error("the digest of what is hidden has no key")
	}
}

// The codec refuses a stored payload if any byte of the payload, or of the name of its encoding,
// has changed.
func TestEveryChangeIsNoticed(t *testing.T) {
	t.Parallel()
	for name, chain := range map[string][]payload.Transform{
		"encrypted": {payload.Encrypt(keys(t, "k1"))}, "all": everything(t, t.TempDir()),
	} {
		c := open(t, payload.Codec{Chain: chain})
		plain, err := c.Marshal(strings.Repeat("secret ", 80))
		if err != nil {
			t.Fatal(err)
		}
		p, err := c.Seal(t.Context(), plain)
		if err != nil {
			t.Fatal(err)
		}

		whole := append([]byte(p.Encoding), p.Data...)
		for i := range whole {
			changed := bytes.Clone(whole)
			changed[i] ^= 1
			q := model.Payload{Encoding: string(changed[:len(p.Encoding)]), Data: changed[len(p.Encoding):]}
			got, err := c.Open(t.Context(), q)
			if !fault.Is(err, fault.Blocked) || strings.Contains(err.Error(), "secret ") {
				t.Errorf("%s, byte %d: %q, %v", name, i, got.Data, err)
			}
		}
	}
}

// The error for an unreadable payload says what is missing. Its kind says whether an operator must
// act or another attempt may help.
func TestWhyItCannotBeRead(t *testing.T) {
	t.Parallel()
	c := open(t, payload.Codec{Chain: []payload.Transform{payload.Encrypt(keys(t, "k1"))}})
	p, err := c.Seal(t.Context(), model.Payload{Data: []byte(`"x"`)})
	if err != nil {
		t.Fatal(err)
	}

	away := payload.Codec{OldChain: []payload.Transform{broken{err: errors.New("connection refused")}}}
	for what, x := range map[string]struct {
		s    payload.Codec
		p    model.Payload
		kind fault.Kind
		want string
	}{
		"unknown transform": {payload.Codec{}, p, fault.Blocked, `"json+aes-gcm", and the payload settings of this app have no transform "aes-gcm": add it to OldChain`},
		"no offload":        {payload.Codec{}, model.Payload{Encoding: "json+zstd+blob"}, fault.Blocked, `open the app with payload.Offload and that blob store again`},
		"unknown format":    {payload.Codec{}, model.Payload{Encoding: "proto", Data: []byte{1}}, fault.Blocked, `"proto", which`},
		"removed key":       {payload.Codec{Chain: []payload.Transform{payload.Encrypt(keys(t, "k2"))}}, p, fault.Blocked, `key "k1": the key is not in the keyring`},
		"away":              {away, model.Payload{Encoding: "json+broken"}, fault.Unavailable, "connection refused"},
	} {
		_, err := open(t, x.s).Open(t.Context(), x.p)
		if fault.KindOf(err) != x.kind || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v (%s)", what, err, fault.KindOf(err))
		}
	}
}

// broken is a transform that always fails.
type broken struct {
	err  error
	name string
}

func (b broken) Name() string {
	if b.name != "" {
		return b.name
	}
	return "broken"
}

func (b broken) Seal(context.Context, payload.Meta, []byte) ([]byte, bool, error) {
	return nil, false, b.err
}

func (b broken) Open(context.Context, payload.Meta, []byte) ([]byte, error) { return nil, b.err }

func (b broken) Digester(context.Context) (func([]byte) []byte, error) { return nil, b.err }

func TestSettingsAreChecked(t *testing.T) {
	t.Parallel()
	enc, off := payload.Encrypt(keys(t, "k1")), payload.Offload(payload.Dir(t.TempDir()), 1)
	for want, s := range map[string]payload.Codec{
		"an offload must be the last":         {Chain: []payload.Transform{off, enc}},
		`two transforms are called "aes-gcm"`: {Chain: []payload.Transform{enc}, OldChain: []payload.Transform{enc}},
		"a transform of the chain is nil":     {Chain: []payload.Transform{nil}},
		"no root":                             {Chain: []payload.Transform{broken{err: errors.New("no root")}}},
		`transform "a+b"`:                     {OldChain: []payload.Transform{broken{name: "a+b"}}},
	} {
		_, err := codec.New(t.Context(), codec.Config{Settings: s, Cluster: "c"})
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// Errors of encoding and decoding may quote values, unless the values are hidden.
func TestErrorsAreDiscreet(t *testing.T) {
	t.Parallel()
	c := open(t, payload.Codec{Chain: []payload.Transform{payload.Encrypt(keys(t, "k1"))}})
	var small struct{ Card int8 }
	for _, data := range []string{`{"Card":4111111}`, `{"Card":"4111111"}`, `{"Card":4111111x`} {
		err := c.Unmarshal(model.Payload{Data: []byte(data)}, &small)
		if err == nil || strings.Contains(err.Error(), "4111111") {
			t.Errorf("%s: %v", data, err)
		}
	}
	if _, err := c.Marshal(quoting("4111111")); err == nil || strings.Contains(err.Error(), "4111111") {
		t.Errorf("%v", err)
	}
}

type quoting string

func (q quoting) MarshalText() ([]byte, error) { return nil, fmt.Errorf("%s is no card", string(q)) }

// The engine recognises a step by its input. If a transform hides the input, the identity of the
// step hides the input too.
func TestIdentities(t *testing.T) {
	t.Parallel()
	plain := model.Payload{Data: []byte(`"4111 1111"`)}
	if got := open(t, payload.Codec{}).Identity(plain); !bytes.Equal(got, plain.Data) {
		t.Errorf("%q", got)
	}
	one := open(t, payload.Codec{Chain: []payload.Transform{payload.Encrypt(keys(t, "k1"))}}).Identity(plain)
	two := open(t, payload.Codec{Chain: []payload.Transform{payload.Encrypt(keys(t, "k2"))}}).Identity(plain)
	if !bytes.Equal(one, two) || bytes.Contains(one, []byte("4111")) || len(one) != 32 {
		t.Errorf("%x, %x", one, two)
	}
}
