package payload_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/perdure/perdure/payload"
)

func key(b byte) []byte { return bytes.Repeat([]byte{b}, payload.KeySize) }

func ring(t testing.TB, current string, ids ...string) *payload.Keys {
	t.Helper()
	keys := map[string][]byte{}
	for _, id := range append(ids, current) {
		keys[id] = key(id[len(id)-1])
	}
	k, err := payload.NewKeys(current, keys, key('r'))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestKeysAreChecked(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		current string
		keys    map[string][]byte
		root    []byte
		want    []string
	}{
		{"a", nil, key(1), []string{`current key "a" is not among the keys`}},
		{"a", map[string][]byte{"a": key(1)[:16]}, nil, []string{`key "a" has 16 bytes, want 32`, "root has 0 bytes"}},
		{"", map[string][]byte{"": key(1)}, key(1), []string{`key id ""`}},
		{"a b", map[string][]byte{"a b": key(1), strings.Repeat("x", 65): key(2)}, key(1), []string{`key id "a b"`, "xxx"}},
	} {
		_, err := payload.NewKeys(c.current, c.keys, c.root)
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
		}
	}
}

func TestKeysAreNeverPrinted(t *testing.T) {
	t.Parallel()
	k := ring(t, "kQ", "kZ")
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		text := fmt.Sprintf(verb, k)
		for _, secret := range []string{"QQQ", "ZZZ", "rrr", "81 81", "0x51"} {
			if strings.Contains(text, secret) {
				t.Errorf("%s prints %q", verb, text)
			}
		}
		if !strings.Contains(text, "kQ") {
			t.Errorf("%s does not name the keys: %s", verb, text)
		}
	}
}

func TestEncryptRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		k, err := payload.NewKeys("k1", map[string][]byte{"k1": rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "key")}, key('r'))
		if err != nil {
			t.Fatal(err)
		}
		e := payload.Encrypt(k)
		m := payload.Meta{Encoding: rapid.String().Draw(t, "encoding")}
		data := rapid.SliceOf(rapid.Byte()).Draw(t, "data")
		sealed, applied, err := e.Seal(context.Background(), m, data)
		if err != nil || !applied {
			t.Fatal(applied, err)
		}

		got, err := e.Open(context.Background(), m, sealed)
		if err != nil || !bytes.Equal(got, data) {
			t.Fatalf("%x came back as %x, %v", data, got, err)
		}
		if len(data) > 6 && bytes.Contains(sealed, data) {
			t.Fatal("it is not encrypted")
		}

		if again, _, _ := e.Seal(context.Background(), m, data); bytes.Equal(again, sealed) {
			t.Fatal("the same content is encrypted to the same bytes")
		}
	})
}

// Reading fails if any bit was changed, if anything was cut off, or if the recorded encoding is
// different.
func TestEncryptNoticesEveryChange(t *testing.T) {
	t.Parallel()
	e := payload.Encrypt(ring(t, "k1", "k0"))
	m := payload.Meta{Encoding: "json+zstd"}
	sealed, _, err := e.Seal(t.Context(), m, []byte("transfer 100 to eve"))
	if err != nil {
		t.Fatal(err)
	}

	refused := func(what string, m payload.Meta, sealed []byte) {
		t.Helper()
		_, err := e.Open(t.Context(), m, sealed)
		if !errors.Is(err, payload.ErrDamaged) && !errors.Is(err, payload.ErrNoKey) {
			t.Errorf("%s: %v", what, err)
		}
		if err != nil && strings.Contains(err.Error(), "eve") {
			t.Errorf("%s: the error quotes the content: %v", what, err)
		}
	}
	for i := range sealed {
		for bit := range 8 {
			changed := bytes.Clone(sealed)
			changed[i] ^= 1 << bit
			refused(fmt.Sprintf("bit %d of byte %d", bit, i), m, changed)
		}
		refused(fmt.Sprintf("cut to %d bytes", i), m, sealed[:i])
	}

	refused("a byte more", m, append(bytes.Clone(sealed), 0))
	for _, other := range []string{"", "json", "json+zstd+aes-gcm", "msgpack+zstd"} {
		refused("encoding "+other, payload.Meta{Encoding: other}, sealed)
	}
}

func TestKeyRotation(t *testing.T) {
	t.Parallel()
	m := payload.Meta{Encoding: "json"}
	old, _, err := payload.Encrypt(ring(t, "k1")).Seal(t.Context(), m, []byte("old"))
	if err != nil {
		t.Fatal(err)
	}
	rotated := payload.Encrypt(ring(t, "k2", "k1"))
	if got, err := rotated.Open(t.Context(), m, old); err != nil || string(got) != "old" {
		t.Errorf("after rotation: %q, %v", got, err)
	}
	fresh, _, err := rotated.Seal(t.Context(), m, []byte("new"))
	if err != nil || !bytes.Contains(fresh, []byte("k2")) {
		t.Errorf("the new key is not used: %q, %v", fresh, err)
	}
	_, err = payload.Encrypt(ring(t, "k2")).Open(t.Context(), m, old)
	if !errors.Is(err, payload.ErrNoKey) || !strings.Contains(err.Error(), `key "k1"`) {
		t.Errorf("the missing key is not named: %v", err)
	}
	_, err = payload.Encrypt(ring(t, "k2")).Open(t.Context(), m, fresh)
	if err != nil {
		t.Error(err)
	}
}

// Digests depend on the root but not on the keys. The literal digest below must never change,
// because stores contain such digests.
func TestDigests(t *testing.T) {
	t.Parallel()
	sum := func(k payload.Keyring) string {
		d, err := payload.Encrypt(k).Digester(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%x", d([]byte("content")))
	}

	first := sum(ring(t, "k1"))
	if rotated := sum(ring(t, "k2", "k1")); rotated != first {
		t.Errorf("the digest changed with the key: %s, %s", first, rotated)
	}
	other, err := payload.NewKeys("k1", map[string][]byte{"k1": key('1')}, key('s'))
	if err != nil {
		t.Fatal(err)
	}

	if sum(other) == first {
		t.Error("the digest does not depend on the root")
	}
	if want := "3c7593aa8995e6153e97ae6d97b4bd6cac1e6535ca19c1b53d9f2b3c3d15b790"; first != want {
		t.Errorf("digest %s, want %s", first, want)
	}
}
