package cli

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	gojwt "github.com/golang-jwt/jwt/v5"
)

// A server asks for client certificates and for tokens of an identity provider. A client needs a
// certificate that the server trusts, and its token identifies the caller.
func TestServeTokensAndClientCertificates(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key, trust := certificate(t, dir)
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	keys := writeFile(t, dir, "keys.json", fmt.Sprintf(`{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"k1","x":%q}]}`, base64.RawURLEncoding.EncodeToString(public)))
	s := startServe(t, "--store", "memory:", "--listen", "127.0.0.1:0", "--admin-key-file", writeFile(t, dir, "admin", serveKey), "--tls-cert", cert, "--tls-key", key, "--tls-client-ca", cert,
		"--jwt-keys", keys, "--jwt-issuer", "https://id.example", "--jwt-audience", "perdure", "--jwt-tenant-claim", "org", "--jwt-admin-role", "boss")
	defer s.end()

	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	get := func(path, token string, certificates ...tls.Certificate) (int, string, error) {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trust, MinVersion: tls.VersionTLS12, Certificates: certificates}}
		defer transport.CloseIdleConnections()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+s.address+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		res, err := (&http.Client{Transport: transport}).Do(r)
		if err != nil {
			return 0, "", err
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		return res.StatusCode, string(body), err
	}
	sign := func(roles ...string) string {
		t.Helper()
		token := gojwt.NewWithClaims(gojwt.SigningMethodEdDSA, gojwt.MapClaims{
			"iss": "https://id.example", "aud": "perdure", "sub": "ann", "org": "acme", "roles": roles, "iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix(),
		})
		token.Header["kid"] = "k1"
		text, err := token.SignedString(private)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}

	if _, _, err := get("/v1/me", serveKey); err == nil {
		t.Error("a client without a certificate is served")
	}
	for token, want := range map[string]string{
		serveKey: `"admin":true`, sign("reader"): `"tenant":"acme","admin":false,"roles":["reader"]`, sign("boss"): `"admin":true,"roles":["admin"]`, sign("admin"): "it has no role",
	} {
		if _, body, err := get("/v1/me", token, pair); err != nil || !strings.Contains(body, want) {
			t.Errorf("%q: %s, %v", want, body, err)
		}
	}
	if status, body, err := get("/v1/tenants", sign("owner", "admin"), pair); err != nil || status != http.StatusForbidden {
		t.Errorf("a token that gives itself the role of admins: %d %s, %v", status, body, err)
	}
	if status, _, err := get("/v1/me", sign("reader")+"x", pair); err != nil || status != http.StatusUnauthorized {
		t.Errorf("a damaged token: %d, %v", status, err)
	}
}

// A server uses a new certificate when its files change, and keeps the old one when the new files
// cannot be used.
func TestCertificateReload(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key, _ := certificate(t, dir)
	var log bytes.Buffer
	c := &certificates{cert: cert, key: key, log: slog.New(slog.NewTextHandler(&log, nil))}
	if err := c.load(time.Now()); err != nil {
		t.Fatal(err)
	}
	now := func() string {
		t.Helper()
		c.reload(t.Context(), reloading{})
		pair, err := c.get(nil)
		if err != nil {
			t.Fatal(err)
		}
		return string(pair.Certificate[0])
	}
	first := now()

	certificate(t, dir)
	second := now()
	if second == first {
		t.Error("the old certificate is used")
	}
	writeFile(t, dir, "cert.pem", "nonsense")
	if now() != second || !strings.Contains(log.String(), "the old one stays") || len(c.problems()) != 1 {
		t.Errorf("a damaged certificate: %s", log.String())
	}
	certificateUntil(t, dir, time.Now().Add(-time.Minute))
	if now() != second {
		t.Error("an expired certificate is used")
	}
	certificate(t, dir)
	if now() == second || len(c.problems()) != 0 {
		t.Errorf("a certificate that is right again: %v", c.problems())
	}
}
