package model

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
)

// Operations on a mailbox: the Name of a MessageMailbox. An execution has a mailbox too: the
// signals that its code has not taken.
const (
	MailboxList = "list"
	MailboxShow = "show" // show one item with its input
	MailboxSkip = "skip" // move one item behind the others
	MailboxDrop = "drop" // remove one item; a waiting caller gets a failure
	// remove the oldest signals of a name, at most MailboxDropped; the message's ID is the name
	MailboxDropNamed = "drop-named"
	// replace the state of the entity by Input, if its version is the one that ID names
	MailboxEdit = "edit"
	// interrupt the running call ID, or all running calls when ID is empty
	MailboxInterrupt = "interrupt"
)

// MailboxDropped is how many signals one MailboxDropNamed removes at most.
const MailboxDropped = 500

// MailboxListed is the maximum number of items in one page of a list.
const MailboxListed = 1000

// Call is an item of a mailbox as an operator sees it.
type Call struct {
	ID        string  `json:"id"`
	Position  int     `json:"position"` // counts from 1
	Kind      string  `json:"kind"`     // call, lock or signal
	Operation string  `json:"operation,omitempty"`
	At        Time    `json:"at"`
	Bytes     int     `json:"bytes"`
	From      Link    `json:"from,omitzero"`
	RequestID string  `json:"request_id,omitempty"` // the request id, if a client sent it
	OneWay    bool    `json:"one_way,omitempty"`
	Stored    bool    `json:"stored,omitempty"`
	Running   bool    `json:"running,omitempty"`
	Input     Payload `json:"input,omitzero"` // only in the answer to MailboxShow
}

// Calls is a mailbox as an operator sees it.
type Calls struct {
	Calls []Call `json:"calls"`
	Total int    `json:"total"`
	// Cursor is where the next page begins; empty on the last page.
	Cursor string `json:"cursor,omitempty"`
}

// MailboxMark is the last call of a page of a mailbox. The next page begins after it, even if the
// call itself is gone by then.
type MailboxMark struct {
	Position int
	At       Time
	ID       string
}

// String returns the mark as a cursor.
func (k MailboxMark) String() string { return fmt.Sprintf("%d.%d.%s", k.Position, k.At, k.ID) }

// Seq returns the position of the call in the stored mailbox; 0 when it was only in memory.
func (k MailboxMark) Seq() int64 {
	seq, _, _ := strings.Cut(k.ID, "-")
	n, _ := strconv.ParseInt(seq, 10, 64) // ParseMailboxMark has checked it
	return n
}

// ParseMailboxMark reads a cursor. An empty one is the mark before the first call.
func ParseMailboxMark(cursor string) (k MailboxMark, ok bool) {
	if cursor == "" {
		return k, true
	}
	parts := strings.SplitN(cursor, ".", 3)
	if len(parts) != 3 {
		return k, false
	}

	position, err := strconv.Atoi(parts[0])
	at, err2 := strconv.ParseInt(parts[1], 10, 64)
	seq, _, found := strings.Cut(parts[2], "-")
	_, err3 := strconv.ParseInt(seq, 10, 64)

	return MailboxMark{position, Time(at), parts[2]}, err == nil && err2 == nil && err3 == nil && found && position >= 0
}

// Page keeps at most the given number of calls; 0 keeps all. If it leaves out calls, it sets the
// cursor to the place after the kept ones.
func (c *Calls) Page(limit int) {
	if limit <= 0 || limit >= len(c.Calls) {
		return
	}
	last := &c.Calls[limit-1]
	c.Calls, c.Cursor = c.Calls[:limit], MailboxMark{last.Position, last.At, last.ID}.String()
}

// ItemID returns the id of an item of a mailbox. The position alone is not enough: when the mailbox
// has become empty, a later item may get the same position.
func ItemID(seq int64, at Time, m *Message) string {
	h := fnv.New64a()
	// a write to a hash never fails
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

// SignalID returns the id of a signal that the code of a run has not taken. The run is part of the
// id, because another run may have another signal at the same position.
func SignalID(run RunID, e *Event) string {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%s %d %q %q", run, e.At, e.Name, e.RequestID) // a write to a hash never fails

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
		panic(err) // impossible: c has only texts, numbers and bytes
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
