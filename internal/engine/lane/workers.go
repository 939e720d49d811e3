package lane

import (
	"slices"
	"strconv"

	"github.com/perdure/perdure/internal/model"
)

// WorkerID names a worker that has joined this node. The worker may belong to another node, see
// JoinAway. Zero means that there is no worker.
type WorkerID int

// kind is a workflow, an entity or a service of a tenant.
type kind struct{ tenant, workflow string }

// workers knows which workers there are, what they offer, and which runs wait for one of them.
type workers struct {
	offers   map[kind][]offer
	turn     map[kind]int // which worker of a kind comes next, for pick and seat
	unserved map[kind][]*entry
	here     map[WorkerID]bool
	leaving  map[WorkerID]bool
	away     map[WorkerID]bool // workers of other nodes
	previews map[WorkerID]bool // workers that may get previews of events, see preview.go

	slots   map[WorkerID]Capacity // slots of workers that take a limited number of runs and calls
	offered map[WorkerID][]ownOffer
	lines   map[kind][]*slotLine // the runs and entities that wait for a free slot
	round   int                  // which line comes next, for nextLine
	freed   seat                 // a slot for the run or the entity that is being dispatched
	lane    int

	gen  uint64 // generation of the last hand-over
	step uint64 // distance to the next generation: the lanes of a node never use the same one
}

// offer is a worker that runs a workflow, and the version of its code.
type offer struct {
	id      WorkerID
	version string
	pinned  bool // the worker continues only runs that are pinned to its version
	away    bool // the worker belongs to another node

	entity *model.EntityType // the type, if the offer is an entity or a service
}

// ownOffer is an offer together with its kind.
type ownOffer struct {
	kind kind
	offer
}

// canContinue reports whether the worker may continue a run that is pinned to a version. pin is
// empty for a run that is not pinned. For an entity, it is the version of the state.
func (o *offer) canContinue(pin string) bool {
	if o.entity != nil && pin != "" {
		version, err := strconv.Atoi(pin) // the version of a state, see statePin
		return err == nil && o.entity.ReadsState(version)
	}
	return pin == "" || o.version == pin || !o.pinned
}

// newWorkers returns an empty set. A generation is never used twice, not even by the next
// incarnation of the node: the fence of each incarnation has a higher epoch.
func newWorkers(cfg *Config) workers {
	lanes := uint64(cfg.Lanes)
	return workers{
		offers: map[kind][]offer{}, turn: map[kind]int{}, unserved: map[kind][]*entry{}, here: map[WorkerID]bool{}, leaving: map[WorkerID]bool{}, away: map[WorkerID]bool{}, previews: map[WorkerID]bool{},
		slots: map[WorkerID]Capacity{}, offered: map[WorkerID][]ownOffer{}, lines: map[kind][]*slotLine{}, lane: int(cfg.Ref.Lane),
		gen: uint64(cfg.Ref.Epoch)<<32/lanes*lanes + uint64(cfg.Ref.Lane), step: lanes,
	}
}

// add adds a worker. Its slots are nil if it takes any number of runs and calls.
func (w *workers) add(id WorkerID, s Capacity) {
	w.here[id] = true
	if s != nil {
		w.slots[id] = s
	}
}

// nextGen returns the generation of a new hand-over.
func (w *workers) nextGen() uint64 {
	w.gen += w.step
	return w.gen
}

// offer adds what a worker can run. It returns the runs and entities that have waited for this
// offer.
func (w *workers) offer(k kind, o offer) []*entry {
	o.away = w.away[o.id]
	w.offers[k] = append(w.offers[k], o)
	w.offered[o.id] = append(w.offered[o.id], ownOffer{k, o})
	if k.tenant != model.EveryTenant {
		waiting := w.unserved[k]
		delete(w.unserved, k)
		return waiting
	}

	var waiting []*entry
	for other, entries := range w.unserved {
		if other.workflow == k.workflow {
			waiting = append(waiting, entries...)
			delete(w.unserved, other)
		}
	}
	// The order of a map is random, but a lane must be deterministic.
	slices.SortFunc(waiting, func(a, b *entry) int { return compareAddresses(a.address, b.address) })
	return waiting
}

// offersOf returns the workers that offer a kind: workers of its tenant or, if there are none,
// workers that serve every tenant.
func (w *workers) offersOf(k kind) []offer {
	if own := w.offers[k]; len(own) > 0 {
		return own
	}
	return w.offers[kind{model.EveryTenant, k.workflow}]
}

// withdraw removes the offers of a worker. The worker keeps its runs.
func (w *workers) withdraw(id WorkerID) {
	delete(w.offered, id)
	for k, ids := range w.offers {
		if ids = slices.DeleteFunc(ids, func(o offer) bool { return o.id == id }); len(ids) == 0 {
			delete(w.offers, k)
		} else {
			w.offers[k] = ids
		}
	}
}

// remove forgets a worker.
func (w *workers) remove(id WorkerID) {
	w.withdraw(id)
	delete(w.leaving, id)
	delete(w.here, id)
	delete(w.slots, id)
	delete(w.away, id)
	delete(w.previews, id)
}

// pick chooses in turn among the workers that offer the kind and can continue a run that is pinned
// to a version. It returns 0 if there is no such worker. Workers of other nodes come last.
func (w *workers) pick(k kind, pin string) WorkerID {
	offers := w.offersOf(k)
	for _, away := range w.distances() {
		for range offers {
			w.turn[k]++
			if o := &offers[w.turn[k]%len(offers)]; o.away == away && o.canContinue(pin) {
				return o.id
			}
		}
	}
	return 0
}

// hasUntried reports whether there is a worker that can continue the run and whose turn for this
// run the lane has not refused.
func (w *workers) hasUntried(e *entry, pin string) bool {
	return slices.ContainsFunc(w.offersOf(e.kind()), func(o offer) bool {
		return o.canContinue(pin) && !slices.Contains(e.wait.refused, o.id)
	})
}

// isRefused reports whether another worker must try a run first, because the lane has refused a
// turn of this worker.
func (w *workers) isRefused(id WorkerID, e *entry, pin string) bool {
	return len(e.wait.refused) > 0 && slices.Contains(e.wait.refused, id) && w.hasUntried(e, pin)
}

// canServe reports whether a worker offers the kind and can continue a run that is pinned to a
// version.
func (w *workers) canServe(id WorkerID, k kind, pin string) bool {
	for i := range w.offered[id] {
		o := &w.offered[id][i]
		serves := o.kind == k || o.kind == kind{model.EveryTenant, k.workflow} && len(w.offers[k]) == 0
		if serves && o.canContinue(pin) {
			return true
		}
	}
	return false
}

// strand lets a run wait for a worker that can continue it.
func (w *workers) strand(e *entry) {
	if !e.wait.worker {
		e.wait.worker = true
		k := e.kind()
		w.unserved[k] = append(w.unserved[k], e)
	}
}

// unstrand ends the wait of a run for a worker, or for a slot of one.
func (w *workers) unstrand(e *entry) {
	w.leaveLine(e)
	if e.wait.worker {
		k := e.kind()
		left := slices.DeleteFunc(w.unserved[k], func(x *entry) bool { return x == e })
		if len(left) > 0 {
			w.unserved[k] = left
		} else {
			delete(w.unserved, k) // clients choose the names of workflows, so there may be many
		}
		e.wait.worker = false
	}
}
