package remote_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/grpcapi"
	"github.com/perdure/perdure/internal/remote"
)

// certificate makes a certificate for a host, and the pool that trusts it.
func certificate(t *testing.T, ip string) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	form := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.ParseIP(ip)}, IsCA: true, BasicConstraintsValid: true,
	}
	raw, err := x509.CreateCertificate(rand.Reader, form, form, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}

	parsed, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: private}, pool
}

// listen serves on a listener until the test ends.
func (w *world) listen(network, address string, cfg grpcapi.Config) string {
	w.t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		w.t.Fatal(err)
	}
	s, done := grpcapi.New(cfg), make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	w.t.Cleanup(func() {
		s.Shutdown(w.t.Context())
		if err := <-done; err != nil {
			w.t.Error(err)
		}
	})
	return l.Addr().String()
}

// count connects and makes a call.
func (w *world) count(cfg remote.Config) error {
	cfg.Token = key
	b, err := remote.Dial(w.ctx, cfg)
	if err != nil {
		return err
	}
	_, err = b.Count(w.ctx, api.ListRequest{Tenant: tenant})
	if bad := b.Close(); err == nil {
		err = bad
	}
	return err
}

// A client reaches a server by TLS and by a Unix socket. If it has several addresses, it uses one
// that answers. It does not talk to a server that it cannot trust.
func TestConnections(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	own, pool := certificate(t, "127.0.0.1")
	_, strangers := certificate(t, "127.0.0.1")
	secure := w.config()
	secure.TLS = &tls.Config{Certificates: []tls.Certificate{own}}
	address := w.listen("tcp", "127.0.0.1:0", secure)
	socket := filepath.Join(t.TempDir(), "s")
	w.listen("unix", socket, w.config())

	w.must(w.count(remote.Config{Addresses: []string{address}, TLS: &tls.Config{RootCAs: pool}}))
	w.must(w.count(remote.Config{Addresses: []string{"127.0.0.1:1", address}, TLS: &tls.Config{RootCAs: pool}}))
	w.must(w.count(remote.Config{Addresses: []string{"unix:" + socket}, PlainText: true}))
	w.must(w.count(remote.Config{Addresses: []string{"127.0.0.1:1", "unix:" + socket}, PlainText: true}))

	for what, cfg := range map[string]remote.Config{
		"a certificate that nobody knows": {Addresses: []string{address}},
		"a certificate of others":         {Addresses: []string{address}, TLS: &tls.Config{RootCAs: strangers}},
		"another name":                    {Addresses: []string{address}, TLS: &tls.Config{RootCAs: pool, ServerName: "db.example"}},
		"plain text":                      {Addresses: []string{address}, PlainText: true},
	} {
		cfg.Patience = 200 * time.Millisecond // it keeps trying for this time
		if err := w.count(cfg); !fault.Is(err, fault.Unavailable) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
