package sorter

import (
	"encoding/json"

	"github.com/perdure/perdure/internal/fault"
)

// MaxReceivers is the largest number of receivers that [Numbers] can count for.
const MaxReceivers = 100_000

// Numbers gives numbers to the messages of a sender, separately for each receiver. It uses no
// clock. A sender that can store its Numbers should store it together with the messages. A sender
// that cannot do so must use a greater epoch whenever it starts, such as the time of its start.
// Names of receivers are compared byte by byte.
type Numbers struct {
	Sender string           `json:"sender"`
	Epoch  int64            `json:"epoch,omitempty"`
	Last   map[string]int64 `json:"last,omitempty"` // the last number, by receiver
}

// Next returns the next message to a receiver. It fails only when there are too many receivers.
func (n *Numbers) Next(receiver string, body json.RawMessage) (Message, error) {
	if _, known := n.Last[receiver]; !known && len(n.Last) >= MaxReceivers {
		return Message{}, fault.New(fault.Exhausted, "sender %q counts for %d receivers, which is the limit: begin a new epoch", n.Sender, len(n.Last))
	}
	if n.Last == nil {
		n.Last = map[string]int64{}
	}
	n.Last[receiver]++
	return Message{Sender: n.Sender, Epoch: n.Epoch, Number: n.Last[receiver], Body: body}, nil
}
