package perdure

import (
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
)

// Sender may send: start, signal, resolve, cancel, and call without waiting. Client, WorkflowCtx,
// EntityCtx and a transaction (App.InTx, InPgx) are Senders.
type Sender interface{ sender() outlet }

// Caller may also wait for an answer. Client and WorkflowCtx are Callers. A transaction is not,
// because nothing happens before it commits; an entity is not, because it would block its own
// calls.
type Caller interface {
	Sender
	caller() inlet
}

// outlet is how a Sender sends.
type outlet interface {
	reader
	start(ref Ref, in model.Payload, o *startOptions, normalize replay.Normalize) (Ref, error)
	// send sends a signal, a settlement, a cancel request or a call that is not waited for.
	send(r api.Request, o *stepOptions) error
}

// inlet is how a Caller waits.
type inlet interface {
	reader
	run(ref Ref, in model.Payload, o *startOptions, normalize replay.Normalize) (model.Payload, error)
	result(ref Ref) (model.Payload, error)
	poll(ref Ref) (state, error)
	// update asks the code of an execution for a change and waits for its answer.
	update(r *api.UpdateRequest, o *stepOptions) (model.Payload, error)
	// invoke calls an entity or a service.
	invoke(r *api.CallRequest, o *stepOptions) (model.Payload, error)
	read(ref Ref, state string) (model.Payload, bool, error)
	// entity reads the state of one.
	entity(a model.Address) (model.Payload, bool, error)
	// ask sends an update to a schedule. The engine stores it as it is, whatever the payload
	// settings are.
	ask(r *api.UpdateRequest) (model.Payload, error)
}

// state is how an execution stands.
type state struct {
	Status  string
	Reason  string
	Output  []byte // as Format says
	Format  string `json:",omitempty"`
	Failure *model.Failure
}
