package peerlink

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"math/big"
	"time"

	"github.com/perdure/perdure/internal/fault"
)

// newIdentity generates a key pair and a certificate for it, and returns the fingerprint of the
// certificate.
func newIdentity() (cert tls.Certificate, fingerprint string, err error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return cert, "", fault.New(fault.Internal, "draw a key pair: %w", err)
	}
	// The validity does not matter. Peers compare only the fingerprint, so a wrong clock does not
	// prevent connections.
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0), NotAfter: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		return cert, "", fault.New(fault.Internal, "create a certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}, fingerprintOf(der), nil
}

func fingerprintOf(der []byte) string {
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:])
}

// presented returns the fingerprint of the certificate that the other side has proven to own.
func presented(s *tls.ConnectionState) string {
	if len(s.PeerCertificates) == 0 {
		return ""
	}
	return fingerprintOf(s.PeerCertificates[0].Raw)
}

// serverTLS accepts any certificate. The accepting side compares it with the row of the node that
// the dialing side says it is.
func serverTLS(cert tls.Certificate) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAnyClientCert, SessionTicketsDisabled: true,
	}
}

// clientTLS accepts only the certificate with the fingerprint.
func clientTLS(cert tls.Certificate, fingerprint string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert},
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection compares the fingerprint instead
		VerifyConnection: func(s tls.ConnectionState) error {
			if got := presented(&s); got != fingerprint {
				return fault.New(fault.Denied, "another process listens there: its certificate has fingerprint %.16s, and the row of the node has %.16s", got, fingerprint)
			}
			return nil
		},
	}
}
