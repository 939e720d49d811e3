package jwt_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/perdure/perdure/internal/authn/jwt"
	"github.com/perdure/perdure/internal/fault"
)

// provider is an identity provider. It answers a request for its configuration with a text, in
// which it replaces ISSUER by its own URL.
type provider struct {
	*httptest.Server

	metadata atomic.Pointer[string]
	status   atomic.Int64
	asked    atomic.Int64
}

func newProvider(t *testing.T, i *issuer) *provider {
	t.Helper()
	p := &provider{}
	p.status.Store(http.StatusOK)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /realm/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		p.asked.Add(1)
		w.WriteHeader(int(p.status.Load()))
		_, _ = w.Write([]byte(strings.ReplaceAll(*p.metadata.Load(), "ISSUER", p.URL+"/realm")))
	})
	for _, path := range []string{"/keys", "/other"} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(i.set(t)) })
	}
	mux.HandleFunc("GET /moved", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/keys", http.StatusFound) })
	mux.HandleFunc("GET /huge", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 4<<20)) })
	p.Server = httptest.NewServer(mux)
	t.Cleanup(p.Close)
	return p
}

func (p *provider) say(text string) { p.metadata.Store(&text) }

// An issuer says where its keys are. The server asks it at each load, so the URL of the keys may
// change. The server accepts no keys from a configuration that belongs to another issuer, is
// hostile, or is broken.
func TestDiscovery(t *testing.T) {
	t.Parallel()
	p := newProvider(t, newIssuer(t))
	at := func(path string) string { return fmt.Sprintf(`{"issuer": "ISSUER", "jwks_uri": %q}`, p.URL+path) }

	source, err := jwt.Discover(p.URL + "/realm")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/keys", "/other"} {
		p.say(at(path))
		if keys, err := source.Load(t.Context()); err != nil || !keys.Has("r") {
			t.Errorf("%s: %v", path, err)
		}
	}
	if p.asked.Load() != 2 {
		t.Errorf("the issuer was asked %d times", p.asked.Load())
	}

	for what, text := range map[string]string{
		"another issuer":                 `{"issuer": "https://evil.example", "jwks_uri": "` + p.URL + `/keys"}`,
		"a slash more":                   `{"issuer": "ISSUER/", "jwks_uri": "` + p.URL + `/keys"}`,
		"other letters":                  strings.ReplaceAll(at("/keys"), "ISSUER", "ISSUER\\u0000"),
		"no issuer":                      `{"jwks_uri": "` + p.URL + `/keys"}`,
		"an issuer in upper case":        `{"Issuer": "ISSUER", "jwks_uri": "` + p.URL + `/keys"}`,
		"two issuers":                    `{"issuer": "ISSUER", "issuer": "ISSUER", "jwks_uri": "` + p.URL + `/keys"}`,
		"a list of issuers":              `{"issuer": ["ISSUER"], "jwks_uri": "` + p.URL + `/keys"}`,
		"no keys":                        `{"issuer": "ISSUER"}`,
		"keys without https":             `{"issuer": "ISSUER", "jwks_uri": "http://id.example/keys"}`,
		"keys in a file":                 `{"issuer": "ISSUER", "jwks_uri": "file:///etc/passwd"}`,
		"keys without a host":            `{"issuer": "ISSUER", "jwks_uri": "/keys"}`,
		"keys with a password":           `{"issuer": "ISSUER", "jwks_uri": "https://u:p@id.example/keys"}`,
		"keys that are elsewhere":        at("/moved"),
		"keys that do not exist":         at("/none"),
		"too many bytes of keys":         at("/huge"),
		"a number":                       `17`,
		"nothing":                        ``,
		"no JSON":                        `<html>`,
		"something behind it":            at("/keys") + `{}`,
		"too many bytes":                 `{"issuer": "ISSUER", "jwks_uri": "` + p.URL + `/keys", "x": "` + strings.Repeat("x", 300<<10) + `"}`,
		"an object that is not finished": at("/keys")[:30],
	} {
		p.say(text)
		if keys, err := source.Load(t.Context()); err == nil || keys != nil {
			t.Errorf("%s leads to keys", what)
		}
	}
	p.say(at("/keys"))
	p.status.Store(http.StatusNotFound)
	if _, err := source.Load(t.Context()); err == nil {
		t.Error("an error page leads to keys")
	}

	for _, bad := range []string{"", "accounts", "http://id.example", "ftp://id.example", "https://", "https://u:p@id.example", "https://id.example?a=b", "https://id.example?", "https://id.example#a", "https://id.example#"} {
		if _, err := jwt.Discover(bad); !fault.Is(err, fault.Invalid) {
			t.Errorf("issuer %q: %v", bad, err)
		}
	}
}
