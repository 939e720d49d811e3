package s3_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/payload"
	"github.com/perdure/perdure/payload/s3"
)

const secretKey = "wJalrXUtnFEMI-K7MDENG"

// serve runs an object store and returns the Config that reaches it.
func serve(t *testing.T) (*server, s3.Config) {
	t.Helper()
	s := &server{t: t, bucket: "blobs", region: "eu-central-1", access: "AKIA", secret: secretKey, objects: map[string]object{}, page: 3}
	h := httptest.NewTLSServer(s)
	t.Cleanup(h.Close)
	return s, s3.Config{
		Endpoint: strings.TrimPrefix(h.URL, "https://"), Bucket: "blobs", Prefix: "/perdure/", Region: "eu-central-1", AccessKey: "AKIA", SecretKey: secretKey,
		Transport: h.Client().Transport,
	}
}

func open(t *testing.T, cfg s3.Config) payload.Store {
	t.Helper()
	st, err := s3.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func TestStore(t *testing.T) {
	t.Parallel()
	srv, cfg := serve(t)
	st := open(t, cfg)

	want := map[string][]byte{}
	for i := range 10 {
		key := fmt.Sprintf("c%d/%032x", i%2, i)
		want[key] = bytes.Repeat([]byte{byte(i)}, i*1000)
		if err := st.Put(t.Context(), key, want[key]); err != nil {
			t.Fatal(err)
		}
	}

	for key, data := range want {
		srv.with(func() {
			if _, ok := srv.objects["perdure/"+key]; !ok {
				t.Errorf("no object perdure/%s", key)
			}
		})
		if got, err := st.Get(t.Context(), key); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: %d bytes, want %d, %v", key, len(got), len(data), err)
		}
	}

	srv.with(func() { srv.objects["other/c1/x"] = object{} })
	list := func(prefix string) (keys []string) {
		for b, err := range st.List(t.Context(), prefix) {
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
	if got := list(""); len(got) != 10 {
		t.Errorf("lists %v", got)
	}
	ones := list("c1/")
	if len(ones) != 5 || !strings.HasPrefix(ones[0], "c1/") {
		t.Errorf("lists %v", ones)
	}

	for range 2 {
		if err := st.Delete(t.Context(), ones[0]); err != nil {
			t.Fatal(err)
		}
	}

	if _, err := st.Get(t.Context(), ones[0]); !errors.Is(err, payload.ErrNotFound) {
		t.Errorf("a deleted blob: %v", err)
	}
	if got := list("c1/"); !slices.Equal(got, ones[1:]) {
		t.Errorf("lists %v", got)
	}
}

// Offload works on an S3 store, and detects changed blobs.
func TestOffload(t *testing.T) {
	t.Parallel()
	srv, cfg := serve(t)
	o := payload.Offload(open(t, cfg), 10)
	data := []byte("more than ten bytes")
	ref, applied, err := o.Seal(t.Context(), payload.Meta{Encoding: "json", Cluster: "c1"}, data)
	if err != nil || !applied {
		t.Fatal(applied, err)
	}

	if got, err := o.Open(t.Context(), payload.Meta{}, ref); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%q, %v", got, err)
	}

	srv.with(func() {
		for _, obj := range srv.objects {
			obj.data[3] ^= 1
		}
	})

	if _, err := o.Open(t.Context(), payload.Meta{}, ref); !errors.Is(err, payload.ErrDamaged) {
		t.Errorf("changed: %v", err)
	}
	srv.with(func() { clear(srv.objects) })
	if _, err := o.Open(t.Context(), payload.Meta{}, ref); !errors.Is(err, payload.ErrNotFound) {
		t.Errorf("gone: %v", err)
	}
}

func TestTrouble(t *testing.T) {
	t.Parallel()
	srv, cfg := serve(t)
	st := open(t, cfg)
	srv.with(func() { srv.fault = func(*http.Request) int { return http.StatusForbidden } })
	key := "c1/" + strings.Repeat("0", 32)
	if err := st.Put(t.Context(), key, []byte("x")); err == nil {
		t.Error("a refused put succeeded")
	}
	if _, err := st.Get(t.Context(), key); err == nil || errors.Is(err, payload.ErrNotFound) {
		t.Errorf("a refused get: %v", err)
	}

	for b, err := range st.List(t.Context(), "") {
		if err == nil {
			t.Errorf("a refused list gives %v", b)
		}
	}

	srv.with(func() { srv.fault = nil })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := st.Put(ctx, key, []byte("x")); !errors.Is(err, context.Canceled) {
		t.Errorf("a put after its end: %v", err)
	}

	for what, change := range map[string]func(*s3.Config){
		"does not exist":             func(c *s3.Config) { c.Bucket = "nothing" },
		"no endpoint":                func(c *s3.Config) { c.Endpoint = "" },
		"no bucket":                  func(c *s3.Config) { c.Bucket = "" },
		"one of access key":          func(c *s3.Config) { c.AccessKey = "" },
		"s3 bucket blobs at 127.0.0": func(c *s3.Config) { c.SecretKey = "wrong-" + secretKey },
	} {
		bad := cfg
		change(&bad)
		_, err := s3.Open(t.Context(), bad)
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
		if err != nil && strings.Contains(err.Error(), secretKey) {
			t.Errorf("the error tells the secret: %v", err)
		}
	}

	if text := fmt.Sprintf("%v %+v %#v", cfg, cfg, cfg); strings.Contains(text, secretKey) {
		t.Errorf("it is printed with its secret: %s", text)
	}
}
