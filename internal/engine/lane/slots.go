package lane

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/perdure/perdure/internal/model"
)

// Capacity counts the slots of a worker. A slot is room for one run, or for one hand-over of calls.
// All lanes of a node share the slots of a worker, so an implementation must be safe for concurrent
// use.
type Capacity interface {
	// Take takes a free slot. If no slot is free, it returns false. As soon as a slot is free, the
	// user of the lane calls HandOut.
	Take(lane int) bool
	// Keep takes a slot for something that the worker already has, even if no slot is free.
	Keep()
	// Free gives a slot back.
	Free()
	// Limit returns how many slots the worker has.
	Limit() int
}

// seat is a slot that the lane has taken. It belongs to a run that a worker works on, to the read
// of such a run, or to a hand-over of calls. The zero value is no slot.
type seat struct {
	worker WorkerID
	slots  Capacity // nil if the worker takes any number of runs and calls
}

// leave gives the slot back, if there is one.
func (s *seat) leave() {
	if s.slots != nil {
		s.slots.Free()
	}
	*s = seat{}
}

// move returns the slot, and empties s.
func (s *seat) move() seat {
	moved := *s
	*s = seat{}
	return moved
}

// slotLine holds the runs, or the entities, of a kind that wait for a free slot, in order. Runs
// that are pinned to different versions wait for different workers, so each version has its own
// line.
type slotLine struct {
	pin     string
	waiting []*entry
}

// next removes the first entry for which mayHave returns true from the line, and returns it. It
// returns nil if that entry has left memory.
func (n *slotLine) next(mayHave func(e *entry) bool) *entry {
	i := slices.IndexFunc(n.waiting, mayHave)
	e := n.waiting[i]
	if i > 0 {
		n.waiting = slices.Delete(n.waiting, i, i+1)
	} else {
		n.waiting[0] = nil
		n.waiting = n.waiting[1:]
	}
	if len(n.waiting) == 0 {
		n.waiting = nil
	}
	if e.gone {
		return nil
	}
	e.wait.slot = false
	return e
}

// anyEntry lets every entry of a line pass.
func anyEntry(*entry) bool { return true }

// mayHave returns a function that reports which entries of a line a worker may have.
func (w *workers) mayHave(id WorkerID, n *slotLine) func(e *entry) bool {
	return func(e *entry) bool { return e.gone || !w.isRefused(id, e, n.pin) }
}

// lineOf returns the line of a kind and a version. It returns nil if there is none.
func (w *workers) lineOf(k kind, pin string) *slotLine {
	for _, n := range w.lines[k] {
		if n.pin == pin {
			return n
		}
	}
	return nil
}

// sit takes a slot of a worker.
func (w *workers) sit(id WorkerID) (seat, bool) {
	s := w.slots[id]
	if s != nil && !s.Take(w.lane) {
		return seat{}, false
	}
	return seat{id, s}, true
}

// keepSeat takes a slot of a worker for something that the worker already has.
func (w *workers) keepSeat(id WorkerID) seat {
	s := w.slots[id]
	if s != nil {
		s.Keep()
	}
	return seat{id, s}
}

// seat takes a slot of one of the workers that offer the kind of an entry and can continue a run
// that is pinned to a version. It chooses these workers in turn, and workers of other nodes last. A
// blocked run first goes to a worker that has joined since.
// full says that there are such workers, but that none of them has a slot for this entry: all slots
// are taken, or other entries already wait for the free slot.
func (w *workers) seat(e *entry, pin string) (s seat, full bool) {
	k := e.kind()
	if e.wait.joined != 0 && w.canServe(e.wait.joined, k, pin) {
		if s, ok := w.sit(e.wait.joined); ok {
			return s, false
		}
	}
	if w.canServe(w.freed.worker, k, pin) && !w.isRefused(w.freed.worker, e, pin) {
		return w.freed.move(), false
	}
	if n := w.lineOf(k, pin); n != nil && len(n.waiting) > 0 {
		return seat{}, true
	}

	offers := w.offersOf(k)
	for _, away := range w.distances() {
		for range offers {
			w.turn[k]++
			o := &offers[w.turn[k]%len(offers)]
			if o.away != away || !o.canContinue(pin) || w.isRefused(o.id, e, pin) {
				continue
			}
			if s, ok := w.sit(o.id); ok {
				return s, false
			}
			full = true
		}
	}
	return seat{}, full
}

// distances says in which order workers get runs: workers of other nodes come last.
func (w *workers) distances() []bool {
	if len(w.away) == 0 {
		return nearOnly
	}
	return nearFirst
}

var (
	nearOnly  = []bool{false}
	nearFirst = []bool{false, true}
)

// enter lets a run or an entity wait for a slot.
func (w *workers) enter(e *entry, pin string) {
	if e.wait.slot {
		return
	}
	e.wait.slot = true
	k := e.kind()
	n := w.lineOf(k, pin)
	if n == nil {
		n = &slotLine{pin: pin}
		w.lines[k] = append(w.lines[k], n)
	}
	n.waiting = append(n.waiting, e)
}

// nextLine returns the next line, in turn, that is not empty and that a worker can serve. It
// returns nil if there is no such line.
func (w *workers) nextLine(id WorkerID) *slotLine {
	kinds := w.kindsOf(id)
	for range kinds {
		w.round++
		k := kinds[w.round%len(kinds)]
		for _, n := range w.lines[k] {
			if w.canServe(id, k, n.pin) && slices.ContainsFunc(n.waiting, w.mayHave(id, n)) {
				return n
			}
		}
		w.lines[k] = slices.DeleteFunc(w.lines[k], func(n *slotLine) bool { return len(n.waiting) == 0 })
		if len(w.lines[k]) == 0 {
			delete(w.lines, k)
		}
	}
	return nil
}

// kindsOf returns the kinds that a worker offers and for which entries wait in a line.
func (w *workers) kindsOf(id WorkerID) (kinds []kind) {
	if len(w.lines) == 0 {
		return nil
	}

	for _, o := range w.offered[id] {
		if o.kind.tenant != model.EveryTenant {
			if len(w.lines[o.kind]) > 0 {
				kinds = append(kinds, o.kind)
			}
			continue
		}
		var all []kind
		for k := range w.lines {
			if k.workflow == o.kind.workflow {
				all = append(all, k)
			}
		}
		slices.SortFunc(all, compareKinds) // a lane must do the same for the same inputs
		kinds = append(kinds, all...)
	}

	return kinds
}

// inLine counts the runs and the entities that wait for a free slot.
func (w *workers) inLine() (runs, entities int) {
	for _, lines := range w.lines {
		for _, n := range lines {
			switch {
			case len(n.waiting) == 0:
			case n.waiting[0].isEntity():
				entities += len(n.waiting)
			default:
				runs += len(n.waiting)
			}
		}
	}
	return runs, entities
}

// leaveLine ends the wait of a run or an entity for a slot.
func (w *workers) leaveLine(e *entry) {
	if !e.wait.slot {
		return
	}
	e.wait.slot = false
	for _, n := range w.lines[e.kind()] {
		n.waiting = slices.DeleteFunc(n.waiting, func(x *entry) bool { return x == e })
	}
}

// unservedLines takes the entries out of all lines that no worker serves now.
func (w *workers) unservedLines() (left []*entry) {
	for k, lines := range w.lines {
		for _, n := range lines {
			if slices.ContainsFunc(w.offersOf(k), func(o offer) bool { return o.canContinue(n.pin) }) {
				continue
			}
			for len(n.waiting) > 0 {
				if e := n.next(anyEntry); e != nil {
					left = append(left, e)
				}
			}
		}
	}
	slices.SortFunc(left, compareEntries) // the order of a map is random
	return left
}

// HandOut gives work that has waited for a slot to a worker, as long as the worker has free slots.
func (l *Lane) HandOut(now model.Time, id WorkerID) {
	if l.dead != nil || !l.workers.here[id] || l.workers.leaving[id] {
		return
	}
	for {
		n := l.workers.nextLine(id)
		if n == nil {
			return
		}
		s, ok := l.workers.sit(id)
		if !ok {
			return
		}

		e := n.next(l.workers.mayHave(id, n))
		if e == nil {
			s.leave()
			continue
		}
		l.workers.freed = s
		l.dispatch(now, e)
		l.workers.freed.leave() // the dispatch needed no slot
		l.maybeDrop(e)
	}
}

// seatFor takes a slot for a run. If there is none, the run waits for a slot, or for a worker that
// has its code.
func (l *Lane) seatFor(e *entry, pin string) (seat, bool) {
	s, full := l.workers.seat(e, pin)
	switch {
	case s.worker != 0:
		return s, true
	case full:
		l.workers.enter(e, pin)
		e.wait.reasons = []model.Reason{l.noSlot(e, pin)}
	default:
		why := noWorker(e)
		if e.isEntity() && pin != "" {
			why.Detail = "state version " + pin + " of " + why.Detail
		}
		l.strand(e, why)
	}
	return seat{}, false
}

// seatToRead takes a slot for a run that is about to be read. If all workers take any number of
// runs, the run needs no slot yet: the lane chooses a worker when it has read the run.
func (w *workers) seatToRead(e *entry) (s seat, full bool) {
	if len(w.slots) == 0 {
		return seat{}, false
	}
	return w.seat(e, e.pin())
}

// seatToRead takes a slot for a run that the lane is about to read. If there is none, the run
// waits.
func (l *Lane) seatToRead(e *entry) (seat, bool) {
	if len(l.workers.slots) == 0 && len(l.workers.offersOf(e.kind())) > 0 {
		return seat{}, true
	}
	return l.seatFor(e, e.pin())
}

// wake takes a slot for a run that a worker holds and that has something to do again. It returns
// false if the worker has no free slot.
func (l *Lane) wake(e *entry) (ok bool) {
	h := &e.hold
	if h.seat.worker != 0 {
		return true
	}
	h.seat, ok = l.workers.sit(h.worker)
	return ok
}

// moveOn takes a run from a worker that has no free slot. The run goes to a worker with a free
// slot, or waits. The worker runs no step of the run, so no step is repeated.
func (l *Lane) moveOn(now model.Time, e *entry) {
	l.takeBack(now, e, "its worker has no free slot")
}

// noSlot says that every worker with the code is busy.
func (l *Lane) noSlot(e *entry, pin string) model.Reason {
	why := noWorker(e)
	why.Code = model.WaitSlot
	if why.Detail == "" {
		why.Detail = "workflow"
	}

	count, total := 0, 0
	for _, o := range l.workers.offersOf(e.kind()) {
		if s := l.workers.slots[o.id]; o.canContinue(pin) && s != nil {
			count++
			total += s.Limit()
		}
	}
	why.Name = why.Detail + " " + why.Name
	why.Detail = fmt.Sprintf("%d workers have %d in all", count, total)
	if count == 1 {
		why.Detail = fmt.Sprintf("the only worker has %d", total)
	}
	return why
}

// pin returns the version that a run is pinned to, as far as the lane knows.
func (e *entry) pin() string {
	if e.x == nil {
		return ""
	}
	return e.x.Pin
}

func compareKinds(a, b kind) int {
	return cmp.Or(cmp.Compare(a.tenant, b.tenant), cmp.Compare(a.workflow, b.workflow))
}
