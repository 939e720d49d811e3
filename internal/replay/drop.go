package replay

import (
	"maps"
	"slices"

	"github.com/perdure/perdure/internal/model"
)

// A signal that an operator has dropped must not reach the code, but a replay must still repeat
// what the code did before the drop. So in a replay, each dropped signal disappears at a certain
// place in the history:
//
//   - If the code cannot have noticed the signal, the replay never shows it. The event that drops
//     the signal says so.
//   - Otherwise the code may have noticed the signal without taking it. For example, a select may
//     have chosen the signal, or one receive may have got this signal, so that another receive got
//     a later signal. In that case the signal disappears where it was dropped.
//   - The replayed code may take the signal before that place. Then the earlier code took it too,
//     but the turn that reported this was lost. (Otherwise the history would record that the code
//     took the signal, and the engine could not have dropped the signal.) So nothing in the history
//     depends on the event that made the code take the signal. The signal disappears before that
//     event.
//
// Every replay finds the same places, because they depend only on the history up to the drop.

// noteDrop remembers an event that drops a signal. The worker calls noteDrop when this event
// arrives, which is before the code is fed the signal.
func (r *run) noteDrop(e *model.Event) {
	if e.Kind != model.EventSignalDropped {
		return
	}
	if r.drops == nil {
		r.drops = map[int64]int{}
	}
	if _, known := r.drops[e.Ref]; known {
		return // the engine drops each signal once
	}
	r.drops[e.Ref] = int(e.Ref - 1)
	if e.Seen {
		r.drops[e.Ref] = int(e.Seq - 1)
	}
}

// isHidden reports whether the code never sees the signal of an event.
func (m *machine) isHidden(i int) bool {
	at, dropped := m.r.drops[int64(i+1)]

	return dropped && at <= i
}

// vanish removes the signals that must disappear before the event at an index is fed. If the code
// has already taken one of these signals, or still sees a signal that should have disappeared
// earlier, the worker throws the machine away, and the replay starts again.
func (m *machine) vanish(i int) {
	for _, seq := range slices.Sorted(maps.Keys(m.r.drops)) {
		signal := int(seq - 1)
		switch at := m.r.drops[seq]; {
		case signal >= i || at > i: // the signal has not arrived, or disappears later
		case at == i && !m.hasTaken(seq):
			m.remove(m.r.events[signal].Name, signal)
		case m.isShown(m.r.events[signal].Name, signal) || m.hasTaken(seq):
			m.broken = true
		}
	}
}

// preventTake restarts the replay if the code takes a signal that was dropped. In that case it does
// not return.
func (m *machine) preventTake(c *Coroutine, seq int64) {
	if _, dropped := m.r.drops[seq]; !dropped {
		return
	}
	m.r.drops[seq] = max(m.fed, 1) - 1
	m.broken = true
	c.park()
	panic("replay: a machine continued after it was thrown away") // park ends the goroutine
}

// hasTaken reports whether the code of this machine has taken a signal.
func (m *machine) hasTaken(seq int64) bool {
	for a := range m.asks.all() {
		if a.kind == askTaken && a.ref == seq {
			return true
		}
	}

	return false
}

// isShown reports whether the signal at an index has reached the code and the code has not taken
// it.
func (m *machine) isShown(name string, i int) bool {
	has := func(f *Future) bool { return f.kind == futureSignal && int(f.received) == i }
	if q := m.signals[name]; q != nil && (slices.Contains(q.received, i) || slices.ContainsFunc(q.bound, has)) {
		return true
	}

	return m.inbox != nil && slices.ContainsFunc(m.inbox.ready, has)
}

// remove takes away a signal that has reached the code.
func (m *machine) remove(name string, i int) {
	has := func(f *Future) bool { return f.kind == futureSignal && int(f.received) == i }
	if b := m.inbox; b != nil {
		b.ready = slices.DeleteFunc(b.ready, has)
	}
	q := m.signals[name]
	if q == nil {
		return
	}
	if k := slices.Index(q.received, i); k >= 0 {
		q.received = slices.Delete(q.received, k, k+1)
	}
	if k := slices.IndexFunc(q.bound, has); k >= 0 {
		m.unresolve(q.bound[k])
	}
}

// unresolve makes a receive wait again after its signal was dropped. Every coroutine is parked at
// that moment. If a coroutine waits for several futures, unresolve corrects its count of resolved
// futures.
func (m *machine) unresolve(f *Future) {
	m.unbindSignal(f)
	f.done, f.out, f.received, f.pos, f.sub = false, model.Payload{}, 0, 0, 0
	for n := m.coroutines.first; n != nil; n = n.next {
		if c := n.value; c.wait.active && slices.Contains(c.wait.members, f) {
			c.wait.need++
			f.waiters = append(f.waiters, c)
		}
	}

	if len(f.waiters) == 0 {
		return
	}

	if q := m.signalQueue(f.name); len(q.received) > 0 {
		m.bindSignal(f, q.pop())
		return
	}

	m.queue(f)
}
