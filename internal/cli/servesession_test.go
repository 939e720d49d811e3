package cli

import (
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"strings"
	"testing"
)

// Over TLS a session has a cookie that browsers send to this host only, and only over TLS. The
// server ignores the cookie name of servers without TLS, because another server on the same host
// could set such a cookie.
func TestServeSessionOverTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key, trust := certificate(t, dir)
	s := startServe(t, "--store", "memory:", "--listen", "127.0.0.1:0", "--admin-key-file", writeFile(t, dir, "admin", serveKey), "--tls-cert", cert, "--tls-key", key)
	defer s.end()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trust, MinVersion: tls.VersionTLS12}}
	defer transport.CloseIdleConnections()
	browser := &http.Client{Transport: transport, Jar: jar}
	send := func(method, path string, header ...string) (*http.Response, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, "https://"+s.address+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		res, err := browser.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res, string(body)
	}

	res, body := send(http.MethodPost, "/v1/session", "Authorization", "Bearer "+serveKey)
	set := res.Cookies()
	if res.StatusCode != http.StatusCreated || len(set) != 1 {
		t.Fatalf("signing in: %d %s, %v", res.StatusCode, body, set)
	}
	c := set[0]
	if c.Name != "__Host-perdure_session" || !c.Secure || !c.HttpOnly || c.Path != "/" || c.Domain != "" || c.SameSite != http.SameSiteStrictMode {
		t.Errorf("the cookie is %+v", c)
	}
	var made struct{ ID, Guard string }
	if err := json.Unmarshal([]byte(body), &made); err != nil || made.Guard == "" {
		t.Fatalf("%s, %v", body, err)
	}

	if res, body := send(http.MethodGet, "/v1/me"); res.StatusCode != http.StatusOK || !strings.Contains(body, made.ID) {
		t.Errorf("with the cookie: %d %s", res.StatusCode, body)
	}
	if res, body := send(http.MethodDelete, "/v1/session"); res.StatusCode != http.StatusForbidden {
		t.Errorf("a change without the guard: %d %s", res.StatusCode, body)
	}
	browser.Jar = nil
	if res, body := send(http.MethodGet, "/v1/me", "Cookie", "perdure_session="+c.Value); res.StatusCode != http.StatusUnauthorized {
		t.Errorf("the cookie of a server without TLS: %d %s", res.StatusCode, body)
	}
	browser.Jar = jar

	res, body = send(http.MethodDelete, "/v1/session", "Perdure-Guard", made.Guard)
	if set := res.Cookies(); res.StatusCode != http.StatusNoContent || len(set) != 1 || set[0].Name != c.Name || set[0].MaxAge >= 0 || !set[0].Secure {
		t.Errorf("signing out: %d %s, %v", res.StatusCode, body, set)
	}
	if res, body := send(http.MethodGet, "/v1/me", "Cookie", c.Name+"="+c.Value); res.StatusCode != http.StatusUnauthorized {
		t.Errorf("after signing out: %d %s", res.StatusCode, body)
	}
}
