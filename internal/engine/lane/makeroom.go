package lane

import (
	"cmp"
	"slices"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// hasRoom reports whether another run may be read for a worker.
func (l *Lane) hasRoom() bool { return l.room.used < l.cfg.MaxHeld || l.room.used == 0 }

// weigh counts what a worker holds of a run.
func (l *Lane) weigh(e *entry) {
	switch {
	case e.hold.free():
		l.reserve(e, 0)
	case e.x != nil: // else its state is being read again
		l.reserve(e, runBytes+e.x.Bytes())
	}
}

// reserve has a run take so many bytes of the room.
func (l *Lane) reserve(e *entry, n int) {
	l.room.used += n - e.hold.weight
	e.hold.weight = n
}

// guess is what is reserved for a run while it is read.
func (l *Lane) guess(e *entry) int {
	if e.known && e.x != nil {
		return runBytes + e.x.Bytes()
	}
	return 16 * runBytes
}

// queueUp has a run wait for room. It reports whether the run has to be read nevertheless: its
// tasks go on without its code.
func (l *Lane) queueUp(e *entry) (read bool) {
	e.reading.endHistory()
	e.wait.reasons = []model.Reason{{Code: model.WaitTurn}}
	if !e.wait.room {
		e.wait.room = true
		l.room.line = append(l.room.line, e)
	}
	read = e.reading.active || l.cfg.Board != nil && !e.known && !e.reading.bare
	e.reading.active = read
	return read
}

// callUp hands out runs that have waited for room, as far as there is some.
func (l *Lane) callUp() {
	if l.room.used > l.cfg.MaxHeld || len(l.room.line) > 0 && !l.hasRoom() {
		l.makeRoom()
	}
	for len(l.room.line) > 0 && l.hasRoom() && len(l.loads.waiting) == 0 && len(l.loads.flying) < l.cfg.MaxLoads {
		e := l.room.line[0]
		l.room.line[0] = nil
		l.room.line = l.room.line[1:]
		if e.gone || !e.wait.room {
			continue
		}
		e.wait.room = false
		l.dispatch(l.now, e)
		l.loads.hand(l)
		l.maybeDrop(e)
	}
	if len(l.room.line) == 0 {
		l.room.line = nil
	}
}

// makeRoom takes runs from workers that wait for something, those first that were handed over
// first. They are read again when that comes.
func (l *Lane) makeRoom() {
	if l.room.tried {
		return
	}
	l.room.tried = true
	var idle []*entry
	for _, e := range l.runs {
		if !e.hold.busy && !e.dirty() && !e.eviction.pending && e.known && len(e.queries) == 0 && len(e.backlog.inputs) == 0 && len(e.wait.reasons) > 0 && !hasCode(e.wait.reasons, model.WaitStuck) {
			idle = append(idle, e)
		}
	}
	slices.SortFunc(idle, func(a, b *entry) int { return cmp.Compare(a.hold.gen, b.hold.gen) })
	for _, e := range idle {
		if l.room.used < l.cfg.MaxHeld/8*7 {
			break
		}
		l.letGoNow(e, "its history makes room for others")
		l.maybeDrop(e)
	}
}

// slim drops the state of a run or an entity that nobody can go on with now: only its address is
// remembered. What is only in memory stays, and so does what takes hardly more than the address.
func (l *Lane) slim(e *entry) {
	switch {
	case !e.known:
		return
	case e.isEntity():
		if e.actor.entity.Size() <= l.cfg.KeepIdle || !e.actor.stored() {
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

// weighMail counts what waits for an entity in memory only. What is in the store is bounded by the mailbox, and takes no room from
// the calls of other entities.
func (l *Lane) weighMail(e *entry) {
	n, a := 0, e.actor
	if a.entity != nil {
		n = a.entity.Loose()
	}
	for _, it := range a.kept {
		n += it.Message.Size()
	}
	if e.gone {
		n = 0
	}
	l.calls += n - a.counted
	a.counted = n
}

// perAddress is the share of a lane's room for calls that one entity may take: a quarter.
const perAddress = 4

// noRoomFor refuses a call that would wait in memory only, when those that wait for its entity take
// a quarter of what the lane may have, or those for all entities take all of it. So a key that nobody
// serves takes no room from its neighbours. One call always finds room. The call of a section is not
// refused: others wait for its end.
func (l *Lane) noRoomFor(e *entry, m *model.Message, stored bool) error {
	if stored || m.Kind != model.MessageCall || m.Section != "" {
		return nil
	}
	if own, most := e.actor.counted, l.cfg.MaxBytes/perAddress; own > 0 && own+m.Size() > most {
		return fault.New(fault.Exhausted, "calls of %d bytes wait for %s, and %d more would exceed the limit of %d: try later", own, m.To, m.Size(), most)
	}
	if l.calls == 0 || l.calls+m.Size() <= l.cfg.MaxBytes {
		return nil
	}
	return fault.New(fault.Exhausted, "calls of %d bytes wait for entities here, and %d more would exceed the limit of %d: try later", l.calls, m.Size(), l.cfg.MaxBytes)
}

// growing notes that a run has reached the size that people are warned of, once.
func (l *Lane) growing(e *entry, events []model.Event) {
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
