package jwt_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/authn/jwt"
	"github.com/perdure/perdure/internal/fault"
)

const adminKey = "0123456789abcdef0123456789abcdef"

// issuer signs tokens. The key other is not in its key set.
type issuer struct {
	rsa, other *rsa.PrivateKey
	ec         *ecdsa.PrivateKey
	ed         ed25519.PrivateKey
}

// newIssuer returns the issuer of these tests. It is created once, because creating RSA keys takes
// long.
func newIssuer(t testing.TB) *issuer {
	t.Helper()
	i, err := makeIssuer()
	if err != nil {
		t.Fatal(err)
	}
	return i
}

var makeIssuer = sync.OnceValues(func() (*issuer, error) {
	one, err1 := rsa.GenerateKey(rand.Reader, 2048)
	other, err2 := rsa.GenerateKey(rand.Reader, 2048)
	ec, err3 := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	_, ed, err4 := ed25519.GenerateKey(rand.Reader)
	return &issuer{one, other, ec, ed}, errors.Join(err1, err2, err3, err4)
})

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// set is the key set of the issuer.
func (i *issuer) set(t testing.TB) []byte {
	t.Helper()
	point, err := i.ec.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	ed, _ := i.ed.Public().(ed25519.PublicKey)

	data, err := json.Marshal(map[string]any{"keys": []map[string]any{
		{"kty": "RSA", "kid": "r", "use": "sig", "alg": "RS256", "n": b64(i.rsa.N.Bytes()), "e": b64(big.NewInt(int64(i.rsa.E)).Bytes())},
		{"kty": "EC", "kid": "e", "crv": "P-256", "x": b64(point[1:33]), "y": b64(point[33:])},
		{"kty": "OKP", "kid": "d", "crv": "Ed25519", "x": b64(ed)},
		{"kty": "RSA", "kid": "enc", "use": "enc", "n": b64(i.other.N.Bytes()), "e": "AQAB"},
		{"kty": "oct", "kid": "o", "k": b64([]byte("secret"))},
	}})
	if err != nil {
		t.Fatal(err)
	}

	return data
}

type object = map[string]any

// sign signs any header and claims with an algorithm, which may differ from the one in the header.
func (i *issuer) sign(algorithm string, header, claims any) string {
	text := func(v any) string {
		if s, ok := v.(string); ok {
			return s
		}
		b, _ := json.Marshal(v)
		return string(b)
	}

	input := b64([]byte(text(header))) + "." + b64([]byte(text(claims)))
	sum := sha256.Sum256([]byte(input))
	var sig []byte

	switch algorithm {
	case "RS256":
		sig, _ = rsa.SignPKCS1v15(nil, i.rsa, crypto.SHA256, sum[:])
	case "other":
		sig, _ = rsa.SignPKCS1v15(nil, i.other, crypto.SHA256, sum[:])
	case "PS256":
		sig, _ = rsa.SignPSS(rand.Reader, i.rsa, crypto.SHA256, sum[:], nil)
	case "ES256":
		r, s, _ := ecdsa.Sign(rand.Reader, i.ec, sum[:])
		sig = append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
	case "EdDSA":
		sig = ed25519.Sign(i.ed, []byte(input))
	case "HS256 with the public key":
		der, _ := x509.MarshalPKIXPublicKey(&i.rsa.PublicKey)
		mac := hmac.New(sha256.New, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
		mac.Write([]byte(input))
		sig = mac.Sum(nil)
	case "HS256 with the modulus":
		mac := hmac.New(sha256.New, i.rsa.N.Bytes())
		mac.Write([]byte(input))
		sig = mac.Sum(nil)
	}

	return input + "." + b64(sig)
}

// claims returns the claims of a good token, with changes. A nil value removes a claim.
func claims(now time.Time, changes object) object {
	c := object{
		"iss": "https://id.example", "aud": "perdure", "sub": "ann", "tenant": "acme", "roles": []string{"client"}, "iat": now.Unix(), "exp": now.Add(time.Hour).Unix(),
	}
	for name, value := range changes {
		if value == nil {
			delete(c, name)
		} else {
			c[name] = value
		}
	}
	return c
}

func head(algorithm, kid string, changes object) object {
	h := object{"alg": algorithm, "kid": kid, "typ": "JWT"}
	maps.Copy(h, changes)
	return h
}

var config = jwt.Config{Issuer: "https://id.example", Audience: "perdure", AdminRole: "perdure-admin"}

// ring returns a keyring that accepts the tokens of an issuer.
func ring(t testing.TB, i *issuer, cfg jwt.Config) (*authn.Keyring, *jwt.Verifier) {
	t.Helper()
	keys, err := jwt.ParseKeys(i.set(t))
	if err != nil {
		t.Fatal(err)
	}
	v, err := jwt.New(cfg, keys, func() {})
	if err != nil {
		t.Fatal(err)
	}

	static, err := authn.NewAdminKey(adminKey, "default")
	if err != nil {
		t.Fatal(err)
	}
	r := authn.NewKeyring(static)
	r.UseTokens(v)

	return r, v
}

func present(token string, tenants ...string) map[string][]string {
	return map[string][]string{"authorization": {"Bearer " + token}, "perdure-tenant": tenants}
}

func TestGoodTokens(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	r, _ := ring(t, i, config)

	now := time.Now()
	for algorithm, kid := range map[string]string{"RS256": "r", "ES256": "e", "EdDSA": "d"} {
		for _, changes := range []object{{}, {"aud": []string{"other", "perdure"}}, {"nbf": now.Unix()}, {"iat": now.Add(20 * time.Second).Unix()}} {
			token := i.sign(algorithm, head(algorithm, kid, nil), claims(now, changes))
			for range 2 { // the second result comes from memory
				who, err := r.Authenticate(t.Context(), present(token))
				if err != nil || who.Tenant != "acme" || who.Name != "ann" || who.Admin || !slices.Equal(who.Roles, []string{"client"}) || who.Valid == nil || who.Valid.Err() != nil {
					t.Errorf("%s %v: %+v, %v", algorithm, changes, who, err)
				}
			}
			if _, err := r.Authenticate(t.Context(), present(token, "globex")); !fault.Is(err, fault.Denied) {
				t.Errorf("another tenant: %v", err)
			}
		}
	}

	boss := i.sign("ES256", head("ES256", "e", nil), claims(now, object{"roles": []string{"client", "perdure-admin"}, "tenant": nil}))
	if who, err := r.Authenticate(t.Context(), present(boss, "globex")); err != nil || !who.Admin || who.Tenant != "globex" || who.Roles != nil {
		t.Errorf("%+v, %v", who, err)
	}
	if who, err := r.Authenticate(t.Context(), present(adminKey)); err != nil || !who.Admin {
		t.Errorf("the static key: %+v, %v", who, err)
	}
}

// The keyring refuses all hostile tokens.
func TestHostileTokens(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	r, _ := ring(t, i, config)
	now := time.Now()
	good := claims(now, nil)
	signed := func(changes object) string { return i.sign("RS256", head("RS256", "r", nil), claims(now, changes)) }
	headed := func(changes object) string { return i.sign("RS256", head("RS256", "r", changes), good) }
	ok := signed(nil)
	parts := strings.Split(ok, ".")

	hostile := map[string]string{
		"none":                          i.sign("", head("none", "r", nil), good),
		"None":                          i.sign("", head("None", "r", nil), good),
		"NONE with a signature":         i.sign("RS256", head("NONE", "r", nil), good),
		"no algorithm":                  i.sign("RS256", object{"kid": "r"}, good),
		"an algorithm that is a number": i.sign("RS256", object{"alg": 1, "kid": "r"}, good),
		"HS256 with the public key":     i.sign("HS256 with the public key", head("HS256", "r", nil), good),
		"HS256 with the modulus":        i.sign("HS256 with the modulus", head("HS256", "r", nil), good),
		"HS256 of a key in the set":     i.sign("HS256 with the modulus", head("HS256", "o", nil), good),
		"PS256":                         i.sign("PS256", head("PS256", "r", nil), good),
		"RS256 that is PS256":           i.sign("PS256", head("RS256", "r", nil), good),
		"RS512":                         i.sign("RS256", head("RS512", "r", nil), good),
		"the algorithm of another key":  i.sign("ES256", head("ES256", "r", nil), good),
		"the key of another algorithm":  i.sign("RS256", head("RS256", "e", nil), good),
		"EdDSA with the key of ES256":   i.sign("EdDSA", head("EdDSA", "e", nil), good),
		"another signer":                i.sign("other", head("RS256", "r", nil), good),
		"the key for encryption":        i.sign("other", head("RS256", "enc", nil), good),
		"an unknown key":                i.sign("RS256", head("RS256", "unknown", nil), good),
		"no key":                        i.sign("RS256", object{"alg": "RS256"}, good),
		"an empty key":                  headed(object{"kid": ""}),
		"a key that is a number":        headed(object{"kid": 7}),
		"a key that is a path":          headed(object{"kid": "../../dev/null"}),
		"a key that is SQL":             headed(object{"kid": "r' or '1'='1"}),
		"a long key":                    headed(object{"kid": strings.Repeat("r", 65)}),
		"a key of its own":              i.sign("other", head("RS256", "x", object{"jwk": object{"kty": "RSA", "n": b64(i.other.N.Bytes()), "e": "AQAB"}}), good),
		"a URL of its own":              i.sign("other", head("RS256", "x", object{"jku": "https://evil.example/keys"}), good),
		"a certificate of its own":      i.sign("other", head("RS256", "x", object{"x5u": "https://evil.example/cert"}), good),
		"extensions":                    headed(object{"crit": []string{"b64"}, "b64": false}),
		"another type":                  headed(object{"typ": "dpop+jwt"}),
		"a type that is a number":       headed(object{"typ": 1}),
		"a header with a name twice":    i.sign("RS256", `{"alg":"RS256","kid":"r","kid":"r"}`, good),
		"a header that is a list":       i.sign("RS256", `["RS256"]`, good),
		"claims with a name twice":      i.sign("RS256", head("RS256", "r", nil), strings.Replace(mustJSON(good), `"tenant":"acme"`, `"tenant":"globex","tenant":"acme"`, 1)),
		"claims that are a list":        i.sign("RS256", head("RS256", "r", nil), `[]`),
		"claims with a tail":            i.sign("RS256", head("RS256", "r", nil), mustJSON(good)+`{}`),
		"no claims":                     i.sign("RS256", head("RS256", "r", nil), `{}`),
		"another issuer":                signed(object{"iss": "https://evil.example"}),
		"the issuer with a slash":       signed(object{"iss": "https://id.example/"}),
		"no issuer":                     signed(object{"iss": nil}),
		"issuers":                       signed(object{"iss": []string{"https://id.example"}}),
		"another audience":              signed(object{"aud": "billing"}),
		"other audiences":               signed(object{"aud": []string{"a", "b"}}),
		"no audience":                   signed(object{"aud": nil}),
		"an empty audience":             signed(object{"aud": []string{}}),
		"an audience that is a number":  signed(object{"aud": 7}),
		"expired":                       signed(object{"exp": now.Add(-time.Second).Unix(), "iat": now.Add(-time.Hour).Unix()}),
		"no end":                        signed(object{"exp": nil}),
		"an end that is text":           signed(object{"exp": "tomorrow"}),
		"an end that is negative":       signed(object{"exp": -1}),
		"an end far away":               signed(object{"exp": now.Add(25 * time.Hour).Unix()}),
		"an end beyond all time":        signed(object{"exp": 1e300}),
		"not valid yet":                 signed(object{"nbf": now.Add(time.Hour).Unix()}),
		"a begin that is text":          signed(object{"nbf": "now"}),
		"issued in the future":          signed(object{"iat": now.Add(time.Hour).Unix()}),
		"not issued":                    signed(object{"iat": nil}),
		"no caller":                     signed(object{"sub": nil}),
		"a caller that is a number":     signed(object{"sub": 1}),
		"a long caller":                 signed(object{"sub": strings.Repeat("x", 201)}),
		"no tenant":                     signed(object{"tenant": nil}),
		"tenants":                       signed(object{"tenant": []string{"acme"}}),
		"a tenant that is no name":      signed(object{"tenant": "../acme"}),
		"no roles":                      signed(object{"roles": nil}),
		"empty roles":                   signed(object{"roles": []string{}}),
		"a role that is text":           signed(object{"roles": "owner"}),
		"a role that is no name":        signed(object{"roles": []string{"a b"}}),
		"many roles":                    signed(object{"roles": slices.Repeat([]string{"a"}, 17)}),
		"another signature":             parts[0] + "." + parts[1] + "." + strings.Split(signed(object{"sub": "bob"}), ".")[2],
		"other claims":                  parts[0] + "." + b64([]byte(mustJSON(claims(now, object{"sub": "bob"})))) + "." + parts[2],
		"no signature":                  parts[0] + "." + parts[1] + ".",
		"only dots":                     "..",
		"padding":                       parts[0] + "=." + parts[1] + "." + parts[2],
		"a bit more of a signature":     ok + "A",
		"nonsense":                      "a.b.c",
		"a long token":                  signed(object{"more": strings.Repeat("x", 8<<10)}),
		"four parts":                    ok + ".x",
		"two parts":                     parts[0] + "." + parts[1],
		"spaces":                        " " + ok + " x",
	}
	if len(hostile) < 60 {
		t.Errorf("%d kinds", len(hostile))
	}

	for what, token := range hostile {
		who, err := r.Authenticate(t.Context(), present(token))
		if !fault.Is(err, fault.Unauthenticated) || who.Tenant != "" || who.Admin || who.Name != "" {
			t.Errorf("%s: %+v, %v", what, who, err)
		}
	}

	if _, err := r.Authenticate(t.Context(), present(ok)); err != nil {
		t.Errorf("the good token: %v", err)
	}
}

func mustJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// Calls that use a token end when the token expires, when its tenant is disabled, and when the key
// that has signed it is withdrawn.
func TestTokensEnd(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	synctest.Test(t, func(t *testing.T) {
		r, v := ring(t, i, config)
		enter := func(algorithm, kid, tenant string) (context.Context, string) {
			t.Helper()
			token := i.sign(algorithm, head(algorithm, kid, nil), claims(time.Now(), object{"tenant": tenant}))
			who, err := r.Authenticate(t.Context(), present(token))
			if err != nil {
				t.Fatal(err)
			}
			return who.Valid, token
		}
		ends := func(what string, valid context.Context, token string, want fault.Kind) {
			t.Helper()
			synctest.Wait()
			if fault.KindOf(context.Cause(valid)) != want {
				t.Errorf("%s: the credential ended with %v", what, context.Cause(valid))
			}
			if _, err := r.Authenticate(t.Context(), present(token)); fault.KindOf(err) != want {
				t.Errorf("%s: %v", what, err)
			}
		}

		acme, acmeToken := enter("RS256", "r", "acme")
		globex, _ := enter("RS256", "r", "globex")
		other, otherToken := enter("EdDSA", "d", "globex")
		r.Set(nil, map[string]bool{"acme": true})
		ends("a disabled tenant", acme, acmeToken, fault.Denied)
		if globex.Err() != nil {
			t.Error("another tenant ended as well")
		}

		rest, err := jwt.ParseKeys([]byte(strings.Replace(string(i.set(t)), `"kid":"d"`, `"kid":"d2"`, 1)))
		if err != nil {
			t.Fatal(err)
		}
		v.Trust(rest)
		r.Withdraw(rest.Has)
		ends("a key that was withdrawn", other, otherToken, fault.Unauthenticated)
		if globex.Err() != nil {
			t.Error("the token of another key ended as well")
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if context.Cause(globex) == nil {
			t.Error("a credential outlives its token")
		}
	})
}

// Sets of keys that are weak or damaged are refused.
func TestKeySets(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	weak := b64(new(big.Int).Lsh(big.NewInt(1), 1023).Bytes())

	strong := b64(i.rsa.N.Bytes())
	for _, text := range []string{
		"", "nonsense", "[]", "{}", `{"keys":[]}`, `{"keys":[{"kty":"oct","kid":"a","k":"c2VjcmV0"}]}`,
		`{"keys":[{"kty":"RSA","kid":"a","n":"` + weak + `","e":"AQAB"}]}`, `{"keys":[{"kty":"RSA","kid":"a","n":"` + strong + `","e":"Ag"}]}`,
		`{"keys":[{"kty":"RSA","n":"` + strong + `","e":"AQAB"}]}`, `{"keys":[{"kty":"RSA","kid":"a b","n":"` + strong + `","e":"AQAB"}]}`,
		`{"keys":[{"kty":"RSA","kid":"a","alg":"HS256","n":"` + strong + `","e":"AQAB"}]}`, `{"keys":[{"kty":"RSA","kid":"a","use":"enc","n":"` + strong + `","e":"AQAB"}]}`,
		`{"keys":[{"kty":"EC","kid":"a","crv":"P-256","x":"` + b64(make([]byte, 32)) + `","y":"` + b64(make([]byte, 32)) + `"}]}`,
		`{"keys":[{"kty":"EC","kid":"a","crv":"P-256","x":"AA","y":"AA"}]}`, `{"keys":[{"kty":"OKP","kid":"a","crv":"Ed25519","x":"AA"}]}`,
		`{"keys":[{"kty":"RSA","kid":"a","n":"` + strong + `","e":"AQAB"},{"kty":"RSA","kid":"a","n":"` + strong + `","e":"AQAB"}]}`,
		strings.Repeat(" ", 1<<20+1),
	} {
		if _, err := jwt.ParseKeys([]byte(text)); !fault.Is(err, fault.Invalid) {
			t.Errorf("%.80s: %v", text, err)
		}
	}

	for _, cfg := range []jwt.Config{{Audience: "a"}, {Issuer: "i"}, {Issuer: "i", Audience: "a", Algorithms: []string{"none"}}, {Issuer: "i", Audience: "a", Algorithms: []string{"HS256"}}} {
		if _, err := jwt.New(cfg, nil, nil); err == nil {
			t.Errorf("%+v is accepted", cfg)
		}
	}

	for _, place := range []string{"", "http://id.example/keys", "ftp://id.example", "https://", "https://user:secret@id.example/keys"} {
		if _, err := jwt.NewSource(place); !fault.Is(err, fault.Invalid) {
			t.Errorf("%q: %v", place, err)
		}
	}
}

// Keys come from a file or a URL. A source that fails or redirects has no keys.
func TestSources(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	file := filepath.Join(t.TempDir(), "keys.json")
	if err := os.WriteFile(file, i.set(t), 0o600); err != nil {
		t.Fatal(err)
	}
	var fetched atomic.Int64

	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fetched.Add(1)
		switch r.URL.Path {
		case "/keys":
			_, _ = w.Write(i.set(t))
		case "/moved":
			http.Redirect(w, r, "/keys", http.StatusFound)
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()

	for place, want := range map[string]bool{file: true, server.URL + "/keys": true, server.URL + "/moved": false, server.URL + "/none": false, file + ".none": false} {
		s, err := jwt.NewSource(place)
		if err != nil {
			t.Fatal(err)
		}
		keys, err := s.Load(t.Context())
		if (err == nil) != want || want && !keys.Has("r") {
			t.Errorf("%s: %v", place, err)
		}
	}

	if fetched.Load() != 3 {
		t.Errorf("%d fetches", fetched.Load())
	}
}

// Tokens with unknown keys cause at most one read of the keys per minute.
func TestRefreshIsBounded(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	file := filepath.Join(t.TempDir(), "keys.json")
	if err := os.WriteFile(file, i.set(t), 0o600); err != nil {
		t.Fatal(err)
	}

	synctest.Test(t, func(t *testing.T) {
		s, err := jwt.NewSource(file)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		reads, ended := 0, make(chan struct{})

		go func() {
			defer close(ended)
			s.Run(ctx, func(keys *jwt.KeySet, err error) {
				if err != nil || !keys.Has("r") {
					t.Error(err)
				}
				reads++
			})
		}()

		for range 600 {
			s.Refresh()
			time.Sleep(time.Second)
		}

		synctest.Wait()
		if reads < 9 || reads > 10 {
			t.Errorf("%d reads in ten minutes", reads)
		}

		// A reload by an operator does not wait for the minute to pass.
		before := reads
		s.Reload()
		synctest.Wait()
		cancel()
		<-ended
		if reads != before+1 {
			t.Errorf("%d reads after a reload, want one", reads-before)
		}
	})
}

func BenchmarkVerify(b *testing.B) {
	i := newIssuer(b)
	r, _ := ring(b, i, config)
	token := i.sign("RS256", head("RS256", "r", nil), claims(time.Now(), nil))
	header := present(token)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Authenticate(b.Context(), header); err != nil {
			b.Fatal(err)
		}
	}
}
