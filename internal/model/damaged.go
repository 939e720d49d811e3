package model

import (
	"bytes"
	"errors"
	"strings"

	"github.com/fxamacker/cbor/v2"
)

// ErrNewer tells that a stored value is of a kind that this build does not know: a newer build has
// written it, and a newer build can read it.
var ErrNewer = errors.New("a newer version of Perdure has written it")

// Damaged is the stored body of a message that this build cannot read, exactly as it stands. The
// store hands it out in place of the message, so that the owner can move it aside and go on with
// what stands behind it. A store that is given one writes Raw as the body.
type Damaged struct {
	Raw []byte
	// Why is the reason for people.
	Why string
	// Newer tells that the body is whole, but of a kind that only a newer build knows. It becomes
	// readable with an upgrade.
	Newer bool
}

// Damage describes a body that cannot be read because of err.
func Damage(raw []byte, err error) *Damaged {
	return &Damaged{Raw: bytes.Clone(raw), Why: err.Error(), Newer: errors.Is(err, ErrNewer)}
}

// Clone copies the body.
func (d *Damaged) Clone() *Damaged {
	if d == nil {
		return nil
	}
	c := *d
	c.Raw = bytes.Clone(d.Raw)
	return &c
}

// AppendBody appends the stored form of a message, or the body as it stands when it cannot be read.
func AppendBody(dst []byte, m *Message, d *Damaged) []byte {
	if d != nil {
		return append(dst, d.Raw...)
	}
	return AppendMessage(dst, m)
}

// WithoutRequestID is a body of a newer build without the request id, for a message that was stored
// and acknowledged under it before: whoever delivers it again would otherwise take it for a
// repetition.
func (d *Damaged) WithoutRequestID() *Damaged {
	const requestID = 10 // Message.RequestID
	var fields map[int]cbor.RawMessage
	if err := decMode.Unmarshal(d.Raw, &fields); err != nil {
		return d
	}
	delete(fields, requestID)
	raw, err := cbor.Marshal(fields)
	if err != nil {
		return d
	}
	return &Damaged{Raw: raw, Why: d.Why, Newer: d.Newer}
}

// SetAside is a message that keeps a damaged body for people to look at: the reason is its ID, as
// that of any dead letter, and the body is its input.
func SetAside(to Address, d *Damaged) Message {
	return Message{Kind: MessageNothing, To: to, ID: d.Why, Keep: true, Input: Payload{Data: d.Raw}}
}

// Unreadable is the reason why something cannot be continued whose rows cannot be read because of
// err.
func Unreadable(err error) Reason {
	code := WaitCorrupt
	if errors.Is(err, ErrNewer) {
		code = WaitNewer
	}
	// Which read has met the damage does not matter: the owner loads a run, and whoever looks loads
	// its events.
	text := err.Error()
	for _, read := range []string{"load run: ", "load events: ", "load execution: "} {
		text = strings.TrimPrefix(text, read)
	}
	return Reason{Code: code, Detail: text}
}
