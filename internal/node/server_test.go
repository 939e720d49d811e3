package node_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"math/big"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/node"
	"github.com/perdure/perdure/internal/remote"
)

const key = "a key that nobody guesses"

// serve starts a server on a store in memory.
func serve(t *testing.T, secure *tls.Config) *node.Server {
	t.Helper()
	auth, err := authn.NewAdminKey(key, model.DefaultTenant)
	if err != nil {
		t.Fatal(err)
	}
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "counted") })
	s, err := node.Serve(t.Context(), node.ServerConfig{Node: node.Config{URL: "memory:"}, Listen: "127.0.0.1:0", Authenticator: auth, TLS: secure, Metrics: metrics})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return s
}

// One port answers gRPC and HTTP, in plain text and with TLS. Callers need the key.
func TestServerAnswersBothOnOnePort(t *testing.T) {
	t.Parallel()
	cert, pool := selfSigned(t)
	for name, secure := range map[string]*tls.Config{"plain text": nil, "TLS": {Certificates: []tls.Certificate{cert}}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, secure)
			cfg := remote.Config{Addresses: []string{s.Addr().String()}, Token: key, PlainText: secure == nil, Patience: time.Minute}
			scheme, client := "http", &http.Client{}
			if secure != nil {
				trust := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
				cfg.TLS, scheme = trust, "https"
				client.Transport = &http.Transport{TLSClientConfig: trust}
			}
			defer client.CloseIdleConnections()

			b, err := remote.Dial(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			if b.Tenant() != model.DefaultTenant {
				t.Errorf("the tenant is %q", b.Tenant())
			}
			for path, want := range map[string]string{"/livez": "ok", "/readyz": "ok", "/metrics": "counted"} {
				if got := get(t, client, scheme+"://"+s.Addr().String()+path); !strings.HasPrefix(got, want) {
					t.Errorf("%s answers %q, want %q", path, got, want)
				}
			}

			cfg.Token = "another key, as long"
			if other, err := remote.Dial(t.Context(), cfg); !fault.Is(err, fault.Unauthenticated) {
				t.Errorf("a wrong key: %v, %v", other, err)
			}
		})
	}
}

// Connections that send nothing, or nonsense, do not keep other clients out.
func TestServerBesideSilentConnections(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	var d net.Dialer
	for i := range 200 {
		conn, err := d.DialContext(t.Context(), "tcp", s.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, _ = conn.Write([]byte([]string{
			"", "PRI * nonsense\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "GET /livez HTTP/1.1\r\nHost: a\r\nX-Slow: ", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x01\x01\x00\x00\x00\x00\x01\x83",
		}[i%5]))
	}

	client := &http.Client{}
	defer client.CloseIdleConnections()
	if got := get(t, client, "http://"+s.Addr().String()+"/livez"); !strings.HasPrefix(got, "ok") {
		t.Errorf("/livez answers %q", got)
	}
}

func get(t *testing.T, client *http.Client, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// selfSigned returns a certificate for 127.0.0.1, and the pool that trusts it.
func selfSigned(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}

	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}

	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}

	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}, pool
}
