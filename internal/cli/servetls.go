package cli

import (
	"crypto/tls"
	"crypto/x509"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/fault"
)

// certificateEvery is how often the server looks whether its certificate has changed.
const certificateEvery = 10 * time.Second

// tls reads the certificate, and refuses to listen in plain text for other machines.
func (f *serveFlags) tls(log *slog.Logger) (*tls.Config, error) {
	if f.cert == "" && f.certKey == "" {
		if f.clientCA != "" {
			return nil, fault.New(fault.Invalid, "--tls-client-ca needs --tls-cert and --tls-key")
		}
		if !f.plain && !isLoopback(f.listen) {
			return nil, fault.WithHint(fault.New(fault.Invalid, "%s can be reached from other machines, and there is no certificate", f.listen),
				"give --tls-cert and --tls-key, or allow it with --allow-plaintext")
		}
		return nil, nil
	}
	if f.cert == "" || f.certKey == "" {
		return nil, fault.New(fault.Invalid, "--tls-cert and --tls-key belong together: give both")
	}

	c := &certificates{cert: f.cert, key: f.certKey, log: log}
	if err := c.load(time.Now()); err != nil {
		return nil, err
	}
	secure := &tls.Config{GetCertificate: c.get, MinVersion: tls.VersionTLS12}
	if f.clientCA != "" {
		pem, err := os.ReadFile(f.clientCA)
		if err != nil {
			return nil, fault.New(fault.Invalid, "read the certificates of clients: %w", err)
		}
		secure.ClientCAs, secure.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
		if !secure.ClientCAs.AppendCertsFromPEM(pem) {
			return nil, fault.New(fault.Invalid, "%s has no certificate", f.clientCA)
		}
	}
	return secure, nil
}

// certificates is the certificate of the server, which it reads again when the files change.
type certificates struct {
	cert, key string
	log       *slog.Logger

	mu      sync.Mutex
	current *tls.Certificate
	changed [2]time.Time // of the files that were read last
	checked time.Time
}

// get returns the certificate for a connection. If new files cannot be read, the old certificate
// stays.
func (c *certificates) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if now.Sub(c.checked) < certificateEvery {
		return c.current, nil
	}
	c.checked = now
	if c.times() == c.changed {
		return c.current, nil
	}

	if err := c.load(now); err != nil {
		c.log.Error("the certificate has changed and cannot be used; the old one stays", "error", err)
	} else {
		c.log.Info("the certificate was read again", "expires", c.current.Leaf.NotAfter)
	}

	return c.current, nil
}

// load reads the certificate and refuses one that cannot be right.
func (c *certificates) load(now time.Time) error {
	changed := c.times()
	if err := checkPrivate("the private key", c.key); err != nil {
		return err
	}
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return fault.New(fault.Invalid, "read the certificate: %w", err)
	}
	if now.After(pair.Leaf.NotAfter) {
		return fault.New(fault.Invalid, "the certificate %s has expired at %s", c.cert, pair.Leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	c.current, c.changed = &pair, changed
	return nil
}

// times returns when the files were changed; zero for one that cannot be read.
func (c *certificates) times() (changed [2]time.Time) {
	for i, name := range []string{c.cert, c.key} {
		if info, err := os.Stat(name); err == nil {
			changed[i] = info.ModTime()
		}
	}
	return changed
}

// checkPrivate refuses a file with a secret that all users of the machine can read.
func checkPrivate(what, file string) error {
	info, err := os.Stat(file)
	if err != nil {
		return nil // reading it says what is wrong
	}
	if info.Mode().Perm()&fs.FileMode(0o004) != 0 {
		return fault.WithHint(fault.New(fault.Invalid, "all users of this machine can read %s in %s", what, file), "chmod 600 %s", file)
	}
	return nil
}
