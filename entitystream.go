package perdure

import (
	"context"
	"iter"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/entity"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/streamread"
)

// Stream is the typed name of a view of a stateful entity that answers with any number of items of
// type T.
type Stream[I, T any] struct{ to callTarget }

// NewStream defines a view that answers with a stream. Like a view, fn gets a copy of the committed
// state and changes nothing. fn runs at the same time as operations, locks and other streams of the
// key, and has no time limit.
//
// send delivers an item. It waits when fn is ahead of the caller by 128 items or 512 KiB. send
// fails, and ctx ends, when the caller stops reading, when the entity moves to another process, and
// when this process closes. After that, fn should return. For an item of more than 256 KiB, send
// returns ErrInvalid, and the stream continues.
func NewStream[S, I, T any](e *Entity[S], name string, fn func(ctx context.Context, state S, in I, send func(T) error) error) *Stream[I, T] {
	if e == nil {
		return &Stream[I, T]{orphan(entityKind, name, callerPosition())}
	}
	c := callDefinition{name: name, at: callerPosition(), view: true, types: callTypes[I, T](entityKind, e.name, name)}
	if fn != nil {
		c.handler = func(h *host) entity.Handler {
			return entity.Handler{View: true, Run: func(c *entity.Call, state any) (model.Payload, error) {
				return model.Payload{}, beginStream(EntityCtx{c, h}, func(ctx context.Context, in I, send func(T) error) error {
					return fn(ctx, *state.(*S), in, send)
				})
			}}
		}
	}
	e.add(c)
	return &Stream[I, T]{callTarget{kind: entityKind, of: e.name, name: name, owner: e, view: true, brief: true}}
}

// DeclareStream names a stream whose code is elsewhere.
func DeclareStream[I, T any](entity, name string) *Stream[I, T] {
	return &Stream[I, T]{callTarget{kind: entityKind, of: entity, name: name, view: true, brief: true}}
}

// beginStream starts the code of a stream.
func beginStream[I, T any](ctx EntityCtx, fn func(context.Context, I, func(T) error) error) error {
	c, h := ctx.c, ctx.h
	input, id, ok := c.Input.CutStream()
	if !ok {
		return fault.New(fault.Invalid, "%s of %s answers with a stream: read it with Stream.Read", c.Name, c.Entity)
	}
	in, err := decode[I](ctx, "input of stream", c.Name, input)
	if err != nil {
		return entity.Unmade(fault.New(fault.KindOf(err), "%s: %w", c.Entity, err))
	}

	name := c.Name
	return c.Stream(id, func(ctx context.Context, send func(model.Payload) error) error {
		return fn(ctx, in, func(item T) error {
			p, err := encodeItem(ctx, h, name, item)
			if err == nil {
				err = send(p)
			}
			return public(err)
		})
	})
}

// encodeItem returns an item in the stored form, although the item is only sent and never stored.
func encodeItem[T any](ctx context.Context, h *host, name string, item T) (model.Payload, error) {
	p, err := encode(h, "item of stream", name, item)
	if err != nil {
		return p, err
	}
	if n := p.Size(); n > model.MaxReplyItem {
		return p, fault.New(fault.Invalid, "item of stream %s has %d bytes, at most %d are allowed", name, n, model.MaxReplyItem)
	}
	if h.plain {
		return p, nil
	}
	return h.seal(ctx, brief, "item of stream", name, p)
}

// Read calls the view and yields its items as they arrive, in order, each once. The items are not
// stored. They reflect the state at the time of the call. The last pair may have an error: the
// error of the code, or an ErrUnavailable if the stream is lost. A stream is lost if the entity
// moves to another process or the process of the code ends. After such an error, the caller can
// read again from the beginning. A loop that ends without an error has received every item.
//
// When the caller leaves the loop or its context ends, the context of the code ends. A caller that
// takes ten minutes or more for one item gets an ErrTimeout.
func (s *Stream[I, T]) Read(c Client, key string, in I) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		r, err := callRequest(c.host(), &s.to, key, in)
		if err == nil {
			err = readStream(c, r, func(p model.Payload) (bool, error) {
				item, err := decode[T](c, "item of stream", s.to.name, p)
				return err == nil && yield(item, nil), err
			})
		}
		if err != nil {
			var none T
			yield(none, remote(err))
		}
	}
}

// readStream passes the items of a stream to take until the stream ends or take returns false or an
// error.
func readStream(c Client, r *api.CallRequest, take func(model.Payload) (bool, error)) error {
	h := c.host()
	if err := h.sealRequest(c.ctx, brief, r); err != nil {
		return err
	}
	s, err := streamread.Open(c.ctx, h.backend, *r)
	if err != nil {
		return err
	}
	defer s.Close(c.ctx)
	defer s.Keep(c.ctx)()

	for {
		items, more, err := s.Next(c.ctx)
		for i := range items {
			if more, err := take(items[i]); err != nil || !more {
				return err
			}
			s.Taken()
		}
		if err != nil || !more {
			return err
		}
	}
}
