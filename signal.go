package perdure

import (
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
)

// Signal is the typed name of a message to an execution.
type Signal[T any] struct{ name string }

// NewSignal names a signal.
func NewSignal[T any](name string) *Signal[T] { return &Signal[T]{name} }

// Send delivers v to the execution once. Signals of one sender arrive in order. Send returns
// ErrNotFound if there is no such execution and ErrConflict if the execution is closed. From a
// workflow, Send is a step. From a transaction or an entity, the signal is sent when the
// transaction or the operation commits.
func (s *Signal[T]) Send(from Sender, to Target, v T, opts ...CallOption) (err error) {
	defer publish(&err)
	out, o := from.sender(), callOptions(opts)
	r := &api.SignalRequest{Name: s.name, RequestID: o.requestID}
	if r.Target, err = addressee(out.host(), "signal", s.name, to); err != nil {
		return err
	}
	if r.Input, err = encode(out.host(), "signal", s.name, v); err != nil {
		return err
	}
	return out.send(r, o)
}

// Receive waits for the next signal of this name.
func (s *Signal[T]) Receive(ctx WorkflowCtx) (T, error) { return s.Next(ctx).Get(ctx) }

// TryReceive receives a signal if one has arrived. It does not wait. A value that does not fit T
// fails the execution with ErrWrongType. Receive would return that error instead.
func (s *Signal[T]) TryReceive(ctx WorkflowCtx) (v T, ok bool) {
	p, ok := ctx.x.TryReceive(s.name)
	if !ok {
		return v, false
	}
	return decodeSent[T](ctx, "signal", s.name, p), true
}

// Drain receives all signals that have arrived, in order. As with TryReceive, a value that does not
// fit T fails the execution.
func (s *Signal[T]) Drain(ctx WorkflowCtx) []T {
	var all []T
	for {
		v, ok := s.TryReceive(ctx)
		if !ok {
			return all
		}
		all = append(all, v)
	}
}

// Next returns the next signal as a future. Until the code calls Get on that future, Next returns
// the same future again. So no signal is lost if another future wins a Select.
func (s *Signal[T]) Next(ctx WorkflowCtx) *Future[T] {
	f := ctx.x.Next(s.name)
	if h, ok := f.Handle.(*Future[T]); ok {
		return h
	}
	h := payloadFuture[T]("signal", s.name, f)
	f.Handle = h
	return h
}

// With is an option of Start and Run that delivers the signal in the same commit as the start. If
// the execution is already open, it gets the signal too.
func (s *Signal[T]) With(v T) StartOption {
	return signalWith{name: s.name, encode: func(h *host) (model.Payload, error) { return encode(h, "signal", s.name, v) }}
}

type signalWith struct {
	name   string
	encode func(*host) (model.Payload, error)
	value  model.Payload // the result of encode
}

func (w signalWith) applyStart(o *startOptions) { o.with = append(o.with, w) }

// addressee checks the name of a message and the address of its target. It returns the execution
// that the message goes to.
func addressee(h *host, word, name string, to Target) (api.Target, error) {
	t, err := to.target().api(h)
	if err == nil {
		err = checkName(word, name)
	}
	return t, err
}
