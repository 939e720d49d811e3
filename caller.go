package perdure

import (
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
)

// Sender can send: start, signal, resolve, cancel, and call without waiting. Client, WorkflowCtx,
// EntityCtx and a transaction (App.InTx, InPgx) are Senders.
type Sender interface{ sender() outlet }

// Caller can also wait for an answer. Client and WorkflowCtx are Callers. A transaction is not a
// Caller, because nothing happens before it commits. An EntityCtx is not a Caller, because an
// entity that waits would block its other calls.
type Caller interface {
	Sender
	caller() inlet
}

// outlet is how a Sender sends.
type outlet interface {
	reader
	// start returns a Ref to the execution of the key. It names the run of the start if the start
	// has a request id and its answer is known.
	start(ref Ref, in model.Payload, o *startOptions, normalize replay.Normalize) (Ref, error)
	// send sends a signal, a settlement, a cancel request or a call without waiting for the reply.
	send(r api.Request, o *stepOptions) error
}

// inlet is how a Caller waits.
type inlet interface {
	reader
	run(ref Ref, in model.Payload, o *startOptions, normalize replay.Normalize) (model.Payload, error)
	// result waits for a result, and poll does not wait. A client follows the run started, if it is
	// not empty and ref names no run.
	result(ref Ref, started string) (model.Payload, error)
	poll(ref Ref, started string) (state, error)
	// update sends an update to the code of an execution and waits for the answer.
	update(r *api.UpdateRequest, o *stepOptions) (model.Payload, error)
	// invoke calls an entity or a service.
	invoke(r *api.CallRequest, o *stepOptions) (model.Payload, error)
	read(ref Ref, state string) (model.Payload, bool, error)
	// entity reads the state of an entity.
	entity(a model.Address) (model.Payload, bool, error)
	// ask sends an update to a schedule. The payload settings of the app do not apply to this
	// update.
	ask(r *api.UpdateRequest) (model.Payload, error)
}

// state is the current state of an execution.
type state struct {
	Status  string
	Reason  string
	Output  []byte // encoded as Format says
	Format  string `json:",omitempty"`
	Failure *model.Failure
}
