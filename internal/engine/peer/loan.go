package peer

import (
	"fmt"

	"github.com/fxamacker/cbor/v2"

	"github.com/perdure/perdure/internal/model"
)

// What two nodes say to each other about the slots that one lends to the other. The owner of tasks
// knocks; the other one polls, with everything that its workers hold of runs which it does not own,
// and is answered with claims. See package lending.
//
// What the owner has to say to the workers of a node is a stream of numbered entries. An answer has
// all that the poll has not seen, so that losing one, or hearing it twice, is nothing.

// Want is a kind of tasks of a queue that waits.
type Want struct {
	Tenant string `cbor:"1,keyasint"`
	Queue  string `cbor:"2,keyasint"`
	Kind   string `cbor:"3,keyasint"`
}

// Knock is what an owner says when it would like to be polled.
type Knock struct {
	// Wants are tasks that wait there for a worker. Poll asks for a poll in any case: there are
	// entries, or the owner wants to know what the node has.
	Wants []Want `cbor:"1,keyasint,omitempty"`
	Poll  bool   `cbor:"2,keyasint,omitempty"`
}

// Poll is what a node tells an owner.
type Poll struct {
	// Seq counts the polls of the node; an older one that comes later is ignored.
	Seq uint64 `cbor:"1,keyasint"`
	// Seen is the last entry of the stream that was taken.
	Stream model.RunID `cbor:"2,keyasint,omitzero"`
	Seen   uint64      `cbor:"3,keyasint,omitempty"`
	// Workers are all that the node has.
	Workers []Worker `cbor:"4,keyasint,omitempty"`
}

// Worker is a worker of the node that polls.
type Worker struct {
	Name    string   `cbor:"1,keyasint"`
	Tenants []string `cbor:"2,keyasint,omitempty"`
	Queues  []string `cbor:"3,keyasint,omitempty"`
	Kinds   []string `cbor:"4,keyasint,omitempty"`
	Version string   `cbor:"5,keyasint,omitempty"`
	// Lend is how many slots the owner may use, until it answers.
	Lend int `cbor:"6,keyasint,omitempty"`
	// Holds are all claims of runs which the node does not own, also those that were reported and
	// are not settled.
	Holds []Hold `cbor:"7,keyasint,omitempty"`
}

// Hold is a claim that a worker has.
type Hold struct {
	Ref model.ClaimRef `cbor:"1,keyasint"`
	// Beat tells that the worker has beaten for it since the last poll; Progress is what it said
	// then, if that was news.
	Beat     bool           `cbor:"2,keyasint,omitempty"`
	Progress *model.Payload `cbor:"3,keyasint,omitempty"`
	// Report is how it ended. It comes with every poll until an entry settles it.
	Report *model.TaskReport `cbor:"4,keyasint,omitempty"`
}

// Answer is what the owner says to a poll.
type Answer struct {
	Seq     uint64      `cbor:"1,keyasint"` // of the poll
	Stream  model.RunID `cbor:"2,keyasint"`
	Entries []Entry     `cbor:"3,keyasint,omitempty"`
	// Wants are tasks that still wait there, and that the workers could take. Coming is how many
	// entries follow: the node is to poll again at once.
	Wants  []Want `cbor:"4,keyasint,omitempty"`
	Coming int    `cbor:"5,keyasint,omitempty"`
	// Strange are those of the claims of which the poll had news that are of runs which the owner
	// does not own either.
	Strange []model.ClaimRef `cbor:"6,keyasint,omitempty"`
}

// Entry is something for a worker: a claim to execute, one to stop, or one whose report is settled.
type Entry struct {
	N        uint64          `cbor:"1,keyasint"`
	Worker   string          `cbor:"2,keyasint"`
	Claim    *model.Claim    `cbor:"3,keyasint,omitempty"`
	Stop     *model.ClaimRef `cbor:"4,keyasint,omitempty"`
	Canceled bool            `cbor:"5,keyasint,omitempty"` // of Stop: it may still report
	Settled  *model.ClaimRef `cbor:"6,keyasint,omitempty"`
	Refusal  *model.Failure  `cbor:"7,keyasint,omitempty"` // of Settled: why it counts for nothing
}

// Size is about how many bytes an entry takes.
func (e *Entry) Size() int {
	if e.Claim == nil {
		return 256
	}
	return 512 + e.Claim.Input.Size() + e.Claim.Progress.Size()
}

var decMode = func() cbor.DecMode {
	// Texts of user code may be any bytes.
	m, err := cbor.DecOptions{IndefLength: cbor.IndefLengthForbidden, MaxNestedLevels: 16, UTF8: cbor.UTF8DecodeInvalid}.DecMode()
	if err != nil {
		panic(err)
	}
	return m
}()

// Encode is one of the values above as bytes.
func Encode[T Knock | Poll | Answer](v *T) []byte {
	b, err := cbor.Marshal(v)
	if err != nil {
		panic(err) // there is nothing in them that cannot be written
	}
	return b
}

// Decode reads one.
func Decode[T Knock | Poll | Answer](b []byte) (*T, error) {
	v := new(T)
	if err := decMode.Unmarshal(b, v); err != nil {
		return nil, fmt.Errorf("what another node said: %w", err)
	}
	return v, nil
}
