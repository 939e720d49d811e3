package feed

import (
	"context"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// The feed of a cluster. A hub subscribes at the other live nodes for the tenants that are watched
// here (Inlet), and keeps the changes of this node for the nodes that have subscribed here
// (subscription).

// Claim notes that this node has acquired shards. The caller must call it before the node changes
// anything in the shards. All watchers get a gap notice, because the last owner may have made
// changes that the feed does not have.
func (h *Hub) Claim(shards []model.ShardID) {
	if len(shards) == 0 { // another node was faster
		return
	}
	h.mu.Lock()
	h.origins.claim(h.origins.self, shards)
	h.miss(true)
	h.ringAll()
	ready := h.report(Piece{Kind: PieceClaim, Shards: slices.Clone(shards)})
	h.mu.Unlock()
	wake(ready)
}

// Release notes that this node has given up shards, after its last change in them.
func (h *Hub) Release(shards []model.ShardID) {
	h.mu.Lock()
	h.miss(h.origins.release(h.origins.self, shards))
	h.ringAll()
	ready := h.report(Piece{Kind: PieceRelease, Shards: slices.Clone(shards)})
	h.mu.Unlock()
	wake(ready)
}

// Leave notes that the incarnation of the node has ended: it owns no shards, and all subscriptions
// have ended.
func (h *Hub) Leave() {
	h.SetPeers(nil)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.origins.reset(h.origins.self)
	h.ringAll()
}

// SetPeers sets the other live nodes that can be asked for changes.
func (h *Hub) SetPeers(nodes []model.NodeID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	live := make(map[model.NodeID]bool, len(nodes))
	changed := false
	for _, n := range nodes {
		live[n] = true
		if h.inlets[n] == nil {
			h.inlets[n] = &Inlet{hub: h, node: n, origin: h.origins.add()}
			changed = true
		}
	}

	for n, in := range h.inlets {
		if live[n] {
			continue
		}
		in.gone = true
		if in.interrupt != nil {
			in.interrupt()
		}
		in.restart()
		h.origins.remove(in.origin)
		delete(h.inlets, n)
		h.end(n)
		changed = true
	}
	if changed {
		h.changeWanted()
		h.ringAll() // calls of Settle wait for the new nodes too, and no longer for the lost ones
	}
}

// Following returns the inlets that need a goroutine, because a caller watches. The caller must
// call Following again when changed is closed. If again is not zero, it must also do so after that
// time.
func (h *Hub) Following() (inlets []*Inlet, again time.Duration, changed <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sweep(h.cfg.Now())
	if len(h.topics) > 0 {
		again = h.cfg.Linger / 4
		for _, in := range h.inlets {
			inlets = append(inlets, in)
		}
	}
	return inlets, again, h.changed
}

// changeTenants notes that the set of watched tenants has changed. It wakes no watcher, because the
// watchers of the other tenants are not affected. The caller must hold the lock.
func (h *Hub) changeTenants() {
	h.version++
	for _, in := range h.inlets {
		if in.interrupt != nil {
			in.interrupt()
			in.interrupt = nil
		}
	}
	h.changeWanted()
}

// changeWanted wakes the callers of Following and the inlets that are idle. The caller must hold
// the lock.
func (h *Hub) changeWanted() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// miss leaves a gap in all topics. The caller must hold the lock.
func (h *Hub) miss(missed bool) {
	if missed {
		for _, t := range h.topics {
			t.skip()
		}
	}
}

// ringAll wakes all watchers. The caller must hold the lock.
func (h *Hub) ringAll() {
	for _, t := range h.topics {
		t.ring()
	}
}

// isSettled reports whether each other live node either sends the changes of a tenant, or could not
// be reached at the last attempt. If so, waiting longer does not make the feed more complete. The
// caller must hold the lock.
func (h *Hub) isSettled(tenant string) bool {
	for _, in := range h.inlets {
		if !in.failed && !in.origin.has(tenant) {
			return false
		}
	}
	return true
}

// Settle waits until the other live nodes send their changes, so that the first page says that the
// feed is complete. It does not wait for a node that could not be reached at the last attempt, and
// it waits at most for the given time.
func (w *Watcher) Settle(ctx context.Context, most time.Duration) {
	late := time.NewTimer(most)
	defer late.Stop()
	for {
		w.hub.mu.RLock()
		settled, news := w.hub.isSettled(w.topic.tenant), w.topic.rung
		w.hub.mu.RUnlock()
		if settled {
			return
		}
		select {
		case <-news:
		case <-late.C:
			return
		case <-w.hub.closed:
			return
		case <-ctx.Done():
			return
		}
	}
}

// Subscribe takes a demand of another node. When there is a portion, the hub calls ready once, and
// the caller gets the portion from Cut. ready must not block. withdraw notes that the other node no
// longer waits.
func (h *Hub) Subscribe(node model.NodeID, d *Demand, ready func()) (withdraw func(), err error) {
	if len(d.Tenants) > MostTenants {
		return nil, fault.New(fault.Exhausted, "node %s asks for the changes of %d tenants, at most %d", node, len(d.Tenants), MostTenants)
	}
	s, w, err := h.subscribe(node, d, ready)
	if err != nil {
		return nil, err
	}
	if w == nil {
		ready()
		return func() {}, nil
	}
	return func() { h.withdraw(s, w) }, nil
}

// subscribe returns the subscription and the demand that waits. The demand is nil if there is a
// portion already.
func (h *Hub) subscribe(node model.NodeID, d *Demand, ready func()) (s *subscription, w *demander, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.cfg.Now()
	h.sweep(now)
	if h.inlets[node] == nil {
		return nil, nil, fault.New(fault.Unavailable, "node %s is not known yet", node)
	}

	s = h.subscriptions[node]
	switch {
	case s == nil || s.id != d.Subscription:
		if d.After > 0 {
			return nil, nil, errUnknown
		}
		s = &subscription{id: d.Subscription}
		s.take(d)
		s.restart(h.origins.self.claims)
		h.subscriptions[node] = s
		h.on.Store(true)
		h.listTenants()
	case s.take(d):
		s.push(Piece{Kind: PieceTenants, Version: s.version})
		h.listTenants()
	}

	s.heard, s.demander = now, nil
	if !s.hasNews(d.After) {
		s.demander = &demander{ready}
	}
	return s, s.demander, nil
}

// withdraw notes that a node no longer waits.
func (h *Hub) withdraw(s *subscription, w *demander) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.demander == w {
		s.demander, s.heard = nil, h.cfg.Now()
	}
}

// Cut returns the portion that another node has demanded.
func (h *Hub) Cut(node model.NodeID, subscription uint64, after int64) (Portion, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.subscriptions[node]
	if s == nil || s.id != subscription {
		return Portion{}, errUnknown
	}
	return s.cut(after)
}

// Unsubscribe ends the subscription of a node. An id of zero means any id, but then Unsubscribe
// leaves the subscription alone while the node waits for its changes.
func (h *Hub) Unsubscribe(node model.NodeID, id uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.subscriptions[node]; s != nil && (s.id == id || id == 0 && s.demander == nil) {
		h.end(node)
	}
}

// end removes the subscription of a node. The caller must hold the lock.
func (h *Hub) end(node model.NodeID) {
	if h.subscriptions[node] == nil {
		return
	}
	delete(h.subscriptions, node)
	h.listTenants()
	h.on.Store(len(h.topics)+len(h.subscriptions) > 0)
}

// listTenants lists the subscriptions by tenant. The caller must hold the lock.
func (h *Hub) listTenants() {
	clear(h.byTenant)
	for _, s := range h.subscriptions {
		for t := range s.tenants {
			h.byTenant[t] = append(h.byTenant[t], s)
		}
	}
}

// forward keeps changes of this node for the nodes that want them, and returns the nodes to wake.
// The caller must hold the lock.
func (h *Hub) forward(changes []model.Change) (ready []func()) {
	most, now := h.bounds(), h.cfg.Now()
	for i := range changes {
		c := &changes[i]
		if !isForwarded(c.Class) {
			continue
		}
		for _, s := range h.byTenant[c.Address.Tenant] {
			s.add(c, most, h.origins.self.claims)
			ready = s.wakeUp(ready, now)
		}
	}
	return ready
}

// report tells the nodes that have subscribed what has happened to shards, and returns the nodes to
// wake. The caller must hold the lock.
func (h *Hub) report(p Piece) (ready []func()) {
	now := h.cfg.Now()
	for _, s := range h.subscriptions {
		if s.push(p); !s.fits(h.bounds()) {
			s.restart(h.origins.self.claims)
		}
		ready = s.wakeUp(ready, now)
	}
	return ready
}

// bounds returns how much a subscription keeps. The caller must hold the lock.
func (h *Hub) bounds() bounds {
	return bounds{h.cfg.Changes, min(h.cfg.Bytes, h.cfg.Total/max(len(h.subscriptions), 1))}
}

// wakeUp adds the demand that waits for the subscription to a list.
func (s *subscription) wakeUp(ready []func(), now time.Duration) []func() {
	if s.demander != nil {
		ready = append(ready, s.demander.ready)
		s.demander, s.heard = nil, now // until now the other node has waited
	}
	return ready
}

// wake wakes nodes that wait for changes. The caller must not hold the lock.
func wake(ready []func()) {
	for _, do := range ready {
		do()
	}
}
