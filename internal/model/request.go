package model

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"
)

// Use says which request a request id was used for: the kind of the message, its name, and its
// content. The engine stores it with the remembered answer. With it, the engine notices when a
// client uses the same id for another request.
type Use struct {
	Kind   MessageKind `cbor:"1,keyasint"`
	Name   string      `cbor:"2,keyasint,omitempty"`
	OneWay bool        `cbor:"3,keyasint,omitempty"`
	// Sum is a digest of the content; empty when a payload in it cannot be compared, see
	// Payload.Comparable.
	Sum []byte `cbor:"4,keyasint,omitempty"`
}

// Use returns what the message uses its request id for. It returns nil for messages that need no
// comparison. For these messages, either no other request can have the id, or the id itself says
// what the message is about.
func (m *Message) Use() *Use {
	if m.RequestID == "" || m.Drawn || m.Kind == MessageReport {
		return nil
	}
	return &Use{Kind: m.Kind, Name: m.Name, OneWay: m.OneWay, Sum: m.sum()}
}

// useBytes is the length of a digest in a Use. The comparison guards against mistakes, not against
// attacks, so 128 bits are enough.
const useBytes = 16

// sum returns a digest of the content of the message, without its kind and its name. The digest is
// empty when a payload cannot be compared. The digest leaves out everything that may differ between
// two attempts of one request, or that is not part of the request: labels, policies, traces, the
// run that the message is restricted to.
func (m *Message) sum() []byte {
	s := summer{buf: make([]byte, 0, 128)}
	s.payload(&m.Input)
	s.text(m.Section)
	s.number(m.Epoch)
	if m.Kind == MessageMailbox {
		s.text(m.ID) // the id of the item
	}

	if f := m.Failure; f != nil {
		s.text("failure")
		s.text(f.Kind)
		s.text(f.Type)
		s.text(f.Message)
	}

	for i := range m.With {
		s.text(m.With[i].Name)
		s.payload(&m.With[i].Input)
	}

	// These messages are built from stored data. Asked has a digest of what the client asked for.
	if m.Past != nil || m.DeadTask != nil || m.Kind == MessageDelete {
		s = summer{buf: s.buf[:0]}
		s.text(string(m.Asked))
	}

	if s.blind {
		return nil
	}
	sum := sha256.Sum256(s.buf)
	return sum[:useBytes]
}

// summer collects the content for the digest, in a form that keeps the parts apart.
type summer struct {
	buf   []byte
	blind bool // a payload cannot be compared
}

func (s *summer) text(t string) {
	s.buf = binary.AppendUvarint(s.buf, uint64(len(t)))
	s.buf = append(s.buf, t...)
}

func (s *summer) number(n int64) { s.buf = binary.AppendVarint(s.buf, n) }

func (s *summer) payload(p *Payload) {
	if !p.Comparable() {
		s.blind = true
		return
	}
	s.buf = append(s.buf, p.Digest()...)
}

// Same reports whether two uses are the same request. A nil use is unknown, because an older build
// stored the answer. A nil use equals every other use.
func (u *Use) Same(other *Use) bool {
	if u == nil || other == nil {
		return true
	}
	// a one-way call is another request than a call that waits for its result
	if u.Kind != other.Kind || u.Name != other.Name || u.OneWay != other.OneWay {
		return false
	}
	return len(u.Sum) == 0 || len(other.Sum) == 0 || bytes.Equal(u.Sum, other.Sum)
}

// String names the use in errors.
func (u *Use) String() string {
	what := u.Kind.String()
	if u.OneWay {
		what = "one-way " + what
	}
	if u.Name != "" {
		what = fmt.Sprintf("%s %q", what, u.Name)
	}
	return what
}

// Request ids of updates and calls begin with these prefixes, which keep them apart from the ids of
// other requests to the same address. No client can send an id that begins with a control
// character.
const (
	UpdateIDs = "\x1fupdate "
	CallIDs   = "\x1fcall "
	// RefusedIDs begins the id under which the owner stores the refusal of an inbox row. Such a
	// refusal must not be stored under the request id. Either that id belongs to another request,
	// or the owner has no room now and the sender may repeat the request later.
	RefusedIDs = "\x1frefused "
)

// BareRequestID returns the request id as the client gave it.
func BareRequestID(id string) string {
	if strings.HasPrefix(id, "\x1f") {
		_, id, _ = strings.Cut(id, " ")
	}
	return id
}
