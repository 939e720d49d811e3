package model

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"strings"
)

// JSON is the encoding of a payload that names none.
const JSON = ""

// Payload is what users put in and get out: bytes, stored verbatim, and the name of their encoding.
type Payload struct {
	Data []byte `cbor:"1,keyasint,omitempty"`
	// Encoding says how the bytes were made, such as "json+zstd"; JSON when empty. A sum may follow
	// it (see WithSum).
	Encoding string `cbor:"2,keyasint,omitempty"`
}

// sumMark separates the encoding from the sum.
const sumMark = ";sum="

// WithSum is the payload with a sum that stands for its content where that is compared. The input
// of an execution has one when its bytes do not tell whether it equals another: they are
// compressed, encrypted or kept elsewhere. It is the Digest that the content would have as it is,
// or a keyed one where the content is hidden. It is part of the encoding because it has to go
// wherever the payload goes, and hardly any payload has one.
func (p Payload) WithSum(sum []byte) Payload {
	p.Encoding = p.Form() + sumMark + base64.RawURLEncoding.EncodeToString(sum)
	return p
}

// Form is the encoding without a sum.
func (p Payload) Form() string {
	form, _, _ := strings.Cut(p.Encoding, sumMark)
	return form
}

// sum is what WithSum has added; nil when nothing was.
func (p Payload) sum() []byte {
	_, text, ok := strings.Cut(p.Encoding, sumMark)
	if !ok {
		return nil
	}
	sum, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return []byte(text) // whatever it is, it is not equal to a sum
	}
	return sum
}

// Equal compares the contents.
func (p Payload) Equal(q Payload) bool {
	return p.Encoding == q.Encoding && bytes.Equal(p.Data, q.Data) || (p.sum() != nil || q.sum() != nil) && bytes.Equal(p.Digest(), q.Digest())
}

// Comparable reports whether the bytes, or a sum, tell whether two payloads are equal. A payload
// that was compressed, encrypted or offloaded without a sum differs from another one although both
// may hold the same value.
func (p Payload) Comparable() bool {
	return !strings.Contains(p.Encoding, "+") || strings.Contains(p.Encoding, sumMark)
}

// Digest is the sum, or the SHA-256 of encoding and bytes.
func (p Payload) Digest() []byte {
	if sum := p.sum(); sum != nil {
		return sum
	}
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
	Kind string `cbor:"1,keyasint,omitempty"` // a fault kind, or empty for an error of user code
	// Go type of the error, for people and for matching
	Type    string `cbor:"2,keyasint,omitempty"`
	Message string `cbor:"3,keyasint,omitempty"`
	Stack   string `cbor:"4,keyasint,omitempty"` // of a panic
	// Permanent errors are not retried.
	Permanent bool `cbor:"5,keyasint,omitempty"`
}

// Error is the message.
func (f *Failure) Error() string { return f.Message }

// FailureMisused is the Type of the refusal of a request whose id belongs to another request.
const FailureMisused = "perdure.MisusedRequestID"

// FailureBusy is the type of the refusal of an order that has to wait for the code of a run: the
// same request may succeed later.
const FailureBusy = "perdure.Busy"

// Kinds of Failure that the engine itself writes.
const (
	FailureCanceled   = "canceled"
	FailureTimeout    = "timeout"
	FailurePanic      = "panic"
	FailureNotFound   = "not_found"
	FailureConflict   = "conflict"
	FailureInvalid    = "invalid"
	FailureTerminated = "terminated"
	// the run gave way to one that begins anew from an earlier position
	FailureReset   = "reset"
	FailureDropped = "dropped" // an operator dropped the call
)
