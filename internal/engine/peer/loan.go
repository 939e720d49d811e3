package peer

import (
	"fmt"

	"github.com/fxamacker/cbor/v2"

	"github.com/perdure/perdure/internal/model"
)

// The messages of two nodes about slots that one lends to the other. The owner of tasks knocks. The
// other node polls, with all claims that its workers hold for runs of other nodes, and the answer
// brings claims. See package loan.
//
// The owner sends the workers of a node a stream of numbered entries. An answer contains all
// entries that the poll has not acknowledged, so a lost or repeated answer does no harm.

// WantedTasks is a kind of waiting tasks in a queue.
type WantedTasks struct {
	Tenant string `cbor:"1,keyasint"`
	Queue  string `cbor:"2,keyasint"`
	Kind   string `cbor:"3,keyasint"`
}

// Knock is sent by an owner that wants to be polled.
type Knock struct {
	// Wants are the kinds of tasks that wait there for a worker. Poll asks for a poll in any case:
	// there are entries to fetch, or the owner needs to know what the node has.
	Wants []WantedTasks `cbor:"1,keyasint,omitempty"`
	Poll  bool          `cbor:"2,keyasint,omitempty"`
}

// Poll is sent by a node to an owner.
type Poll struct {
	// Seq counts the polls of the node. An older poll that arrives later is ignored.
	Seq uint64 `cbor:"1,keyasint"`
	// Seen is the number of the last received entry of the stream.
	Stream model.RunID `cbor:"2,keyasint,omitzero"`
	Seen   uint64      `cbor:"3,keyasint,omitempty"`
	// Workers are all workers of the node.
	Workers []PollWorker `cbor:"4,keyasint,omitempty"`
}

// PollWorker is a worker of the polling node.
type PollWorker struct {
	Name    string   `cbor:"1,keyasint"`
	Tenants []string `cbor:"2,keyasint,omitempty"`
	Queues  []string `cbor:"3,keyasint,omitempty"`
	Kinds   []string `cbor:"4,keyasint,omitempty"`
	Version string   `cbor:"5,keyasint,omitempty"`
	// Lend is how many slots the owner may use, until it answers.
	Lend int `cbor:"6,keyasint,omitempty"`
	// Holds are all claims of runs that the node does not own, including the ones that were
	// reported and are not settled.
	Holds []Hold `cbor:"7,keyasint,omitempty"`
}

// Hold is a claim that a worker has.
type Hold struct {
	Ref model.ClaimRef `cbor:"1,keyasint"`
	// Beat says that the worker has sent a heartbeat for it since the last poll. Progress is what
	// the heartbeat carried, if that was new.
	Beat     bool           `cbor:"2,keyasint,omitempty"`
	Progress *model.Payload `cbor:"3,keyasint,omitempty"`
	// Report is how it ended. Each poll contains it until an entry settles it.
	Report *model.TaskReport `cbor:"4,keyasint,omitempty"`
}

// PollReply is the owner's answer to a poll.
type PollReply struct {
	Seq     uint64      `cbor:"1,keyasint"` // of the poll
	Stream  model.RunID `cbor:"2,keyasint"`
	Entries []Entry     `cbor:"3,keyasint,omitempty"`
	// Wants are the tasks that still wait there and that the workers could take. Coming is how many
	// more entries follow: the node should poll again at once.
	Wants  []WantedTasks `cbor:"4,keyasint,omitempty"`
	Coming int           `cbor:"5,keyasint,omitempty"`
	// Strange are claims with news in the poll whose runs the owner does not own either.
	Strange []model.ClaimRef `cbor:"6,keyasint,omitempty"`
}

// Entry is a message to a worker: a claim to execute, a claim to stop, or a claim whose report is
// settled.
type Entry struct {
	N        uint64          `cbor:"1,keyasint"`
	Worker   string          `cbor:"2,keyasint"`
	Claim    *model.Claim    `cbor:"3,keyasint,omitempty"`
	Stop     *model.ClaimRef `cbor:"4,keyasint,omitempty"`
	Canceled bool            `cbor:"5,keyasint,omitempty"` // of Stop: it may still report
	Settled  *model.ClaimRef `cbor:"6,keyasint,omitempty"`
	Refusal  *model.Failure  `cbor:"7,keyasint,omitempty"` // of Settled: why it does not count
}

// Size returns the approximate size of an entry in bytes.
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

// Encode encodes one of the messages above.
func Encode[T Knock | Poll | PollReply](v *T) []byte {
	b, err := cbor.Marshal(v)
	if err != nil {
		panic(err) // cannot happen: every value of these types can be encoded
	}
	return b
}

// Decode decodes one of the messages above.
func Decode[T Knock | Poll | PollReply](b []byte) (*T, error) {
	v := new(T)
	if err := decMode.Unmarshal(b, v); err != nil {
		return nil, fmt.Errorf("read a message of another node: %w", err)
	}
	return v, nil
}
