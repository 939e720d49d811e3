package model

import (
	"bytes"
	"crypto/sha256"
)

// JSON is the encoding of a payload that names none.
const JSON = ""

// Payload is what users put in and get out: bytes, stored verbatim, and the name of their encoding.
type Payload struct {
	Data     []byte `cbor:"1,keyasint,omitempty"`
	Encoding string `cbor:"2,keyasint,omitempty"` // JSON when empty
}

// Equal compares encoding and bytes.
func (p Payload) Equal(q Payload) bool {
	return p.Encoding == q.Encoding && bytes.Equal(p.Data, q.Data)
}

// Digest is the SHA-256 of encoding and bytes.
func (p Payload) Digest() []byte {
	h := sha256.New()
	h.Write([]byte(p.Encoding))
	h.Write([]byte{0})
	h.Write(p.Data)
	return h.Sum(nil)
}

// Size is the number of bytes that count against limits.
func (p Payload) Size() int { return len(p.Data) + len(p.Encoding) }

// Failure is an error that crossed a process or the journal. Causes do not survive.
type Failure struct {
	Kind    string `cbor:"1,keyasint,omitempty"` // a fault kind, or empty for an error of user code
	Type    string `cbor:"2,keyasint,omitempty"` // Go type of the error, for people and for matching
	Message string `cbor:"3,keyasint,omitempty"`
	Stack   string `cbor:"4,keyasint,omitempty"` // of a panic
	// Permanent errors are not retried.
	Permanent bool `cbor:"5,keyasint,omitempty"`
}

// Error is the message.
func (f *Failure) Error() string { return f.Message }

// Kinds of Failure that the engine itself writes.
const (
	FailureCanceled   = "canceled"
	FailureTimeout    = "timeout"
	FailurePanic      = "panic"
	FailureNotFound   = "not_found"
	FailureConflict   = "conflict"
	FailureInvalid    = "invalid"
	FailureTerminated = "terminated"
)
