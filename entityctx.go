package perdure

import (
	"context"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/entity"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
)

// EntityCtx lets an operation or an RPC send messages, but never wait. The engine sends the
// messages with the commit of the call, and drops them if the call fails. A message that its target
// refuses becomes a dead letter (App.DeadLetters). Do not use an EntityCtx after the call has
// returned.
type EntityCtx struct {
	c *entity.Call
	h *host
}

func (ctx EntityCtx) sender() outlet { return ctx }

// Key returns the key of the entity or service that is called.
func (ctx EntityCtx) Key() string { return ctx.c.Entity.Key }

// Exists reports whether the entity had a state before this operation.
func (ctx EntityCtx) Exists() bool { return ctx.c.Exists }

// Delete removes the state if the operation succeeds. The next operation of the key gets the zero
// value. Delete does not release a lock of the entity.
func (ctx EntityCtx) Delete() { ctx.c.Delete() }

// Context returns the context of the call. It ends when the call has reached its time limit, when
// an operator interrupts the call (with the cause ErrInterrupted), and when the process shuts down
// and no longer waits for the call. Pass it to code that may take long. An operation must not wait
// for other durable code.
func (ctx EntityCtx) Context() context.Context { return ctx.c.Context() }

func (ctx EntityCtx) host() *host { return ctx.h }

func (ctx EntityCtx) open(kind, name string, p model.Payload) (model.Payload, error) {
	return ctx.h.open(ctx.c.Context(), patient, kind, name, p)
}

func (ctx EntityCtx) start(ref Ref, in model.Payload, o *startOptions, _ replay.Normalize) (Ref, error) {
	r, err := ctx.h.startRequest(ctx.c.Context(), patient, ref, in, o)
	if err != nil {
		return ref, err
	}
	return ref, ctx.put(&r)
}

func (ctx EntityCtx) send(r api.Request, _ *stepOptions) error {
	if err := ctx.h.sealRequest(ctx.c.Context(), patient, r); err != nil {
		return err
	}
	storeCall(r)
	return ctx.put(r)
}

// put turns a request into a message of the call. The engine sends the message with the commit of
// the call.
func (ctx EntityCtx) put(r api.Request) error {
	m, _, err := ctx.h.compose(r)
	if err != nil {
		return err
	}
	m.Keep = true
	return ctx.c.Send(m)
}

// storeCall makes the engine store a call that is sent with a commit or a transaction. If a client
// sent the same call, the engine might keep it in memory only.
func storeCall(r api.Request) {
	if call, ok := r.(*api.CallRequest); ok {
		call.Brief = false
	}
}

// compose turns a request of ordinary code into a message. It checks the request in the same way as
// a direct call.
func (h *host) compose(r api.Request) (model.Message, api.Mailer, error) {
	m, err := h.backend.Compose(r)
	return m, h.backend, err
}
