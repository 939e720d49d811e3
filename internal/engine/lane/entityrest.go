package lane

import "github.com/perdure/perdure/internal/model"

// restUntil keeps an entity in memory for a while, although no caller needs it now. Other entities
// leave memory to make room.
func (l *Lane) restUntil(now model.Time, e *entry) {
	l.rest(now, e)
	for l.resting.full() {
		if !l.unrest(now, l.resting.first()) {
			// The oldest entity has to stay, and is now last in the line. When another entity comes
			// to rest, the lane tries to drop the entity that is first in the line by then.
			return
		}
	}
}

// rest puts an entity at the end of the line of resting entities.
func (l *Lane) rest(now model.Time, e *entry) {
	idle := defaultEntityIdle
	if t := l.entityType(e); t != nil && t.Idle > 0 {
		idle = t.Idle
	}
	l.resting.add(e, now.Add(idle))
}

// unrest lets an entity leave memory. If work of the entity is still in flight, unrest returns
// false, and the entity continues to rest.
func (l *Lane) unrest(now model.Time, e *entry) bool {
	l.resting.remove(e)
	l.maybeDrop(e)
	if !e.gone {
		l.rest(now, e)
	}
	return e.gone
}

// unrestAll lets the entities whose time is over leave memory. It looks at each entity once.
func (l *Lane) unrestAll(now model.Time) {
	for n := l.resting.list.Len(); n > 0; n-- {
		e := l.resting.first()
		if e.actor.until > now {
			return
		}
		l.unrest(now, e)
	}
}
