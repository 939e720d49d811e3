package feed

import (
	"maps"
	"slices"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Inlet gets the changes of another live node for the watchers of this node. One goroutine uses it:
// it calls Next, sends the demand to the other node, and passes the answer to Take. After an error
// it calls Lose.
type Inlet struct {
	hub    *Hub
	node   model.NodeID
	origin *origin

	id    uint64 // of the subscription; zero if there is none
	after int64  // number of the last portion
	// version is the version of the tenants that the other node has confirmed. asked is a version
	// that it has not confirmed yet; zero if there is none.
	version, asked int64
	tenants        map[string]bool // of the version asked

	interrupt func() // makes the caller send the next demand; nil if it must wait
	failed    bool   // the last attempt has failed
	refused   bool   // the other node runs an older build
	gone      bool   // the other node is no longer alive
}

// Node returns the other node.
func (in *Inlet) Node() model.NodeID { return in.node }

// Next returns the next demand to send. If there is nothing to send now, it returns a channel that
// is closed when the caller should call it again. ok is false if the inlet has ended. If the demand
// should be replaced by a newer one, the hub calls interrupt.
func (in *Inlet) Next(interrupt func()) (d Demand, idle <-chan struct{}, ok bool) {
	h := in.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	in.interrupt = nil
	switch {
	case in.gone || in.refused:
		return d, nil, false
	case len(h.topics) == 0 && in.id == 0:
		in.failed = false
		return d, h.changed, true
	case len(h.topics) == 0:
		d = Demand{Subscription: in.id, End: true}
		in.restart()
		return d, nil, true
	case in.id == 0:
		in.id = newTopicID()
	}

	if in.asked == 0 && in.version != h.version {
		in.asked, in.tenants = h.version, make(map[string]bool, len(h.topics))
		for t := range h.topics {
			in.tenants[t] = true
		}
		// The other node may drop the tenants that are no longer wanted as soon as it gets this.
		maps.DeleteFunc(in.origin.tenants, func(t string, _ bool) bool { return !in.tenants[t] })
	}

	d = Demand{Subscription: in.id, After: in.after, Version: in.version}
	if in.asked == 0 {
		in.interrupt = interrupt
		return d, nil, true
	}
	d.Version, d.Tenants = in.asked, slices.Sorted(maps.Keys(in.tenants))
	return d, nil, true
}

// Take takes the answer to the last demand. The caller must call Lose after an error.
func (in *Inlet) Take(p *Portion) error {
	h := in.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	in.interrupt = nil
	if in.gone || in.id == 0 {
		return nil
	}
	if p.Number != in.after+1 {
		return fault.New(fault.Invalid, "portion %d of the changes of node %s instead of %d", p.Number, in.node, in.after+1)
	}
	for i := range p.Pieces {
		if err := h.checkPiece(&p.Pieces[i]); err != nil {
			return err
		}
	}

	in.after, in.failed = p.Number, false
	for i := range p.Pieces {
		in.takePiece(&p.Pieces[i])
	}
	return nil
}

// checkPiece checks what another node has sent. The caller must hold the lock.
func (h *Hub) checkPiece(p *Piece) error {
	for _, s := range p.Shards {
		if int(s) >= len(h.origins.owner) {
			return fault.New(fault.Invalid, "there is no shard %d", s)
		}
	}
	return nil
}

// takePiece takes a piece. The caller must hold the lock.
func (in *Inlet) takePiece(p *Piece) {
	h := in.hub
	switch p.Kind {
	case PieceChanges:
		in.takeChanges(p.Changes)
		return

	case PieceRestart:
		tenants := in.origin.tenants
		missed := h.origins.reset(in.origin)
		in.origin.tenants = tenants
		h.origins.claim(in.origin, p.Shards)
		in.confirm(p.Version)
		h.miss(missed || in.origin.owned > 0)
	case PieceClaim:
		h.origins.claim(in.origin, p.Shards)
		h.miss(len(p.Shards) > 0)
	case PieceRelease:
		h.miss(h.origins.release(in.origin, p.Shards))
	case PieceTenants:
		in.confirm(p.Version)
		return
	case PieceLost:
		if t := h.topics[p.Tenant]; t != nil && in.origin.has(p.Tenant) {
			t.skip()
			t.ring()
		}
		return
	default: // a newer build may report something that this build does not know
		h.miss(true)
	}
	h.ringAll()
}

// confirm notes that the other node sends the changes of the tenants with a version. The watchers
// of the tenants that are new in this version have missed the earlier changes. confirm wakes only
// these watchers. The caller must hold the lock.
func (in *Inlet) confirm(version int64) {
	if version != in.asked {
		return
	}
	was := in.origin.tenants
	in.origin.tenants, in.version, in.asked, in.tenants = in.tenants, version, 0, nil
	for tenant := range in.origin.tenants {
		t := in.hub.topics[tenant]
		if t == nil || was[tenant] {
			continue
		}
		if in.origin.owned > 0 {
			t.skip()
		}
		t.ring()
	}
}

// takeChanges adds changes to the topics of their tenants. The caller must hold the lock.
func (in *Inlet) takeChanges(all []model.Change) {
	h := in.hub
	most := h.share()
	var last *topic // its watchers wake after its last change in a row
	for i := range all {
		c := &all[i]
		tenant := c.Address.Tenant
		t := h.topics[tenant]
		if t == nil || !in.origin.has(tenant) || !isForwarded(c.Class) || !h.origins.takes(in.origin, h.cfg.Shard(c.Address)) {
			continue
		}
		if last != nil && last != t {
			last.ring()
		}
		t.add(t.queues.complete(*c), h.cfg.Changes, most)
		last = t
	}
	if last != nil {
		last.ring()
	}
}

// Lose ends the subscription, because an attempt has failed or the connection was lost. The next
// demand begins another one.
func (in *Inlet) Lose() {
	h := in.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if in.failed && in.id != 0 && in.after == 0 && in.origin.owned == 0 {
		in.forget() // a further attempt has failed, which is no news for watchers
		return
	}
	in.failed = true
	in.restart()
}

// Refuse ends the inlet, because the other node does not know demands.
func (in *Inlet) Refuse() {
	h := in.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	in.failed, in.refused = true, true
	in.restart()
}

// restart forgets the subscription. The caller must hold the lock.
func (in *Inlet) restart() {
	in.forget()
	in.hub.miss(in.hub.origins.reset(in.origin))
	in.hub.ringAll()
}

func (in *Inlet) forget() {
	in.id, in.after, in.version, in.asked, in.tenants, in.interrupt = 0, 0, 0, 0, nil, nil
}
