package crew

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/wire"
)

// EntityHands implements Hands for a worker of entities and services. All hand-overs to the worker
// pass through it, including the hand-overs of the worker's own node. So it knows which calls still
// run although their owner has lost the entity, and starts the same calls only after they have
// ended; see handover.go.
type EntityHands struct {
	worker        CallWorker
	offer         model.EntityOffer
	hold, release func(generation uint64)
	room          func() SharedSlots
	report        func(ctx context.Context, r model.Operated) error
	returned      func(r model.Operated)

	mu   sync.Mutex
	last uint64
	// calls has the hand-overs that are not reported, by the worker's generation.
	calls map[uint64]*handOver
	// lost counts the hand-overs of lost entities whose calls still run, by entity.
	lost map[model.Address]int
	// waiting has the hand-overs that wait for the end of lost ones.
	waiting map[model.Address][]*handOver
	// kept has the entities whose calls a remote worker was still running when it joined this node,
	// with the time of the join. The worker itself compares these calls with the next hand-over.
	kept map[model.Address]time.Time
}

// NewEntityHands returns the Hands of a worker that has no work of other owners yet.
func NewEntityHands(w CallWorker, o model.EntityOffer, cfg HandsConfig) *EntityHands {
	h := &EntityHands{
		worker: w, offer: o, room: cfg.Slots, report: cfg.Report, returned: cfg.Return,
		hold:    func(g uint64) { cfg.Hold(model.RunID{}, g) },
		release: func(g uint64) { cfg.Release(model.RunID{}, g) },
		calls:   map[uint64]*handOver{}, lost: map[model.Address]int{}, waiting: map[model.Address][]*handOver{}, kept: map[model.Address]time.Time{},
	}
	for _, r := range o.Held {
		h.kept[r.Address] = time.Now()
	}
	return h
}

func (h *EntityHands) tenant() string { return h.offer.Tenant }
func (h *EntityHands) class() string {
	return fmt.Sprintf("e%q", []any{h.offer.Tenant, h.offer.Types})
}
func (h *EntityHands) slots() SharedSlots { return h.room() }

func (h *EntityHands) names() []string {
	all := make([]string, len(h.offer.Types))
	for i := range h.offer.Types {
		all[i] = h.offer.Types[i].Type
	}
	return all
}

// isServed reports whether an owner has the code itself, in any version: no version of the code is
// bound to an entity.
func (h *EntityHands) isServed(name string, s *codeOf) bool {
	return slices.ContainsFunc(s.offers, func(o store.Served) bool { return isCodeOf(&o, h.offer.Tenant, name) })
}

func (h *EntityHands) join(names []string) parcel {
	o := h.offer
	o.Types = nil
	for i := range h.offer.Types {
		for _, n := range names {
			if h.offer.Types[i].Type == n {
				o.Types = append(o.Types, h.offer.Types[i])
			}
		}
	}
	j := wire.EntityJoin(&o)
	j.HeldEntities = h.heldEntities()
	return parcel{Kind: joinEntities, Tenant: o.Tenant, Body: pack(j)}
}

func (h *EntityHands) heldEntities() (all []*pb.Address) {
	for _, r := range h.Left() {
		all = append(all, wire.Address(r.Address))
	}
	return all
}

func (h *EntityHands) held() (parcel, bool) {
	entities := h.heldEntities()
	return parcel{Kind: holds, Body: pack(&pb.Join{HeldEntities: entities})}, len(entities) > 0
}

func (h *EntityHands) heldNames() map[string]bool {
	names := map[string]bool{}
	for _, r := range h.Left() {
		names[r.Address.Type] = true
	}
	return names
}

// Left returns the entities whose calls still run although their owner has lost them.
func (h *EntityHands) Left() []model.HeldRun {
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(h.kept, func(_ model.Address, since time.Time) bool { return time.Since(since) > keepFor })
	all := make([]model.HeldRun, 0, len(h.lost)+len(h.kept))
	for a := range h.lost {
		all = append(all, model.HeldRun{Address: a})
	}
	for a := range h.kept {
		if h.lost[a] == 0 {
			all = append(all, model.HeldRun{Address: a})
		}
	}
	return all
}

// Operate takes calls that the worker's own node hands over.
func (h *EntityHands) Operate(work model.Operations) {
	h.accept(&handOver{entity: work.Entity, generation: work.Generation}, work)
}

func (h *EntityHands) take(o *outlet, item *pb.ServerItem) error {
	m := item.GetOperations()
	if m == nil {
		return nil // an item of a newer build
	}
	work := wire.ReadOperations(h.offer.Tenant, m)
	h.accept(&handOver{by: o, entity: work.Entity, generation: work.Generation}, work)
	return nil
}

// lose does nothing, because owners do not say of single calls that they have lost them.
func (h *EntityHands) lose(*outlet, *pb.Evict) error { return nil }

func (h *EntityHands) loseMoved(o *outlet, before time.Time, moved func(model.Address) bool) {
	h.giveBack(h.loseCalls(func(c *handOver) bool { return c.by == o && c.since.Before(before) && moved(c.entity) }))
}

// loseOwner handles the loss of an owner.
func (h *EntityHands) loseOwner(o *outlet) {
	h.loseCalls(func(c *handOver) bool { return c.by == o })
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.calls {
		if c.by == o {
			c.by = nil
		}
	}
}

// LoseOwn handles the end of an incarnation of the worker's own node, which has lost all entities.
func (h *EntityHands) LoseOwn() {
	for _, c := range h.loseCalls((*handOver).isOwn) {
		h.release(c.generation)
	}
}

func (h *EntityHands) isBusyFor(o *outlet) bool {
	if len(h.Left()) > 0 {
		return true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.calls {
		if c.by == o || c.next != nil && c.next.by == o {
			return true
		}
	}
	return len(h.waiting) > 0
}

// FinishCalls sends the results of calls to the owner of the entity. It does not send the results
// of calls that the worker's own node has handed over, because this node gets them anyway.
func (h *EntityHands) FinishCalls(ctx context.Context, r model.Operated) error {
	local := r.Generation
	if IsLent(local) {
		defer h.release(local)
	}
	c, to, begin := h.end(local)
	for _, work := range begin {
		h.operate(work)
	}

	// The next owner comes first: the last one may be out of reach. It only has to learn that the
	// worker has the slot free again.
	var err error
	for _, owner := range to {
		r.Generation = owner.generation
		if owner.by == nil {
			err = h.report(ctx, r)
		} else {
			err = owner.by.wait(ctx, &pb.WorkerItem{Item: &pb.WorkerItem_Operated{Operated: wire.Operated(&r)}})
		}
	}
	h.forget(local, c)
	return err
}
