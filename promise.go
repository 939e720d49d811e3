package perdure

import (
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
)

// Promise is the typed name of a value that any code may set, but only once. Workflow code waits
// for the value.
type Promise[T any] struct{ name string }

// NewPromise names a promise.
func NewPromise[T any](name string) *Promise[T] { return &Promise[T]{name} }

// Await waits for the value.
func (p *Promise[T]) Await(ctx WorkflowCtx) (T, error) { return p.Future(ctx).Get(ctx) }

// Future returns the value as a future.
func (p *Promise[T]) Future(ctx WorkflowCtx) *Future[T] {
	f := ctx.x.Promise(p.name)
	if h, ok := f.Handle.(*Future[T]); ok {
		return h
	}
	h := payloadFuture[T]("promise", p.name, f)
	f.Handle = h
	return h
}

// Resolve sets the value. The first Resolve or Reject wins. Every later Resolve or Reject returns
// ErrConflict.
func (p *Promise[T]) Resolve(from Sender, to Target, v T) (err error) {
	defer publish(&err)
	value, err := encode(from.sender().host(), "promise", p.name, v)
	if err != nil {
		return err
	}
	return p.settle(from, to, value, nil)
}

// Reject sets an error that Await returns. The error must not be nil. The first Resolve or Reject
// wins. Every later Resolve or Reject returns ErrConflict.
func (p *Promise[T]) Reject(from Sender, to Target, err error) error {
	if err == nil {
		return remote(fault.New(fault.Invalid, "reject of promise %q: the error is nil; to settle it without an error, call Resolve", p.name))
	}
	return remote(p.settle(from, to, model.Payload{}, replay.FailureOf(err)))
}

func (p *Promise[T]) settle(from Sender, to Target, value model.Payload, failure *model.Failure) error {
	out := from.sender()
	t, err := addressee(out.host(), "promise", p.name, to)
	if err != nil {
		return err
	}
	return out.send(&api.SettleRequest{Target: t, Name: p.name, Value: value, Failure: failure}, &noOptions)
}
