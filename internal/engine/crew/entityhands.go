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

// EntityHands implements Hands for a worker of entities and services.
type EntityHands struct {
	worker        CallWorker
	offer         model.EntityOffer
	hold, release func(generation uint64)
	room          func() SharedSlots

	mu    sync.Mutex
	last  uint64
	calls map[uint64]*lentCalls // hand-overs that are not reported, by the worker's generation
	// running counts the hand-overs of lost owners that still run, by entity. Their results have no
	// effect.
	running map[model.Address]int
	// waiting has hand-overs of the next owner. They wait until the hand-overs of the lost owner
	// have ended.
	waiting map[model.Address][]lentCalls
	// kept has the entities whose calls a remote worker was still running when it joined this node,
	// with the time of the join. The worker itself compares these calls with the next hand-over.
	kept map[model.Address]time.Time
}

// lentCalls is a hand-over of calls by another node.
type lentCalls struct {
	by   *outlet // nil when the owner is gone
	work model.Operations
	// generation is the generation that the owner knows.
	generation uint64
}

// NewEntityHands returns the Hands of a worker that has no work of other owners yet.
func NewEntityHands(w CallWorker, o model.EntityOffer, cfg HandsConfig) *EntityHands {
	h := &EntityHands{
		worker: w, offer: o, room: cfg.Slots,
		hold:    func(g uint64) { cfg.Hold(model.RunID{}, g) },
		release: func(g uint64) { cfg.Release(model.RunID{}, g) },
		calls:   map[uint64]*lentCalls{}, running: map[model.Address]int{}, waiting: map[model.Address][]lentCalls{}, kept: map[model.Address]time.Time{},
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

// Regain forgets that the worker held an entity for another owner. The worker's own node calls it
// when it has handed over calls of the entity to the worker.
func (h *EntityHands) Regain(a model.Address) {
	h.mu.Lock()
	delete(h.kept, a)
	h.mu.Unlock()
}

// Left returns the entities of lost owners whose calls still run.
func (h *EntityHands) Left() []model.HeldRun {
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(h.kept, func(_ model.Address, since time.Time) bool { return time.Since(since) > keepFor })
	all := make([]model.HeldRun, 0, len(h.running)+len(h.kept))
	for a := range h.running {
		all = append(all, model.HeldRun{Address: a})
	}
	for a := range h.kept {
		if h.running[a] == 0 {
			all = append(all, model.HeldRun{Address: a})
		}
	}
	return all
}

func (h *EntityHands) take(o *outlet, item *pb.ServerItem) error {
	m := item.GetOperations()
	if m == nil {
		return nil // an item of a newer build
	}
	work := wire.ReadOperations(h.offer.Tenant, m)
	c := lentCalls{by: o, work: work, generation: work.Generation}

	h.mu.Lock()
	if h.running[work.Entity] > 0 {
		h.waiting[work.Entity] = append(h.waiting[work.Entity], c)
		h.mu.Unlock()
		return nil
	}
	h.mu.Unlock()
	h.begin(c)
	return nil
}

// begin gives calls to the worker.
func (h *EntityHands) begin(c lentCalls) {
	work := c.work
	c.work = model.Operations{Entity: work.Entity} // the rest is only for the worker
	h.mu.Lock()
	h.last++
	work.Generation = h.last | lent
	h.calls[work.Generation] = &c
	delete(h.kept, work.Entity)
	h.mu.Unlock()
	h.hold(work.Generation)
	h.worker.Operate(work)
}

// numbersFor returns the hand-overs of one owner, with the numbers that this owner uses.
func (h *EntityHands) numbersFor(o *outlet, generations []uint64) (numbers []uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, g := range generations {
		if c := h.calls[g]; c != nil && c.by == o {
			numbers = append(numbers, c.generation)
		}
	}
	return numbers
}

// lose and loseMoved do nothing: a call that runs when its entity moves continues. The next owner
// does not know that, so it may hand the call over again.
func (h *EntityHands) lose(*outlet, *pb.Evict) error { return nil }

func (h *EntityHands) loseMoved(*outlet, time.Time, func(model.Address) bool) {}

// loseOwner notes that the owner of running calls is gone. The calls continue, and their results
// have no effect.
func (h *EntityHands) loseOwner(o *outlet) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.calls {
		if c.by == o {
			c.by = nil
			h.running[c.work.Entity]++
		}
	}
	for a, all := range h.waiting {
		kept := all[:0:0]
		for _, c := range all {
			if c.by != o {
				kept = append(kept, c)
			}
		}
		h.waiting[a] = kept
		if len(kept) == 0 {
			delete(h.waiting, a)
		}
	}
}

func (h *EntityHands) isBusyFor(o *outlet) bool {
	if len(h.Left()) > 0 {
		return true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.calls {
		if c.by == o {
			return true
		}
	}
	return len(h.waiting) > 0
}

// FinishCalls sends the results of calls to the owner of the entity.
func (h *EntityHands) FinishCalls(ctx context.Context, r model.Operated) (err error) {
	local := r.Generation
	defer h.release(local)
	h.mu.Lock()
	c := h.calls[local]
	var by *outlet
	if c != nil {
		by = c.by
	}
	h.mu.Unlock()
	if c == nil {
		return nil
	}

	// The calls count as running until their results are on the way. Until then the worker must not
	// leave the owner (see retire).
	if by != nil {
		r.Generation = c.generation
		err = by.wait(ctx, &pb.WorkerItem{Item: &pb.WorkerItem_Operated{Operated: wire.Operated(&r)}})
	}
	for _, next := range h.finish(local, c) {
		h.begin(next)
	}
	return err
}

// finish notes that calls have ended. If they were the last calls of lost owners at their entity,
// it returns the hand-overs that have waited for them.
func (h *EntityHands) finish(generation uint64, c *lentCalls) (next []lentCalls) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.calls[generation] != c {
		return nil // the worker reports them a second time
	}
	delete(h.calls, generation)
	if c.by != nil {
		return nil
	}

	entity := c.work.Entity
	if h.running[entity]--; h.running[entity] <= 0 {
		delete(h.running, entity)
		next = h.waiting[entity]
		delete(h.waiting, entity)
	}
	return next
}
