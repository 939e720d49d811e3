package lane

import (
	"github.com/perdure/perdure/internal/model"
)

// restUntil has an entity that nobody calls stay in memory for a while: the next call needs not read it. Others make room for it.
func (l *Lane) restUntil(now model.Time, e *entry) {
	l.rest(now, e)
	for l.resting.full() && l.resting.list.Len() > 1 {
		if !l.unrest(now, l.resting.list.Front().Value.(*entry)) {
			return // it is behind the others now; the next one that comes to rest tries the next
		}
	}
}

// rest puts an entity behind those that rest.
func (l *Lane) rest(now model.Time, e *entry) {
	idle := defaultEntityIdle
	if t := l.entityType(e); t != nil && t.Idle > 0 {
		idle = t.Idle
	}
	l.wakeUp(e)
	a := e.actor
	a.until, a.bytes = now.Add(idle), 0
	if a.entity != nil {
		a.bytes = a.entity.Size()
	}
	a.rest = l.resting.list.PushBack(e)
	l.resting.bytes += a.bytes
}

// wakeUp takes an entity from those that rest.
func (l *Lane) wakeUp(e *entry) {
	if a := e.actor; a.rest != nil {
		l.resting.list.Remove(a.rest)
		l.resting.bytes -= a.bytes
		a.rest = nil
	}
}

// unrest lets an entity leave memory. It reports false, and has it rest on, when something of it is still under way.
func (l *Lane) unrest(now model.Time, e *entry) bool {
	l.wakeUp(e)
	l.maybeDrop(e)
	if !e.gone {
		l.rest(now, e)
	}
	return e.gone
}

// unrestAll lets those leave memory whose time is over.
func (l *Lane) unrestAll(now model.Time) {
	for n := l.resting.list.Len(); n > 0; n-- {
		e := l.resting.list.Front().Value.(*entry)
		if e.actor.until > now {
			return
		}
		l.unrest(now, e)
	}
}

func (l *Lane) restWake() model.Time {
	if f := l.resting.list.Front(); f != nil {
		return f.Value.(*entry).actor.until
	}
	return 0
}
