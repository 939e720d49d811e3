package oracle

import (
	"fmt"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/scenario"
)

// Op is a request of a user. A user sends a message to an address, awaits the end of a run, reads
// an execution, or changes a setting.
type Op struct {
	User    int // the index of the user
	Index   int
	Message model.Message // Kind is 0 for an await, a read and a change of a setting
	Read    bool
	Run     model.RunID // the run to await; zero means the end of the chain

	Tries   int
	Invoked int64
	Ended   int64
	Acked   bool
	Refused error // the refusal that ended this request
	Unknown bool  // the outcome cannot be known
	Done    bool
	// Floor is for a query. It says for each run how many events the code had seen when it answered
	// earlier queries. The answer to this query must not come from fewer events.
	Floor   map[model.RunID]int64
	Misuses bool // the request id belongs to another request
	Shadow  *Op  // the op that this one repeats with the same request id
	Copied  bool // another request has the same request id
	// Received says that the user sends a receipt for the answer. The receipt may get lost.
	Received bool
	// Since is for a view of an entity. It is the index of the newest state of the entity that a
	// caller had seen before this request.
	Since int
	Reads int // how often the user has read the history again to repeat a reset

	What string // describes a change of a setting; empty for other requests
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
