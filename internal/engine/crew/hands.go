package crew

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/wire"
)

// lent is a bit that marks the generations of hand-overs by other nodes. Lanes of this node count
// generations from the epochs of their fences, which are far too small to reach this bit.
const lent = 1 << 63

// IsLent reports whether the generation belongs to a hand-over by another node.
func IsLent(generation uint64) bool { return generation&lent != 0 }

// keepFor is how long a worker keeps the runs and entities of a lost owner. See replay.Worker.Lose.
const keepFor = time.Minute

// SharedSlots are the slots of a worker, which its own node and other owners share.
type SharedSlots interface {
	// TakeFor takes a free slot. If no slot is free, it returns false and calls wake once, as soon
	// as a slot is free. It calls wake under a lock, so wake must not block. key identifies the
	// waiting caller.
	TakeFor(key any, wake func()) bool
	// Free gives a slot back.
	Free()
	// Forget ends the wait of the caller with the given key.
	Forget(key any)
}

// Hands has the work that one worker of this process does for owners on other nodes.
type Hands interface {
	// tenant, class and names describe the worker. Workers of the same class offer the same code.
	tenant() string
	class() string
	names() []string
	isServed(name string, s *codeOf) bool

	// join returns the parcel with which the worker joins an owner, for the given names of
	// workflows or entities.
	join(names []string) parcel
	// held returns the parcel that says which runs or entities of lost owners the worker holds. ok
	// is false if it holds none.
	held() (p parcel, ok bool)
	// heldNames returns the names of the workflows or entities that the worker holds for lost
	// owners.
	heldNames() map[string]bool

	// take receives a message of an owner. lose says that a run gets another owner. loseMoved says
	// the same of all runs and calls at the addresses that moved accepts, if the owner handed them
	// over before the given time. There, a nil outlet means the worker's own node. loseOwner says
	// that the owner itself is gone.
	take(o *outlet, item *pb.ServerItem) error
	lose(o *outlet, e *pb.Evict) error
	loseMoved(o *outlet, before time.Time, moved func(model.Address) bool)
	loseOwner(o *outlet)
	// isBusyFor reports whether the worker has work of an owner, or still holds something of a lost
	// owner, which this owner may take over.
	isBusyFor(o *outlet) bool

	slots() SharedSlots
}

// WorkflowHands implements Hands for a worker of workflows.
type WorkflowHands struct {
	worker RunWorker
	offer  model.Offer
	// The Hands call hold when the worker gets a run, and release when it no longer holds the run,
	// so that the engine can wait until the worker holds none.
	hold, release func(run model.RunID, generation uint64)
	room          func() SharedSlots

	mu    sync.Mutex
	last  uint64
	runs  map[uint64]*lentRun // by the generation that the worker knows
	now   map[model.RunID]uint64
	left  map[model.RunID]leftRun
	asked map[uint64]*lentRun // recalls, by the generation that the worker knows
}

// lentRun is a run of another node that the worker holds.
type lentRun struct {
	by         *outlet
	address    model.Address
	run        model.RunID
	generation uint64     // the generation that the owner knows
	given      model.Time // when the owner handed it over, by its clock
	since      time.Time  // when the hand-over arrived, by the clock of this node
}

// leftRun is a run of an owner that is gone.
type leftRun struct {
	address model.Address
	given   model.Time
	since   time.Time
}

// HandsConfig has what Hands need from their engine.
type HandsConfig struct {
	Hold, Release func(run model.RunID, generation uint64)
	// Slots returns the slots of the worker in the current incarnation. It returns nil if the
	// worker takes any number of runs or calls.
	Slots func() SharedSlots
	// Report gives the results of calls to the worker's own node, which has handed over calls that
	// were already running. It blocks while the engine is full. Return gives back calls that the
	// worker has not made, and does not block. Only EntityHands use both.
	Report func(ctx context.Context, r model.Operated) error
	Return func(r model.Operated)
}

// NewWorkflowHands returns the Hands of a worker that has no work of other owners yet.
func NewWorkflowHands(w RunWorker, o model.Offer, cfg HandsConfig) *WorkflowHands {
	h := &WorkflowHands{
		worker: w, offer: o, hold: cfg.Hold, release: cfg.Release, room: cfg.Slots,
		runs: map[uint64]*lentRun{}, now: map[model.RunID]uint64{}, left: map[model.RunID]leftRun{}, asked: map[uint64]*lentRun{},
	}
	for _, r := range o.Held { // the next owner may be another node
		h.left[r.Run] = leftRun{r.Address, r.Given, time.Now()}
	}
	return h
}

func (h *WorkflowHands) tenant() string { return h.offer.Tenant }
func (h *WorkflowHands) class() string {
	return fmt.Sprintf("w%q", []any{h.offer.Tenant, h.offer.Version, h.offer.Workflows, h.offer.Pinned})
}
func (h *WorkflowHands) names() []string    { return h.offer.Workflows }
func (h *WorkflowHands) slots() SharedSlots { return h.room() }

// isServed reports whether an owner has the code itself, in the same version.
func (h *WorkflowHands) isServed(name string, s *codeOf) bool {
	return s.has(h.offer.Tenant, name, h.offer.Version)
}

func (h *WorkflowHands) join(names []string) parcel {
	o := h.offer
	o.Workflows, o.Pinned = names, nil
	for _, p := range h.offer.Pinned {
		for _, n := range names {
			if n == p {
				o.Pinned = append(o.Pinned, p)
			}
		}
	}
	j := wire.WorkflowJoin(&o)
	j.HeldRuns = h.heldRuns()
	return parcel{Kind: joinWorkflows, Tenant: o.Tenant, Body: pack(j)}
}

func (h *WorkflowHands) heldRuns() (all []*pb.HeldRun) {
	for _, r := range h.Left() {
		all = append(all, wire.HeldRun(r))
	}
	return all
}

func (h *WorkflowHands) held() (parcel, bool) {
	runs := h.heldRuns()
	return parcel{Kind: holds, Body: pack(&pb.Join{HeldRuns: runs})}, len(runs) > 0
}

func (h *WorkflowHands) heldNames() map[string]bool {
	names := map[string]bool{}
	for _, r := range h.Left() {
		names[r.Address.Type] = true
	}
	return names
}

// Left returns the runs of lost owners that the worker still holds.
func (h *WorkflowHands) Left() []model.HeldRun {
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(h.left, func(_ model.RunID, l leftRun) bool { return time.Since(l.since) > keepFor })
	all := make([]model.HeldRun, 0, len(h.left))
	for run, l := range h.left {
		all = append(all, model.HeldRun{Address: l.address, Run: run, Given: l.given})
	}
	return all
}

// Regain forgets that the worker held a run for a lost owner. The worker's own node calls it when
// it has handed over the run to the worker.
func (h *WorkflowHands) Regain(run model.RunID) {
	h.mu.Lock()
	delete(h.left, run)
	h.mu.Unlock()
}

// take receives a message of an owner.
func (h *WorkflowHands) take(o *outlet, item *pb.ServerItem) error {
	switch it := item.GetItem().(type) {
	case *pb.ServerItem_Activation:
		a, err := wire.ReadActivation(h.offer.Tenant, it.Activation)
		if err != nil {
			return err
		}
		h.activate(o, &a)

	case *pb.ServerItem_Recall:
		run, err := wire.ReadRun(it.Recall.GetRun())
		if err != nil {
			return err
		}
		a := wire.ReadAddress(h.offer.Tenant, it.Recall.GetAddress())
		h.mu.Lock()
		h.last++
		generation := h.last | lent
		h.asked[generation] = &lentRun{by: o, address: a, run: run, generation: it.Recall.GetGeneration()}
		h.mu.Unlock()
		h.worker.Recall(a, run, generation, model.Query{ID: it.Recall.GetId(), Name: it.Recall.GetName(), Input: wire.ReadPayload(it.Recall.GetInput())})
	case *pb.ServerItem_Deliver:
		events, err := wire.ReadEvents(it.Deliver.GetEvents())
		if err != nil {
			return err
		}
		return h.about(o, it.Deliver, func(run model.RunID, generation uint64) { h.worker.Deliver(run, generation, events) })
	case *pb.ServerItem_RetryStep:
		return h.about(o, it.RetryStep, func(run model.RunID, generation uint64) { h.worker.Retry(run, generation, it.RetryStep.GetId()) })
	case *pb.ServerItem_TurnTaken:
		return h.about(o, it.TurnTaken, h.worker.Taken)
	case *pb.ServerItem_Query:
		q := model.Query{ID: it.Query.GetId(), Name: it.Query.GetName(), Input: wire.ReadPayload(it.Query.GetInput())}
		return h.about(o, it.Query, func(run model.RunID, generation uint64) { h.worker.Query(run, generation, q) })
	case *pb.ServerItem_Evict:
		return h.about(o, it.Evict, func(run model.RunID, generation uint64) {
			h.forget(run, generation)
			h.worker.Evict(run, generation, it.Evict.GetReason())
			h.release(run, generation)
		})
	default: // an item of a newer build
	}
	return nil
}

// activate gives the worker a run of another owner.
func (h *WorkflowHands) activate(o *outlet, a *model.Activation) {
	run := a.Start.Run
	h.mu.Lock()
	h.last++
	generation := h.last | lent
	h.runs[generation] = &lentRun{by: o, address: a.Start.Address, run: run, generation: a.Generation, given: a.Now, since: time.Now()}
	h.now[run] = generation
	delete(h.left, run)
	h.mu.Unlock()

	h.hold(run, generation)
	a.Generation = generation
	h.worker.Activate(a)
	if h.find(generation) == nil {
		h.takeBack(run, generation) // keep has come before the worker knew the run
	}
}

// handed is a message about a hand-over.
type handed interface {
	GetRun() []byte
	GetGeneration() uint64
}

// about calls do for the run that a message is about, unless the worker no longer holds it.
func (h *WorkflowHands) about(o *outlet, m handed, do func(run model.RunID, generation uint64)) error {
	run, err := wire.ReadRun(m.GetRun())
	if err != nil {
		return err
	}
	h.mu.Lock()
	generation := h.now[run]
	r := h.runs[generation]
	found := r != nil && r.by == o && r.generation == m.GetGeneration()
	h.mu.Unlock()
	if found {
		do(run, generation)
	}
	return nil
}

// forget forgets a run that the worker no longer holds.
func (h *WorkflowHands) forget(run model.RunID, generation uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.runs, generation)
	if h.now[run] == generation {
		delete(h.now, run)
	}
}

// lose takes a run away from the worker, because the run gets another owner.
func (h *WorkflowHands) lose(o *outlet, e *pb.Evict) error {
	return h.about(o, e, func(run model.RunID, generation uint64) { h.keep(run, generation) })
}

// keep takes a run from its worker. If the worker is a Survivor, it keeps the running bodies of the
// run for the next owner.
func (h *WorkflowHands) keep(run model.RunID, generation uint64) {
	_, survives := h.worker.(Survivor)
	h.mu.Lock()
	if r := h.runs[generation]; r != nil && survives {
		h.left[run] = leftRun{r.address, r.given, time.Now()}
	}
	h.mu.Unlock()
	h.forget(run, generation)
	h.takeBack(run, generation)
}

// takeBack tells the worker that the owner of a run is lost. It may do so twice.
func (h *WorkflowHands) takeBack(run model.RunID, generation uint64) {
	if survivor, ok := h.worker.(Survivor); ok {
		survivor.Lose(run, generation)
	} else {
		h.worker.Evict(run, generation, "the owner of the run is lost")
	}
	h.release(run, generation)
}

// LoseOwn takes a run of the worker's own node away from the worker, because the node has lost its
// lease. The worker is a Survivor, and keeps the running bodies of the run for the next owner.
func (h *WorkflowHands) LoseOwn(r model.HeldRun, generation uint64) {
	h.mu.Lock()
	h.left[r.Run] = leftRun{r.Address, r.Given, time.Now()}
	h.mu.Unlock()
	h.worker.(Survivor).Lose(r.Run, generation)
}

// loseOwner takes all runs of a lost owner away from the worker.
func (h *WorkflowHands) loseOwner(o *outlet) {
	h.mu.Lock()
	maps.DeleteFunc(h.asked, func(_ uint64, r *lentRun) bool { return r.by == o })
	h.mu.Unlock()
	h.loseRuns(func(r *lentRun) bool { return r.by == o })
}

// loseMoved takes runs away from the worker. The worker's own node tells its workers itself.
func (h *WorkflowHands) loseMoved(o *outlet, before time.Time, moved func(model.Address) bool) {
	h.loseRuns(func(r *lentRun) bool { return r.by == o && r.since.Before(before) && moved(r.address) })
}

// loseRuns takes runs away from the worker, because they have or get other owners.
func (h *WorkflowHands) loseRuns(which func(*lentRun) bool) {
	lost := map[uint64]model.RunID{}
	h.mu.Lock()
	for generation, r := range h.runs {
		if which(r) {
			lost[generation] = r.run
		}
	}
	h.mu.Unlock()
	for generation, run := range lost {
		h.keep(run, generation)
	}
}

func (h *WorkflowHands) isBusyFor(o *outlet) bool {
	if len(h.Left()) > 0 {
		return true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, all := range []map[uint64]*lentRun{h.runs, h.asked} {
		for _, r := range all {
			if r.by == o {
				return true
			}
		}
	}
	return false
}

// find returns the run with a generation that the worker knows. It returns nil if the worker no
// longer holds the run.
func (h *WorkflowHands) find(generation uint64) *lentRun {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.runs[generation]
}

// Report sends a turn to the owner of the run. It blocks while the owner takes nothing.
func (h *WorkflowHands) Report(ctx context.Context, t model.Turn) error {
	local := t.Generation
	r := h.find(local)
	if r == nil {
		return nil // the worker already knows that it has lost the run
	}
	t.Generation = r.generation
	if err := r.by.wait(ctx, &pb.WorkerItem{Item: &pb.WorkerItem_Turn{Turn: wire.Turn(&t)}}); err != nil {
		return err
	}
	if t.Blocked != nil {
		h.forget(t.Run, local)
		h.release(t.Run, local)
	}
	return nil
}

// Release gives a run back to its owner.
func (h *WorkflowHands) Release(run model.RunID, generation uint64, seen int64, waits []model.Reason) {
	r := h.find(generation)
	if r == nil {
		return
	}
	m := &pb.Release{Run: wire.Run(run), Generation: r.generation, Seen: seen}
	if len(waits) > 0 {
		m.Waits = model.AppendReasons(nil, waits)
	}
	r.by.post(&pb.WorkerItem{Item: &pb.WorkerItem_Release{Release: m}})
}

// Answer sends the answer of the code to the owner that has asked.
//
//arch:parameters the protocol of workers, see api.Session
func (h *WorkflowHands) Answer(run model.RunID, generation, id uint64, out model.Payload, f *model.Failure) {
	r := h.find(generation)
	if r == nil {
		h.mu.Lock()
		r = h.asked[generation]
		delete(h.asked, generation)
		h.mu.Unlock()
	}
	if r != nil {
		r.by.post(&pb.WorkerItem{Item: &pb.WorkerItem_QueryAnswer{QueryAnswer: &pb.QueryAnswer{
			Run: wire.Run(run), Generation: r.generation, Id: id, Output: wire.Payload(out), Failure: wire.Failure(f),
		}}})
	}
}
