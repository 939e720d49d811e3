package engine

import (
	"context"
	"errors"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/peerlink"
)

// The streams of items with which views answer are in the memory of the owner of the entity,
// outside its lanes. So a caller that reads slowly takes no slot of a worker and delays no other
// call. The requests of callers and workers in other processes come over the connections between
// nodes. They never go through the store.

// TakeItems serves the caller of a stream, whichever node owns the entity.
func (e *Engine) TakeItems(ctx context.Context, r *model.ItemsTake) (model.ItemsPage, error) {
	return atOwner(ctx, e, &ask{Kind: askItems, Take: r}, func() (model.ItemsPage, error) { return e.replies.Take(ctx, r) })
}

// SendItems takes items from a worker, whichever node owns the entity, and returns the number of
// the last item that the owner has.
func (e *Engine) SendItems(ctx context.Context, r *model.ItemsSend) (int64, error) {
	return atOwner(ctx, e, &ask{Kind: askItems, Send: r}, func() (int64, error) { return e.replies.Send(ctx, r) })
}

// atOwner serves a request here if this node owns the entity. Otherwise it asks the owner.
func atOwner[T any](ctx context.Context, e *Engine, q *ask, here func() (T, error)) (out T, err error) {
	for {
		acquired := e.served.listen()
		if inc := e.current(); inc != nil && inc.lane(inc.shardOf(q.to())) != nil {
			return here()
		}
		if e.cfg.Store.Info().Shared {
			break
		}
		if !e.await(ctx, acquired) {
			return out, e.gaveUp(ctx, "stream of %s: the node does not serve its shards", q.to())
		}
	}

	a, _, err := e.askDirectly(ctx, q)
	switch {
	case errors.Is(err, lane.ErrNotOwner):
		return out, fault.New(fault.Unavailable, "stream of %s: this process has no connection to the owner of the entity, or the owner is changing; try again", q.to())
	case err != nil:
		return out, err
	}
	if err := linkDecoding.Unmarshal(a.Answer.Output.Data, &out); err != nil {
		return out, fault.New(fault.Internal, "stream of %s: read the answer of another node: %w", q.to(), err)
	}
	return out, nil
}

// serveItems answers a request of another node. It may wait, but only one request of each side of a
// stream waits at a time: when the next request arrives, the buffers answer the earlier one.
func (h *linkHandler) serveItems(r *peerlink.Request, q ask) {
	begun := h.inc.eng.beside.run(func(ctx context.Context) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		r.OnCancel(cancel)

		t := tell(h.inc.eng.answerItems(ctx, &q))
		r.Reply(t.size(), func(dst []byte) []byte { return append(dst, mustEncode(t)...) })
	})
	if !begun {
		reply(r, &told{Moved: true})
	}
}

// answerItems serves a request whose entity this node owns.
func (e *Engine) answerItems(ctx context.Context, q *ask) *lane.Answer {
	var out any
	var err error
	if q.Take != nil {
		out, err = e.replies.Take(ctx, q.Take)
	} else {
		out, err = e.replies.Send(ctx, q.Send)
	}
	if err != nil {
		return &lane.Answer{Err: err}
	}
	return &lane.Answer{Answer: model.Answer{Output: model.Payload{Data: mustEncode(out)}}}
}
