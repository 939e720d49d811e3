package oracle

import (
	"fmt"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/scenario"
)

// Op is a request of a user: a message to an address, or a question about its end or state.
type Op struct {
	User    int // its index
	Index   int
	Message model.Message // Kind is 0 for await and read
	Read    bool
	Run     model.RunID // the run to await; zero means the end of the chain

	Tries   int
	Invoked int64
	Ended   int64
	Acked   bool
	Refused error // the error of a permanent refusal
	Unknown bool  // the outcome cannot be known
	Done    bool
	Floor   map[model.RunID]int64 // how many events earlier answers to queries included
	Misuses bool                  // the request id belongs to another request
	Shadow  *Op                   // the op that this one repeats with the same request id
	Copied  bool                  // another request has the same request id
	// Received says that a server has learned, or will learn, that the user has the answer.
	Received bool
	// Since is the newest state of the entity that a caller had seen before this request.
	Since int
	Reads int // how often the user has read the history again

	What string // for a request about settings
}

func (o *Op) String() string {
	if o.What != "" {
		return fmt.Sprintf("op %d (%s)", o.Index, o.What)
	}
	kind := o.Message.Kind.String()

	if o.Message.Kind == 0 {
		kind = "await"
		if o.Read {
			kind = "read"
		}
	}

	text := fmt.Sprintf("op %d (%s %s", o.Index, kind, o.Message.To.Key)
	if o.Message.Kind == model.MessageSignal {
		text += fmt.Sprintf(" %x", scenario.SignalID(o.Message.Input))
	}
	if o.Message.RequestID != "" {
		text += " " + o.Message.RequestID
	}

	return text + ")"
}
