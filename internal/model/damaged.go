package model

import (
	"bytes"
	"errors"
	"strings"

	"github.com/fxamacker/cbor/v2"
)

// ErrNewer says that a stored value has a kind that this build does not know, because a newer build
// wrote it.
var ErrNewer = errors.New("a newer version of Perdure has written it")

// Damaged has the unchanged stored body of a message that this build cannot read. The store
// returns Damaged in place of the message, so that the owner can set the body aside and continue
// with the next messages. A store writes Raw as the body of such a message.
type Damaged struct {
	Raw []byte
	// Why is the reason, for operators.
	Why string
	// Newer says that the body is intact, but of a kind that only a newer build knows. An upgrade
	// makes it readable.
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

// AppendBody appends the stored form of a message, or the unreadable body as it is.
func AppendBody(dst []byte, m *Message, d *Damaged) []byte {
	if d != nil {
		return append(dst, d.Raw...)
	}
	return AppendMessage(dst, m)
}

// WithoutRequestID removes the request id from a body of a newer build. The engine has stored and
// acknowledged the message under that id. If it delivered the message again with the id, the
// receiver would treat it as a repetition and drop it.
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

// SetAside returns a dead letter that keeps a damaged body for operators. Its ID is the reason, as
// in every dead letter, and its input is the body.
func SetAside(to Address, d *Damaged) Message {
	return Message{Kind: MessageNothing, To: to, ID: d.Why, Keep: true, Input: Payload{Data: d.Raw}}
}

// Unreadable returns the reason for an execution or entity whose rows cannot be read because of
// err.
func Unreadable(err error) Reason {
	code := WaitCorrupt
	if errors.Is(err, ErrNewer) {
		code = WaitNewer
	}
	// The reason must be the same whichever read found the damage. The owner finds the damage when
	// it loads the run, and a client when it loads the events of the run.
	text := err.Error()
	for _, read := range []string{"load run: ", "load events: ", "load execution: "} {
		text = strings.TrimPrefix(text, read)
	}
	return Reason{Code: code, Detail: text}
}
