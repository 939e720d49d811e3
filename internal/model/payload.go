package model

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"strings"
)

// JSON is the encoding of a payload that names no encoding.
const JSON = ""

// Payload is the input or output of user code: bytes, stored verbatim, and the name of their
// encoding.
type Payload struct {
	Data []byte `cbor:"1,keyasint,omitempty"`
	// Encoding says how the bytes were encoded, such as "json+zstd"; JSON when empty. A sum may
	// follow it (see WithSum).
	Encoding string `cbor:"2,keyasint,omitempty"`
}

// sumMark separates the encoding from the sum.
const sumMark = ";sum="

// WithSum returns the payload with a sum that represents its content in comparisons. The input of
// an execution has a sum if its bytes are compressed, encrypted or stored elsewhere, because
// comparing such bytes does not show whether two inputs are equal. The sum is the Digest of the
// plain content, or a keyed digest where the content is hidden. It is stored as part of the
// encoding, so that every copy of the payload has it. It has no field of its own, because few
// payloads have a sum.
func (p Payload) WithSum(sum []byte) Payload {
	p.Encoding = p.Form() + sumMark + base64.RawURLEncoding.EncodeToString(sum)
	return p
}

// Form returns the encoding without a sum and without the version of a state.
func (p Payload) Form() string {
	form, _, _ := strings.Cut(p.Bare().Encoding, sumMark)
	return form
}

// sum returns the sum that WithSum has added; nil if there is none.
func (p Payload) sum() []byte {
	_, text, ok := strings.Cut(p.Encoding, sumMark)
	if !ok {
		return nil
	}
	sum, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return []byte(text) // not a valid sum, so it differs from every sum
	}
	return sum
}

// Equal compares the contents.
func (p Payload) Equal(q Payload) bool {
	return p.Encoding == q.Encoding && bytes.Equal(p.Data, q.Data) || (p.sum() != nil || q.sum() != nil) && bytes.Equal(p.Digest(), q.Digest())
}

// Comparable reports whether the bytes or the sum of the payload show whether it equals another
// one. A payload that was compressed, encrypted or offloaded without a sum may differ from another
// one although both hold the same value.
func (p Payload) Comparable() bool {
	return !strings.Contains(p.Encoding, "+") || strings.Contains(p.Encoding, sumMark)
}

// Digest returns the sum, or the SHA-256 of encoding and bytes.
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

// Size returns the number of bytes that count against limits.
func (p Payload) Size() int { return len(p.Data) + len(p.Encoding) }

// Failure is an error that came from another process or from a history. The errors that it wrapped
// are lost.
type Failure struct {
	Kind string `cbor:"1,keyasint,omitempty"` // a fault kind, or empty for an error of user code
	// Type is the Go type of the error, for operators and for matching.
	Type    string `cbor:"2,keyasint,omitempty"`
	Message string `cbor:"3,keyasint,omitempty"`
	Stack   string `cbor:"4,keyasint,omitempty"` // stack of a panic
	// Permanent says that the error must not be retried.
	Permanent bool `cbor:"5,keyasint,omitempty"`
}

// Error returns the message.
func (f *Failure) Error() string { return f.Message }

// FailureMisused is the Type of the refusal of a request whose id belongs to another request.
const FailureMisused = "perdure.MisusedRequestID"

// FailureBusy is the Type of the refusal of an order that cannot take effect while the code of a
// run works. The same request may succeed later.
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
	// the run was replaced by one that begins again from an earlier position
	FailureReset   = "reset"
	FailureDropped = "dropped" // an operator dropped the call
	// an operator interrupted the call
	FailureInterrupted = "interrupted"
)
