package zstd_test

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/perdure/perdure/payload"
	"github.com/perdure/perdure/payload/zstd"
)

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	z := zstd.Compress(16)
	rapid.Check(t, func(t *rapid.T) {
		piece := rapid.SliceOfN(rapid.Byte(), 0, 100).Draw(t, "piece")
		data := bytes.Repeat(piece, rapid.IntRange(1, 50).Draw(t, "times"))
		sealed, applied, err := z.Seal(context.Background(), payload.Meta{}, data)
		if err != nil {
			t.Fatal(err)
		}
		if !applied {
			return
		}

		if len(sealed) >= len(data) || len(data) < 16 {
			t.Fatalf("%d bytes became %d", len(data), len(sealed))
		}
		got, err := z.Open(context.Background(), payload.Meta{}, sealed)
		if err != nil || !bytes.Equal(got, data) {
			t.Fatal(err)
		}
	})
}

func TestOnlyWhenSmaller(t *testing.T) {
	t.Parallel()
	z := zstd.Compress(10)
	for data, want := range map[string]bool{"aaaaaaaaa": false, "abcdefghijklmnop": false, string(bytes.Repeat([]byte("a"), 1000)): true} {
		if _, applied, err := z.Seal(t.Context(), payload.Meta{}, []byte(data)); err != nil || applied != want {
			t.Errorf("%.20s… applied %v, %v", data, applied, err)
		}
	}
}

// Open either refuses a changed payload or returns the original content. It never returns another
// content.
func TestDamage(t *testing.T) {
	t.Parallel()
	z := zstd.Compress(0)
	data := bytes.Repeat([]byte("some text, "), 30)
	sealed, _, err := z.Seal(t.Context(), payload.Meta{}, data)
	if err != nil {
		t.Fatal(err)
	}

	for i := range sealed {
		for bit := range 8 {
			changed := bytes.Clone(sealed)
			changed[i] ^= 1 << bit
			got, err := z.Open(t.Context(), payload.Meta{}, changed)
			if err == nil && !bytes.Equal(got, data) || err != nil && !errors.Is(err, payload.ErrDamaged) {
				t.Errorf("bit %d of byte %d: %d bytes, %v", bit, i, len(got), err)
			}
		}
		if got, err := z.Open(t.Context(), payload.Meta{}, sealed[:i]); !errors.Is(err, payload.ErrDamaged) {
			t.Errorf("cut to %d bytes: %d bytes, %v", i, len(got), err)
		}
	}
}
