package lane

import (
	"cmp"
	"slices"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// queueUp lets a run wait for room. It reports whether the lane has to read the run anyway, because
// tasks of the run continue even without its code.
func (l *Lane) queueUp(e *entry) (read bool) {
	e.reading.endHistory()
	l.room.enter(e)
	read = e.reading.active || l.cfg.Board != nil && !e.known && !e.reading.bare
	e.reading.active = read
	return read
}

// While there is room, callUp hands over to workers the runs that wait for room, in order.
func (l *Lane) callUp() {
	if l.room.used > l.room.limit || len(l.room.line) > 0 && !l.room.free() {
		l.makeRoom()
	}
	for len(l.room.line) > 0 && l.room.free() && len(l.loads.waiting) == 0 && len(l.loads.flying) < l.cfg.MaxLoads {
		if e := l.room.next(); e != nil {
			l.dispatch(l.now, e)
			l.issueWaiting()
			l.maybeDrop(e)
		}
	}
}

// makeRoom takes waiting runs from their workers, the longest held first. The lane reads a run
// again when the run can continue. If the lane has forgotten the state of such a run, because the
// store refused a batch with the run, makeRoom only reads the state. After that read, the lane
// calls makeRoom again.
func (l *Lane) makeRoom() {
	if l.room.tried {
		return
	}
	l.room.tried = true

	var idle []*entry
	for _, e := range l.runs {
		if e.evictable() {
			idle = append(idle, e)
		}
	}
	slices.SortFunc(idle, func(a, b *entry) int { return cmp.Compare(a.hold.gen, b.hold.gen) })
	for _, e := range idle {
		switch {
		case l.room.used < l.room.limit/8*7:
			return
		case e.known:
			l.letGoNow(e, "its history makes room for others")
			l.maybeDrop(e)
		case !e.reading.active:
			l.load(e)
			l.issueWaiting()
		}
	}
}

// evictable reports whether a worker can lose the run without losing work: the worker runs no step
// of the run, the code waits, and nothing of the run is in a batch or in the backlog.
func (e *entry) evictable() bool {
	return !e.hold.busy && !e.dirty() && !e.eviction.pending && len(e.queries) == 0 && len(e.backlog.inputs) == 0 &&
		len(e.wait.reasons) > 0 && !hasCode(e.wait.reasons, model.WaitStuck)
}

// slim drops the state of a run or an entity that no worker can continue now, but keeps its address
// in memory. It does not drop state that exists only in memory, or state that takes hardly more
// memory than the address.
func (l *Lane) slim(e *entry) {
	switch {
	case !e.known:
		return
	case e.isEntity():
		if e.actor.entity.Size() <= l.cfg.KeepIdle || !e.actor.isStored() {
			return
		}
	case e.x == nil || e.x.Size() <= l.cfg.KeepIdle:
		return
	}

	bare, paused := !e.isEntity(), (*model.Reason)(nil)
	if e.x != nil {
		paused = e.x.Withheld()
	}
	l.forget(e)
	e.reading.bare, e.wait.paused = bare, paused
}

// perAddress says which part of a lane's room for calls one entity may take: 1/perAddress.
const perAddress = 4

// If there is no room for a call, noRoomFor refuses the call. It refuses only calls that would wait
// in memory, never stored calls. There is no room if the waiting calls of its entity take a quarter
// of the lane's room for calls, or if the calls of all entities together take all of that room. So
// an entity without a worker cannot fill the room that other entities need. If no other call waits,
// a call always finds room, however large it is. noRoomFor never refuses a call of a section,
// because other callers wait until the section ends.
func (l *Lane) noRoomFor(e *entry, m *model.Message, stored bool) error {
	if stored || m.Kind != model.MessageCall || m.Section != "" {
		return nil
	}
	if own, most := e.actor.counted, l.cfg.MaxBytes/perAddress; own > 0 && own+m.Size() > most {
		return fault.New(fault.Exhausted, "calls of %d bytes wait for %s, and %d more would exceed the limit of %d: try later", own, m.To, m.Size(), most)
	}
	if l.budget.calls == 0 || l.budget.calls+m.Size() <= l.cfg.MaxBytes {
		return nil
	}
	return fault.New(fault.Exhausted, "calls of %d bytes wait for entities here, and %d more would exceed the limit of %d: try later",
		l.budget.calls, m.Size(), l.cfg.MaxBytes)
}

// warnLarge reports, once, that a run has reached the size that operators are warned about.
func (l *Lane) warnLarge(e *entry, events []model.Event) {
	large := l.cfg.Limits.Large()
	if e.x == nil || large == 0 || e.x.Bytes() < large {
		return
	}
	before := e.x.Bytes()
	for i := range events {
		before -= events[i].Size()
	}
	if before < large {
		l.out.Large = append(l.out.Large, Large{e.address, e.run(), e.x.Bytes()})
	}
}
