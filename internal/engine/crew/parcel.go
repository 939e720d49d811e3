package crew

import (
	"github.com/fxamacker/cbor/v2"
	"google.golang.org/protobuf/proto"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// parcelKind says what a parcel contains.
type parcelKind byte

// The kinds of parcels that the host sends.
const (
	joinWorkflows parcelKind = 'j' // a worker of workflows joins: a pb.Join
	joinEntities  parcelKind = 'e' // a worker of entities joins: a pb.Join
	holds         parcelKind = 'h' // what a worker holds of lost owners: a pb.Join
	withdraw      parcelKind = 'w' // a worker takes nothing new
	leave         parcelKind = 'l' // a worker leaves
	fromWorker    parcelKind = 't' // a pb.WorkerItem
	granted       parcelKind = 'g' // slots for the owner
)

// The kinds of parcels that the owner sends.
const (
	toWorker  parcelKind = 'i' // a pb.ServerItem
	lose      parcelKind = 'm' // a run gets another owner: a pb.Evict
	withdrawn parcelKind = 'x' // the answer to withdraw: nothing new is on its way
	need      parcelKind = 'n' // the owner needs slots
	returned  parcelKind = 'r' // the owner gives slots back
)

// parcel is one message of one side to the other about one worker.
type parcel struct {
	Kind   parcelKind `cbor:"1,keyasint"`
	Role   uint64     `cbor:"2,keyasint"` // the worker, as the host numbers its joins
	N      int        `cbor:"3,keyasint,omitempty"`
	Tenant string     `cbor:"4,keyasint,omitempty"` // of a worker that joins
	Body   []byte     `cbor:"5,keyasint,omitempty"`
	More   bool       `cbor:"6,keyasint,omitempty"` // the rest of the body is in the next parcel
	// Died says that a worker that leaves has disappeared. Unseen are the hand-overs that cannot
	// have reached it, as the owner numbers them. Older builds ignore both.
	Died   bool     `cbor:"7,keyasint,omitempty"`
	Unseen []uint64 `cbor:"8,keyasint,omitempty"`
}

// parcelRoom is how many bytes a parcel needs in addition to its body.
const parcelRoom = 64

// side is the sender of a frame.
type side byte

const (
	bySender side = 'h' // the host
	byOwner  side = 'o'
	asking   side = 'a' // an owner that asks what the host holds; the frame has no parcels
)

// frame is one message between an owner and a host.
type frame struct {
	Session model.RunID `cbor:"1,keyasint,omitzero"`
	Side    side        `cbor:"2,keyasint"`
	Number  uint64      `cbor:"3,keyasint,omitempty"`
	Parcels []parcel    `cbor:"4,keyasint,omitempty"`
}

// Answers to a frame.
const (
	taken   = 'k'
	unknown = 'u' // the node does not have the session
)

var decoding = func() cbor.DecMode {
	m, err := cbor.DecOptions{IndefLength: cbor.IndefLengthForbidden, MaxNestedLevels: 16, UTF8: cbor.UTF8DecodeInvalid}.DecMode()
	if err != nil {
		panic(err)
	}
	return m
}()

// encode encodes a frame, which can always be encoded.
func (f *frame) encode() []byte {
	b, err := cbor.Marshal(f)
	if err != nil {
		panic(err)
	}
	return b
}

func decodeFrame(b []byte) (f frame, err error) {
	if err := decoding.Unmarshal(b, &f); err != nil {
		return f, fault.New(fault.Invalid, "a frame of another node: %w", err)
	}
	return f, nil
}

// pack encodes a message as the body of a parcel.
func pack(m proto.Message) []byte {
	b, err := proto.MarshalOptions{AllowPartial: true}.Marshal(m)
	if err != nil {
		panic(err) // cannot happen: a text in a message is valid UTF-8, or is a field of bytes
	}
	return b
}

// unpack reads the body of a parcel.
func unpack[M proto.Message](p *parcel, into M) (M, error) {
	if err := proto.Unmarshal(p.Body, into); err != nil {
		return into, fault.New(fault.Invalid, "a parcel of kind %q: %w", p.Kind, err)
	}
	return into, nil
}
