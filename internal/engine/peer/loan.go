package peer

import (
	"fmt"

	"github.com/fxamacker/cbor/v2"

	"github.com/perdure/perdure/internal/model"
)

// Here are the messages between two nodes about slots that one lends to the other. The owner of
// tasks knocks. The other node polls the owner, and lists all claims that its workers hold for runs
// of other nodes. The answer to the poll brings claims. See package loan.
//
// The owner sends the workers of a node a stream of numbered entries. An answer contains all
// entries that the poll has not acknowledged, so a lost or repeated answer does no harm.

// WantedTasks is a kind of waiting tasks in a queue.
type WantedTasks struct {
	Tenant string `cbor:"1,keyasint"`
	Queue  string `cbor:"2,keyasint"`
	Kind   string `cbor:"3,keyasint"`
}

// Knock is what an owner sends to a node that should poll the owner.
type Knock struct {
	// Wants are the kinds of tasks that wait at the owner for a worker. Poll asks for a poll even
	// if the node has no free slots. The owner sets Poll if there are entries to fetch, or if the
	// owner needs to know which claims the node has.
	Wants []WantedTasks `cbor:"1,keyasint,omitempty"`
	Poll  bool          `cbor:"2,keyasint,omitempty"`
}

// Poll is what a node sends to an owner.
type Poll struct {
	// Seq counts the polls of the node. The owner ignores an older poll that arrives later.
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
	// Holds are all claims of the worker for runs that its node does not own, and all its claims
	// that the polled node has made. This includes reported claims whose reports are not settled.
	Holds []Hold `cbor:"7,keyasint,omitempty"`
}

// Hold is a claim that a worker has.
type Hold struct {
	Ref model.ClaimRef `cbor:"1,keyasint"`
	// Beat says that the worker has sent a heartbeat for the claim since the last poll. Progress is
	// the progress in the heartbeat, if it is new.
	Beat     bool           `cbor:"2,keyasint,omitempty"`
	Progress *model.Payload `cbor:"3,keyasint,omitempty"`
	// Report is how the claim ended. Each poll contains the report until an entry settles it.
	Report *model.TaskReport `cbor:"4,keyasint,omitempty"`
}

// PollReply is the owner's answer to a poll.
type PollReply struct {
	Seq     uint64      `cbor:"1,keyasint"` // of the poll
	Stream  model.RunID `cbor:"2,keyasint"`
	Entries []Entry     `cbor:"3,keyasint,omitempty"`
	// Wants are the tasks that still wait at the owner and that the workers could take. Coming is
	// how many more entries follow. If it is not 0, the node should poll again immediately.
	Wants  []WantedTasks `cbor:"4,keyasint,omitempty"`
	Coming int           `cbor:"5,keyasint,omitempty"`
	// Strange are claims for which the poll had news, and whose runs the polled node does not own.
	Strange []model.ClaimRef `cbor:"6,keyasint,omitempty"`
}

// Entry is a message to a worker: a claim to execute, a claim to stop, or a claim whose report is
// settled.
type Entry struct {
	N        uint64          `cbor:"1,keyasint"`
	Worker   string          `cbor:"2,keyasint"`
	Claim    *model.Claim    `cbor:"3,keyasint,omitempty"`
	Stop     *model.ClaimRef `cbor:"4,keyasint,omitempty"`
	Canceled bool            `cbor:"5,keyasint,omitempty"` // of Stop: the task is cancelled, and the worker may still report
	Settled  *model.ClaimRef `cbor:"6,keyasint,omitempty"`
	Refusal  *model.Failure  `cbor:"7,keyasint,omitempty"` // of Settled: why the report was refused
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
