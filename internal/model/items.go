package model

import "strings"

// A view of an entity may answer with a stream of items for one caller. The items pass through the
// memory of the owner of the entity. They are numbered from 1 and are never stored.

// Bounds of such a stream.
const (
	MaxReplyItem = 256 << 10 // bytes of one item
	// MaxItemsAhead and MaxBytesAhead bound the items that wait in the memory of the owner until
	// the caller has them. If no other item waits, one item may have more bytes.
	MaxItemsAhead = 64
	MaxBytesAhead = 256 << 10
)

// streamMark separates the encoding of the input of a call from the id of the stream that the
// caller reads.
const streamMark = ";stream="

// WithStream returns the input of a call whose answer is a stream with this id. The id is part of
// the encoding, so that builds that do not know streams refuse to read the input.
func (p Payload) WithStream(id string) Payload {
	p.Encoding += streamMark + id
	return p
}

// CutStream returns the input without the id of the stream. ok is false if it has none.
func (p Payload) CutStream() (input Payload, id string, ok bool) {
	p.Encoding, id, ok = strings.Cut(p.Encoding, streamMark)
	return p, id, ok && id != ""
}

// TakeVerb says what the caller of a stream asks for.
type TakeVerb uint8

// The verbs of a caller.
const (
	TakeOpen  TakeVerb = 1 // create the stream, before the call of the view
	TakeNext  TakeVerb = 2 // wait for items after After; the owner drops the items up to After
	TakeKeep  TakeVerb = 3 // say that the caller is still there, and has the items up to After
	TakeLeave TakeVerb = 4 // end the stream
)

// ItemsTake is a request of the caller of a stream.
type ItemsTake struct {
	Entity Address  `cbor:"1,keyasint"`
	ID     string   `cbor:"2,keyasint"` // id of the stream, which the caller draws at random
	Do     TakeVerb `cbor:"3,keyasint"`
	After  int64    `cbor:"4,keyasint,omitempty"`
}

// ItemsPage is the answer to TakeNext: items in order. The first one directly follows After. If no
// item has arrived for a while, the page has no items and Ended is not set, and the caller asks
// again. The answers to the other verbs are empty pages.
type ItemsPage struct {
	Items []Payload `cbor:"1,keyasint,omitempty"`
	// Ended says that no item follows. If it is set, Failure is the error of the code, or nil.
	Ended   bool     `cbor:"2,keyasint,omitempty"`
	Failure *Failure `cbor:"3,keyasint,omitempty"`
}

// ItemsSend is a request of the worker that runs the code of a stream. It sends items, or says that
// the worker is still there.
type ItemsSend struct {
	Entity Address   `cbor:"1,keyasint"`
	ID     string    `cbor:"2,keyasint"`
	First  int64     `cbor:"3,keyasint"` // number of the first item
	Items  []Payload `cbor:"4,keyasint,omitempty"`
	// Ended says that no item follows these. If it is set, Failure is the error of the code, or
	// nil.
	Ended   bool     `cbor:"5,keyasint,omitempty"`
	Failure *Failure `cbor:"6,keyasint,omitempty"`
}
