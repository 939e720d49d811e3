package engine

import (
	"context"
	"maps"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/engine/lending"
	"github.com/perdure/perdure/internal/engine/peer"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// Explain returns why the current run of an address does not move. It returns false if this node
// knows only what the store knows, or is not sure of its lease.
func (e *Engine) Explain(ctx context.Context, a model.Address) ([]model.Reason, bool) {
	reasons, ok := e.ExplainAll(ctx, []model.Address{a})[a]
	return reasons, ok
}

// ExplainAll is Explain for many addresses. It asks each lane once. The result does not contain
// addresses that this node cannot explain.
func (e *Engine) ExplainAll(ctx context.Context, all []model.Address) map[model.Address][]model.Reason {
	inc := e.current()
	if inc == nil {
		return nil
	}
	return inc.explain(ctx, all)
}

func (inc *incarnation) explain(ctx context.Context, all []model.Address) map[model.Address][]model.Reason {
	byLane := map[*laneShell][]model.Address{}
	for _, a := range all {
		if s := inc.lane(inc.shardOf(a)); s != nil {
			byLane[s] = append(byLane[s], a)
		}
	}

	found := map[model.Address][]model.Reason{}
	for s, addresses := range byLane {
		c := newCall()
		// Only the lane may use told until the call is finished.
		told := map[model.Address][]model.Reason{}
		err := s.inbox.put(ctx, op{token: c, do: func(l *lane.Lane, _ model.Time) {
			for _, a := range addresses {
				if reasons, ok := l.Explain(a); ok {
					told[a] = reasons
				}
			}
			c.finish(&lane.Answer{})
		}})
		if err != nil {
			continue
		}

		select {
		case <-c.done:
		case <-ctx.Done():
			return found
		}

		if c.answer.Err != nil || !inc.isServing() {
			continue
		}
		maps.Copy(found, told)
	}
	return found
}

// Self returns the id of this node and what its workers can run now. The store gets this
// information with the next renewal of the lease. ok is false while the node is not registered.
func (e *Engine) Self() (id model.NodeID, serves []store.Served, ok bool) {
	inc := e.current()
	if inc == nil {
		return id, nil, false
	}
	return inc.self.ID, e.servedByWorkers(), true
}

// View returns the nodes and the owners of the shards from memory. ok is false if only the store
// knows them, because other processes can open the store, or because this node is not sure of its
// lease or of a shard.
func (e *Engine) View() (v store.View, ok bool) {
	inc := e.current()
	if inc == nil || !inc.self.Sole || !inc.isServing() {
		return v, false
	}
	v.Now = e.clock.now()
	v.Members = []store.Member{{NodeInfo: inc.self, Epoch: inc.epoch, Expires: v.Now.Add(e.cfg.LeaseTTL), TTL: e.cfg.LeaseTTL, Serves: e.servedByWorkers()}}

	v.Owners = make([]store.ShardOwner, len(inc.owner))
	for s := range inc.owner {
		if inc.owner[s].Load() == 0 {
			return v, false
		}
		v.Owners[s] = store.ShardOwner{Shard: model.ShardID(s), Node: inc.self.ID, Epoch: inc.epoch}
	}
	return v, true
}

// Ask asks the node that owns the addresses why they do not move. The caller is a node that does
// not own them, or a guest.
func (e *Engine) Ask(ctx context.Context, owner model.NodeID, all []model.Address) (map[model.Address][]model.Reason, error) {
	return peer.Asker{Mail: e.cfg.Store, Hints: e.cfg.Hints}.Ask(ctx, owner, all)
}

// peerHandler receives the messages of other processes to an incarnation: nodes that lend and
// borrow workers, and processes that ask why runs do not move or what this node has counted.
type peerHandler struct {
	lending.PeerHandler

	inc *incarnation
}

// maxInquiries bounds how many inquiries the node answers at the same time. Further inquiries get
// no answer, and the asking process has to rely on the store.
const maxInquiries = 64

// HandleInquiry answers an inquiry of another process about runs of this node. It does not block.
func (h peerHandler) HandleInquiry(all []model.Address, answer func(map[model.Address][]model.Reason)) {
	if h.inc.inquiries.Add(1) > maxInquiries {
		h.inc.inquiries.Add(-1)
		return
	}
	begun := h.inc.eng.beside.run(func(ctx context.Context) {
		defer h.inc.inquiries.Add(-1)
		answer(h.inc.explain(ctx, all))
	})
	if !begun {
		h.inc.inquiries.Add(-1)
	}
}

// Queues returns the numbers of tasks of runs that this node owns, by queue.
func (h peerHandler) Queues() ([]peer.QueueCount, bool) {
	if !h.inc.isServing() {
		return nil, false
	}
	return h.inc.board.counts(), true
}
