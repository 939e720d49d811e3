package cli

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure/internal/fault"
)

// tls reads the certificate, and refuses to listen in plain text for other machines. Both results
// are nil for plain text.
func (f *serveFlags) tls(log *slog.Logger) (*tls.Config, *certificates, error) {
	if f.cert == "" && f.certKey == "" {
		if f.clientCA != "" {
			return nil, nil, fault.New(fault.Invalid, "--tls-client-ca needs --tls-cert and --tls-key")
		}
		if !f.plain && !isLoopback(f.listen) {
			return nil, nil, fault.WithHint(fault.New(fault.Invalid, "%s can be reached from other machines, and there is no certificate", f.listen),
				"give --tls-cert and --tls-key, or allow it with --allow-plaintext")
		}
		return nil, nil, nil
	}
	if f.cert == "" || f.certKey == "" {
		return nil, nil, fault.New(fault.Invalid, "--tls-cert and --tls-key belong together: give both")
	}

	c := &certificates{cert: f.cert, key: f.certKey, clientCA: f.clientCA, log: log}
	if err := c.load(time.Now()); err != nil {
		return nil, nil, err
	}
	secure := &tls.Config{GetCertificate: c.get, MinVersion: tls.VersionTLS12}
	if f.clientCA != "" {
		// Leave ClientCAs empty. It would only tell clients which certificates to send, and it
		// could not change while the server runs.
		secure.ClientAuth, secure.VerifyConnection = tls.RequireAnyClientCert, c.checkClient
	}
	return secure, c, nil
}

// certificates are the certificate of the server, and the certificates that sign the certificates
// of clients. The server reads them again when their files change.
type certificates struct {
	trouble

	cert, key, clientCA string // clientCA is empty if clients need no certificate
	log                 *slog.Logger

	current atomic.Pointer[usedCertificate]
}

// usedCertificate has the certificates that new connections use.
type usedCertificate struct {
	pair    *tls.Certificate
	clients *x509.CertPool    // nil if clients need no certificate
	sum     [sha256.Size]byte // the digest of the files
}

// get returns the certificate for a connection.
func (c *certificates) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return c.current.Load().pair, nil
}

// checkClient refuses a client whose certificate is not signed by one of the current authorities.
// TLS calls it for resumed sessions too, so clients of a removed authority are refused.
func (c *certificates) checkClient(s tls.ConnectionState) error {
	if len(s.PeerCertificates) == 0 {
		return fault.New(fault.Unauthenticated, "the client has no certificate")
	}
	between := x509.NewCertPool()
	for _, one := range s.PeerCertificates[1:] {
		between.AddCert(one)
	}
	_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{
		Roots: c.current.Load().clients, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	return err
}

// reload reads the files and uses them if they have changed. If they cannot be used, the previous
// certificates stay in use.
func (c *certificates) reload(context.Context, reloading) {
	was := c.current.Load()
	if err := c.load(time.Now()); err != nil {
		if c.set("the certificate in " + c.cert + " cannot be used, so the former one stays: " + err.Error()) {
			c.log.Error("the certificate has changed and cannot be used; the old one stays", "error", err)
		}
		return
	}

	c.set("")
	if now := c.current.Load(); now != was {
		c.log.Info("the certificate was read again", "expires", now.pair.Leaf.NotAfter)
	}
}

// load reads the files and refuses certificates that cannot be used.
func (c *certificates) load(now time.Time) error {
	if err := checkPrivate("the private key", c.key); err != nil {
		return err
	}
	cert, err := os.ReadFile(c.cert)
	if err != nil {
		return fault.New(fault.Invalid, "read the certificate: %w", err)
	}
	key, err := os.ReadFile(c.key)
	if err != nil {
		return fault.New(fault.Invalid, "read the certificate: %w", err)
	}
	var clients []byte
	if c.clientCA != "" {
		if clients, err = os.ReadFile(c.clientCA); err != nil {
			return fault.New(fault.Invalid, "read the certificates of clients: %w", err)
		}
	}

	next := &usedCertificate{sum: sha256.Sum256(slices.Concat(cert, []byte{0}, key, []byte{0}, clients))}
	if is := c.current.Load(); is != nil && is.sum == next.sum {
		return nil
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return fault.New(fault.Invalid, "read the certificate: %w", err)
	}
	if now.After(pair.Leaf.NotAfter) {
		return fault.New(fault.Invalid, "the certificate %s has expired at %s", c.cert, pair.Leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	if next.pair = &pair; c.clientCA != "" {
		if next.clients = x509.NewCertPool(); !next.clients.AppendCertsFromPEM(clients) {
			return fault.New(fault.Invalid, "%s has no certificate", c.clientCA)
		}
	}
	c.current.Store(next)
	return nil
}

// checkPrivate refuses a file with a secret that all users of the machine can read.
func checkPrivate(what, file string) error {
	info, err := os.Stat(file)
	if err != nil {
		return nil // the code that reads the file reports what is wrong
	}
	if info.Mode().Perm()&fs.FileMode(0o004) != 0 {
		return fault.WithHint(fault.New(fault.Invalid, "all users of this machine can read %s in %s", what, file), "chmod 600 %s", file)
	}
	return nil
}
