package lane

import "github.com/perdure/perdure/internal/model"

// restUntil lets an entity that no caller needs stay in memory for a while. Others make room for
// it.
func (l *Lane) restUntil(now model.Time, e *entry) {
	l.rest(now, e)
	for l.resting.full() {
		if !l.unrest(now, l.resting.first()) {
			// It rests behind the others now; the next entity that comes to rest tries the next
			// one.
			return
		}
	}
}

// rest puts an entity behind those that rest.
func (l *Lane) rest(now model.Time, e *entry) {
	idle := defaultEntityIdle
	if t := l.entityType(e); t != nil && t.Idle > 0 {
		idle = t.Idle
	}
	l.resting.add(e, now.Add(idle))
}

// unrest lets an entity leave memory. It reports false, and lets the entity rest on, when something
// of it is still under way.
func (l *Lane) unrest(now model.Time, e *entry) bool {
	l.resting.remove(e)
	l.maybeDrop(e)
	if !e.gone {
		l.rest(now, e)
	}
	return e.gone
}

// unrestAll lets entities leave memory whose time is over. It looks at each of them once.
func (l *Lane) unrestAll(now model.Time) {
	for n := l.resting.list.Len(); n > 0; n-- {
		e := l.resting.first()
		if e.actor.until > now {
			return
		}
		l.unrest(now, e)
	}
}
