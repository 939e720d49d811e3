package payload_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/perdure/perdure/payload"
)

var meta = payload.Meta{Encoding: "json", Cluster: "c0ffee"}

func TestOffloadRoundTrip(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		o := payload.Offload(payload.Dir(dir), 8)
		data := rapid.SliceOfN(rapid.Byte(), 0, 64).Draw(t, "data")
		sealed, applied, err := o.Seal(context.Background(), meta, data)
		if err != nil || applied != (len(data) >= 8) {
			t.Fatal(len(data), applied, err)
		}
		if !applied {
			return
		}

		got, err := o.Open(context.Background(), payload.Meta{Encoding: "json"}, sealed)
		if err != nil || !bytes.Equal(got, data) {
			t.Fatalf("%x came back as %x, %v", data, got, err)
		}
		// A reference can be anywhere in a row.
		row := append([]byte{0xa1, 0x41}, append(sealed, 0xff)...)
		if keys := payload.References(row); len(keys) != 1 || !strings.HasPrefix(keys[0], "c0ffee/") {
			t.Fatalf("the reference is not found: %v", keys)
		}
	})
}

// Open of the transform returns an error for a changed reference, and for a blob that was changed,
// cut or lost.
func TestOffloadNoticesEveryChange(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := payload.Offload(payload.Dir(dir), 1)
	sealed, _, err := o.Seal(t.Context(), meta, []byte("a rather large thing"))
	if err != nil {
		t.Fatal(err)
	}

	for i := range sealed {
		changed := bytes.Clone(sealed)
		changed[i] ^= 1
		if _, err := o.Open(t.Context(), meta, changed); !errors.Is(err, payload.ErrDamaged) && !errors.Is(err, payload.ErrNotFound) {
			t.Errorf("byte %d of the reference %q: %v", i, changed, err)
		}
	}

	file := files(t, dir)[0]
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}

	for i := range whole {
		changed := bytes.Clone(whole)
		changed[i] ^= 1
		write(t, file, changed)
		if _, err := o.Open(t.Context(), meta, sealed); !errors.Is(err, payload.ErrDamaged) {
			t.Errorf("byte %d of the blob: %v", i, err)
		}
	}

	write(t, file, whole[:3])
	if _, err := o.Open(t.Context(), meta, sealed); !errors.Is(err, payload.ErrDamaged) || !strings.Contains(err.Error(), "3 bytes") {
		t.Errorf("cut: %v", err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}

	_, err = o.Open(t.Context(), meta, sealed)
	if se := (*payload.StoreError)(nil); !errors.As(err, &se) || se.Op != "get" || !errors.Is(err, payload.ErrNotFound) {
		t.Errorf("lost: %v", err)
	}
}

func write(t *testing.T, file string, data []byte) {
	t.Helper()
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// files returns all files below a directory.
func files(t *testing.T, dir string) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

const id = "0123456789abcdef0123456789abcdef"

// Dir refuses keys that Offload does not make. So no key leads out of the directory or to a file
// that is being written.
func TestDirRefusesHostileKeys(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write(t, filepath.Join(root, "secret"), []byte("secret"))

	d := payload.Dir(filepath.Join(root, "blobs"))
	for _, key := range []string{
		"", "/", "a", "../secret", "a/../../secret", "/etc/passwd", "../" + id, ".." + "/" + id, "a/" + id + "/x", "a/" + strings.ToUpper(id),
		"a\\..\\b/" + id, "a/" + id[:31], "a/" + id + "0", "a\x00/" + id, ".new-1/" + id, "a:b/" + id, strings.Repeat("a", 300) + "/" + id,
	} {
		if err := d.Put(t.Context(), key, []byte("x")); err == nil {
			t.Errorf("put %q succeeded", key)
		}
		if got, err := d.Get(t.Context(), key); !errors.Is(err, payload.ErrNotFound) {
			t.Errorf("get %q: %q, %v", key, got, err)
		}
		if err := d.Delete(t.Context(), key); err == nil {
			t.Errorf("delete %q succeeded", key)
		}
	}

	if got := files(t, root); len(got) != 1 {
		t.Errorf("files %v", got)
	}
}

func TestDir(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "not", "yet")
	d := payload.Dir(root)

	list := func(prefix string) (keys []string) {
		for b, err := range d.List(t.Context(), prefix) {
			if err != nil {
				t.Fatal(err)
			}
			if age := time.Since(b.Stored); age < -time.Minute || age > time.Hour {
				t.Errorf("%s was stored %s ago", b.Key, age)
			}
			keys = append(keys, b.Key)
		}
		return keys
	}
	if got := list(""); got != nil {
		t.Errorf("an empty store lists %v", got)
	}

	one, two := "one/"+id, "two/"+id
	for _, key := range []string{one, two} {
		if err := d.Put(t.Context(), key, []byte(key)); err != nil {
			t.Fatal(err)
		}
	}

	if got, err := d.Get(t.Context(), one); err != nil || string(got) != one {
		t.Errorf("%q, %v", got, err)
	}
	if got := list(""); len(got) != 2 {
		t.Errorf("lists %v", got)
	}
	if got := list("two/"); !slices.Equal(got, []string{two}) {
		t.Errorf("lists %v", got)
	}

	for range 2 { // the second Delete finds no blob
		if err := d.Delete(t.Context(), one); err != nil {
			t.Fatal(err)
		}
	}

	if _, err := d.Get(t.Context(), one); !errors.Is(err, payload.ErrNotFound) {
		t.Errorf("deleted: %v", err)
	}

	for _, f := range files(t, root) {
		if strings.Contains(f, ".new-") {
			t.Errorf("%s is left", f)
		}
		if info, err := os.Stat(f); err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s can be read by others: %v, %v", f, info.Mode(), err)
		}
	}

	// A Put that cannot finish returns an error and leaves nothing behind.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.Put(ctx, one, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("put after the end: %v", err)
	}
	if err := os.WriteFile(filepath.Join(root, "three"), nil, 0o600); err != nil {
		t.Fatal(err)
	}

	if err := d.Put(t.Context(), "three/"+id, nil); err == nil {
		t.Error("put where a file is in the way")
	}
}
