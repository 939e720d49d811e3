package perdure

import (
	"github.com/perdure/perdure/internal/model"
)

// Signal is the typed name of a message to an execution.
type Signal[T any] struct{ name string }

// NewSignal names a signal.
func NewSignal[T any](name string) *Signal[T] { return &Signal[T]{name} }

// Send delivers v once, in order per sender.
func (s *Signal[T]) Send(from Sender, to Target, v T, opts ...CallOption) error {
	out := from.sender()
	m, err := message(out.host(), model.MessageSignal, "signal", s.name, to, v)
	if err != nil {
		return public(err)
	}
	o := callOptions(opts)
	m.RequestID = o.requestID
	return remote(out.send(m, o))
}

// Receive waits for the next.
func (s *Signal[T]) Receive(ctx WorkflowCtx) (T, error) { return s.Next(ctx).Get(ctx) }

// TryReceive takes one if it is there. A value that does not fit the type fails the execution (ErrWrongType); Receive returns that
// error instead.
func (s *Signal[T]) TryReceive(ctx WorkflowCtx) (v T, ok bool) {
	p, ok := ctx.x.TryReceive(s.name)
	if !ok {
		return v, false
	}
	return sent[T](ctx, "signal", s.name, p), true
}

// Drain takes all that are there, in order. It treats a value that does not fit the type as TryReceive does.
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

// Next is the pending receive; until its Get it is the same future, so a lost Select loses no signal.
func (s *Signal[T]) Next(ctx WorkflowCtx) *Future[T] {
	f := ctx.x.Next(s.name)
	if h, ok := f.Handle.(*Future[T]); ok {
		return h
	}
	h := payloadFuture[T]("signal", s.name, f)
	f.Handle = h
	return h
}

// With starts the execution, if need be, and delivers the signal in the same commit (signal-with-start).
func (s *Signal[T]) With(v T) StartOption {
	return signalWith{name: s.name, encode: func(h *host) (model.Payload, error) { return encode(h, "signal", s.name, v) }}
}

type signalWith struct {
	name   string
	encode func(*host) (model.Payload, error)
	value  model.Payload // once it is encoded
}

func (w signalWith) applyStart(o *startOptions) { o.with = append(o.with, w) }

// message is a message that carries a value.
func message[T any](h *host, kind model.MessageKind, word, name string, to Target, v T) (m model.Message, err error) {
	ref := to.target()
	m = model.Message{Kind: kind, To: ref.address(), Name: name}
	if m.ToRun, err = ref.run(); err != nil {
		return m, err
	}
	if err = checkName(word, name); err != nil {
		return m, err
	}
	m.Input, err = encode(h, word, name, v)
	return m, err
}
