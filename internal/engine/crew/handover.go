package crew

import (
	"slices"
	"time"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/wire"
)

// An owner may lose an entity while a worker runs calls of it: the owner dies, or the shard moves
// to another node. The calls continue, because nothing can stop the code of a call. They have no
// effect, since the owner drops their results, so the next owner hands the same calls over again.
// It gives them to the worker that still runs them, because the node of this worker has named the
// entity to the next owner. Then there are two cases:
//
//   - The new hand-over begins with the calls that still run, on the same state. The worker does
//     not run them again: their results answer the new hand-over.
//   - Otherwise the new hand-over waits until the lost calls have ended.
//
// So a worker never runs a call of an entity beside a lost call that may be the same one. Calls of
// services run in parallel, so there only a call with the same name and input waits.

// handOver is a hand-over of calls of one entity that the worker has not reported.
type handOver struct {
	by *outlet // nil for the worker's own node, and when the owner is gone
	// generation is the generation that the owner knows.
	generation uint64
	entity     model.Address
	since      time.Time // when it arrived, by the clock of this node
	key        model.CallsKey
	lost       bool // the owner has lost the entity and drops the results
	ended      bool // the calls have ended, and their results are on the way
	// next is a hand-over that begins with the same calls. It gets the results of a lost hand-over.
	next *handOver
	// work has the calls while the hand-over waits.
	work *model.Operations
}

// isOwn reports whether the worker's own node has handed the calls over and waits for the results.
func (c *handOver) isOwn() bool { return c.by == nil && !c.lost }

// blocks reports whether a later hand-over has to wait until c has ended.
func (c *handOver) blocks(later *handOver) bool {
	return c.lost && !c.ended && c.entity == later.entity && (!c.entity.Stateless() || c.key.Shares(later.key))
}

// accept takes a hand-over of an owner. The worker starts the calls now, unless lost calls of the
// entity still run.
func (h *EntityHands) accept(c *handOver, work model.Operations) {
	c.key, c.since = work.Key(), time.Now()
	h.mu.Lock()
	delete(h.kept, c.entity)
	if h.lost[c.entity] > 0 && h.defers(c) {
		waits := work // a copy, so that work need not be on the heap
		c.work = &waits
		h.mu.Unlock()
		return
	}
	begin := h.note(c, work)
	h.mu.Unlock()
	h.operate(begin)
}

// defers reports whether a hand-over has to wait for lost calls. It notes what the hand-over waits
// for. The caller holds the lock.
func (h *EntityHands) defers(c *handOver) bool {
	blocked := false
	for _, old := range h.calls {
		if !old.blocks(c) {
			continue
		}
		if old.next == nil && old.key.Begins(c.key) {
			old.next = c
			return true
		}
		blocked = true
	}
	if blocked {
		h.waiting[c.entity] = append(h.waiting[c.entity], c)
	}
	return blocked
}

// note notes that the worker gets a hand-over, and returns the calls with the generation that the
// worker knows. Hand-overs of other owners get a generation of their own, because each owner counts
// for itself. The caller holds the lock.
func (h *EntityHands) note(c *handOver, work model.Operations) model.Operations {
	if c.by != nil {
		h.last++
		work.Generation = h.last | lent
	}
	c.work = nil
	h.calls[work.Generation] = c
	return work
}

// operate gives calls to the worker.
func (h *EntityHands) operate(work model.Operations) {
	if IsLent(work.Generation) {
		h.hold(work.Generation)
	}
	h.worker.Operate(work)
}

// loseCalls notes that the owners of some hand-overs have lost their entities. Running calls
// continue. The worker will not start calls that wait: loseCalls returns these hand-overs.
func (h *EntityHands) loseCalls(which func(*handOver) bool) (dropped []*handOver) {
	h.mu.Lock()
	defer h.mu.Unlock()
	drop := func(c *handOver) bool {
		if !which(c) {
			return false
		}
		c.lost = true
		dropped = append(dropped, c)
		return true
	}
	for _, c := range h.calls {
		if c.next != nil && drop(c.next) {
			c.next = nil
		}
		if !c.lost && !c.ended && which(c) {
			c.lost = true
			h.lost[c.entity]++
		}
	}
	for a, all := range h.waiting {
		if h.waiting[a] = slices.DeleteFunc(all, drop); len(h.waiting[a]) == 0 {
			delete(h.waiting, a)
		}
	}
	return dropped
}

// giveBack tells owners that the worker has not made the calls of some hand-overs. An owner that
// has lost the entity then frees the slot of the hand-over.
func (h *EntityHands) giveBack(all []*handOver) {
	for _, c := range all {
		r := model.Operated{Entity: c.entity, Generation: c.generation}
		if c.by == nil {
			h.returned(r)
		} else {
			c.by.post(&pb.WorkerItem{Item: &pb.WorkerItem_Operated{Operated: wire.Operated(&r)}})
		}
	}
}

// recipient is an owner that gets the results of calls, and the generation that it knows.
type recipient struct {
	by         *outlet // nil for the worker's own node
	generation uint64
}

// end notes that the calls of a hand-over have ended. It returns the hand-over, the owners that get
// the results, and the calls that have waited for the end and start now. The hand-over is nil if
// the worker reports the calls a second time.
func (h *EntityHands) end(local uint64) (c *handOver, to []recipient, begin []model.Operations) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c = h.calls[local]
	if c == nil || c.ended {
		return nil, nil, nil
	}
	c.ended = true
	// Note the owners now. While the results are on the way, loseOwner may change c.by.
	if c.next != nil {
		to = append(to, recipient{c.next.by, c.next.generation})
	}
	if c.by != nil {
		to = append(to, recipient{c.by, c.generation})
	}
	if !c.lost {
		return c, to, nil
	}

	if h.lost[c.entity]--; h.lost[c.entity] <= 0 {
		delete(h.lost, c.entity)
	}
	waiting := h.waiting[c.entity]
	delete(h.waiting, c.entity)
	for _, later := range waiting {
		if !h.defers(later) {
			begin = append(begin, h.note(later, *later.work))
		}
	}
	return c, to, begin
}

// Unseen returns the hand-overs of the worker's own node that cannot have reached the worker. The
// given ones cannot, as the worker numbers them.
func (h *EntityHands) Unseen(generations []uint64) []uint64 { return h.numbersFor(nil, generations) }

// Running returns the generation under which the worker runs the calls of a hand-over of its own
// node. It differs from the given one if the worker had started these calls for an owner that has
// lost the entity.
func (h *EntityHands) Running(generation uint64) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	for local, c := range h.calls {
		if c.next != nil && c.next.by == nil && c.next.generation == generation {
			return local
		}
	}
	return generation
}

// forget forgets a hand-over whose results are on the way. Until then the worker must not leave the
// owner (see retire).
func (h *EntityHands) forget(local uint64, c *handOver) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c != nil && h.calls[local] == c {
		delete(h.calls, local)
	}
}

// numbersFor returns which of the given hand-overs belong to one owner, with the numbers that this
// owner uses. o is nil for the worker's own node. The given ones cannot have reached the worker.
// Neither can the hand-overs that wait, for the results of one of these or for the end of any, so
// numbersFor adds them.
func (h *EntityHands) numbersFor(o *outlet, generations []uint64) (numbers []uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	add := func(c *handOver) {
		if c != nil && c.by == o {
			numbers = append(numbers, c.generation)
		}
	}
	for _, g := range generations {
		if c := h.calls[g]; c != nil {
			add(c)
			add(c.next)
		}
	}
	for _, all := range h.waiting {
		for _, c := range all {
			add(c)
		}
	}
	return numbers
}
