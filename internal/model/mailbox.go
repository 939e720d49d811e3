package model

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
)

// Operations on a mailbox: the Name of a MessageMailbox. An execution has a mailbox too: the
// signals that its code has not taken.
const (
	MailboxList = "list"
	MailboxShow = "show" // one item with its input
	MailboxSkip = "skip" // move one item behind the others
	MailboxDrop = "drop" // remove one item; its caller gets a failure
	// remove the oldest signals of a name, at most MailboxDropped; the message's ID is the name
	MailboxDropNamed = "drop-named"
)

// MailboxDropped is how many signals one MailboxDropNamed removes at most.
const MailboxDropped = 500

// MailboxListed is the maximum number of items in a list.
const MailboxListed = 1000

// Call is an item of a mailbox as an operator sees it.
type Call struct {
	ID        string  `json:"id"`
	Position  int     `json:"position"` // from 1
	Kind      string  `json:"kind"`     // call or lock
	Operation string  `json:"operation,omitempty"`
	At        Time    `json:"at"`
	Bytes     int     `json:"bytes"`
	From      Link    `json:"from,omitzero"`
	RequestID string  `json:"request_id,omitempty"` // of a client
	OneWay    bool    `json:"one_way,omitempty"`
	Stored    bool    `json:"stored,omitempty"`
	Running   bool    `json:"running,omitempty"`
	Input     Payload `json:"input,omitzero"` // of MailboxShow
}

// Calls is a mailbox as an operator sees it.
type Calls struct {
	Calls []Call `json:"calls"`
	Total int    `json:"total"`
}

// ItemID returns the id of an item of a mailbox. The position alone is not enough: after the
// mailbox was empty, another item may get it.
func ItemID(seq int64, at Time, m *Message) string {
	h := fnv.New64a()
	// it never fails
	_, _ = fmt.Fprintf(h, "%d %d %q %q %v %q", at, m.Kind, m.Name, m.RequestID, m.From, m.Section)

	return fmt.Sprintf("%d-%012x", seq, h.Sum64()>>16)
}

// CallOf describes an item of a mailbox, without its input.
func CallOf(position int, seq int64, at Time, m *Message) Call {
	return Call{
		ID: ItemID(seq, at, m), Position: position, Kind: m.Kind.String(), Operation: m.Name, At: at, Bytes: m.Input.Size(), From: m.From,
		RequestID: clientID(m), OneWay: m.OneWay, Stored: seq != 0,
	}
}

// SignalID returns the id of a signal that the code of a run has not taken. It changes with the
// run, because another run may have another signal at the position.
func SignalID(run RunID, e *Event) string {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%s %d %q %q", run, e.At, e.Name, e.RequestID) // it never fails

	return fmt.Sprintf("%d-%012x", e.Seq, h.Sum64()>>16)
}

// SignalOf describes a signal that the code of a run has not taken, without its input.
func SignalOf(position int, run RunID, e *Event) Call {
	return Call{
		ID: SignalID(run, e), Position: position, Kind: MessageSignal.String(), Operation: e.Name, At: e.At, Bytes: e.Input.Size(),
		RequestID: BareRequestID(e.RequestID), Stored: true,
	}
}

// clientID returns the request id as the client gave it; empty when the engine generated it.
func clientID(m *Message) string {
	if bare := BareRequestID(m.RequestID); bare != m.RequestID {
		return bare
	}

	return ""
}

// Encode returns the mailbox as the output of an answer.
func (c *Calls) Encode() Payload {
	data, err := json.Marshal(c)
	if err != nil {
		panic(err) // it has only texts, numbers and bytes
	}

	return Payload{Data: data}
}

// DecodeCalls reads the output of an answer.
func DecodeCalls(p Payload) (c Calls, err error) {
	if err := json.Unmarshal(p.Data, &c); err != nil {
		return c, fmt.Errorf("read the answer of the owner of a mailbox: %w", err)
	}

	return c, nil
}
