package perdure

import (
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
)

// Update is the typed name of a request to the code of an execution. The engine stores the request.
// The code answers the request, and may validate it first.
type Update[I, O any] struct{ name string }

// NewUpdate names an update.
func NewUpdate[I, O any](name string) *Update[I, O] { return &Update[I, O]{name} }

// Handle makes fn the code that serves the update. Each call of the update runs fn in a coroutine
// of its own, and the coroutines start in the order of arrival. The validators run before fn and
// must not wait. If a validator returns an error, the caller gets that error. Updates that arrive
// earlier wait until the code calls Handle. A second Handle of the same name replaces the first.
//
// When the workflow function returns or continues as new, the engine refuses updates whose handlers
// still run. WaitUpdates waits for these handlers.
func (u *Update[I, O]) Handle(ctx WorkflowCtx, fn func(WorkflowCtx, I) (O, error), validate ...func(I) error) {
	if fn == nil {
		panic(fault.New(fault.Invalid, "the handler of update %s is nil", u.name))
	}
	h := ctx.host()

	ctx.x.HandleUpdate(u.name, replay.UpdateHandler{
		Seal: h.sealer("output of update", u.name),
		Serve: func(x replay.Ctx, p model.Payload) (model.Payload, error) {
			ctx := WorkflowCtx{x}
			// If the input cannot be read, the sender of the update gets the error.
			in, err := decode[I](ctx, "input of update", u.name, p)
			for _, v := range validate {
				if err == nil {
					err = v(in)
				}
			}

			if err != nil {
				return model.Payload{}, err
			}
			out, err := fn(ctx, in)
			if err != nil {
				return model.Payload{}, err
			}

			return encodeFor(h, "output of update", u.name, out)
		},
	})
}

// Call sends the update and waits for its answer. Calls with the same RequestID are one update.
// From a workflow, the call is a step: the journal makes the call happen once, so the call accepts
// no RequestID.
func (u *Update[I, O]) Call(c Caller, to Target, in I, opts ...CallOption) (out O, err error) {
	defer publish(&err)
	from, o := c.caller(), callOptions(opts)
	r := &api.UpdateRequest{Name: u.name, RequestID: o.requestID}
	if r.Target, err = addressee(from.host(), "update", u.name, to); err != nil {
		return out, err
	}
	if r.Input, err = encode(from.host(), "update", u.name, in); err != nil {
		return out, err
	}

	p, err := from.update(r, o)
	if err != nil {
		return out, err
	}
	return decode[O](from, "output of update", u.name, p)
}
