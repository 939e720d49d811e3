package engine

import (
	"context"
	"errors"
	"time"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/peerlink"
	"github.com/perdure/perdure/internal/store"
)

// A node sends a request for a shard of another node over the connection between the two nodes. The
// owner treats the request like a request of its own process, and the answer comes back over the
// connection. The request goes through the store, with the same request id, if there is no
// connection, if the connection breaks, or if the other node no longer owns the shard.

// attempt says what is known about earlier attempts when a request goes through the store.
type attempt struct {
	taken bool // an owner may have applied the request
	// link is the id of the connection over which the request went, if no usable answer came back.
	// The owner may still have the request in its memory.
	link model.RunID
}

// mapPatience is how long a caller waits for a newer map of the shards.
const mapPatience = time.Second

// ownerOf returns the node that owned a shard at the last renewal, and its epoch. It returns zero
// if no other node owned the shard.
func (inc *incarnation) ownerOf(shard model.ShardID) (model.NodeID, int64) {
	owners := inc.shardMap.Load()
	if owners == nil || int(shard) >= len(*owners) || (*owners)[shard].Node == inc.self.ID {
		return model.NodeID{}, 0
	}
	o := &(*owners)[shard]
	return o.Node, o.Epoch
}

// readMap renews the lease, because a renewal brings the map of the shards, and waits for the
// renewal. It returns false if no renewal ends within mapPatience, or if ctx or the engine has
// ended.
func (inc *incarnation) readMap(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, mapPatience)
	defer cancel()
	renewed := inc.renewals.listen()
	inc.post(inc.member.RenewNow)
	return inc.eng.await(ctx, renewed)
}

// askDirectly asks the owner of a shard over a connection. If the request has to go through the
// store, it returns lane.ErrNotOwner, and what is known about the attempt. A node that has given up
// the shard says so and does not apply the request. In that case askDirectly asks the next owner,
// once.
func (e *Engine) askDirectly(ctx context.Context, q *ask) (lane.Answer, attempt, error) {
	for try := 0; ; try++ {
		inc := e.current()
		if inc == nil || inc.links == nil {
			return lane.Answer{}, attempt{}, lane.ErrNotOwner
		}
		to, epoch := inc.ownerOf(inc.shardOf(q.to()))
		if to.IsZero() {
			return lane.Answer{}, attempt{}, lane.ErrNotOwner
		}

		q.Epoch = epoch
		body, link, err := inc.links.Call(ctx, to, q.encode())
		switch {
		case errors.Is(err, peerlink.ErrUnsent):
			return lane.Answer{}, attempt{}, lane.ErrNotOwner
		case errors.Is(err, peerlink.ErrLost):
			return lane.Answer{}, attempt{taken: true, link: link}, lane.ErrNotOwner
		case err != nil:
			return lane.Answer{}, attempt{taken: !link.IsZero()}, fault.New(fault.KindOf(err), "%s: %w", q, err)
		}

		t, err := decodeTold(body)
		if err != nil {
			e.cfg.Log.Warn("cannot read the answer of another node; the request goes through the store", "node", to.String(), "error", err)
			return lane.Answer{}, attempt{taken: true, link: link}, lane.ErrNotOwner
		}
		if !t.Moved || t.Taken || t.Begun || try > 0 || !inc.readMap(ctx) {
			a, err := t.answer()
			return a, attempt{taken: t.Taken}, err
		}
	}
}

// sendDirectly is askDirectly for a message. tried says whether an owner may have applied the
// message in an earlier attempt. The returned attempt also covers the earlier one.
func (e *Engine) sendDirectly(ctx context.Context, what askKind, m *model.Message, fresh bool, tried attempt) (lane.Answer, attempt, error) {
	a, now, err := e.askDirectly(ctx, &ask{Kind: what, Fresh: fresh && !tried.taken, message: m})
	// The id was drawn for this call. The owner does not know that, so it has stored the answer.
	// The stored answer is useless now, unless there is a second copy of the request.
	if m.Drawn && err == nil && !tried.taken && !now.taken {
		e.clerk.acknowledge(store.RequestKey{Shard: e.layout.Shard(m.To), Address: m.To, ID: m.RequestID})
	}

	now.taken = now.taken || tried.taken
	return a, now, err
}
