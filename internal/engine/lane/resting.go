package lane

import (
	"container/list"
	"time"

	"github.com/perdure/perdure/internal/model"
)

const (
	defaultEntityIdle  = time.Minute
	entityCacheEntries = 100_000
	entityCacheBytes   = 64 << 20
)

// resting are entities in memory that no caller needs, ordered by their last call. For the next
// call of such an entity, the lane does not have to read it.
type resting struct {
	list  *list.List
	bytes int
}

// full reports whether the oldest entities have to leave memory early to make room.
func (r *resting) full() bool {
	return r.list.Len() > 1 && (r.list.Len() > entityCacheEntries || r.bytes > entityCacheBytes)
}

// add puts an entity at the end of the line of resting entities.
func (r *resting) add(e *entry, until model.Time) {
	r.remove(e)
	a := e.actor
	a.until, a.bytes = until, 0
	if a.entity != nil {
		a.bytes = a.entity.Size()
	}
	a.rest = r.list.PushBack(e)
	r.bytes += a.bytes
}

// remove takes an entity out of the line.
func (r *resting) remove(e *entry) {
	if a := e.actor; a.rest != nil {
		r.list.Remove(a.rest)
		r.bytes -= a.bytes
		a.rest = nil
	}
}

// first returns the entity that has had no call for the longest time, or nil if no entity rests.
func (r *resting) first() *entry {
	if f := r.list.Front(); f != nil {
		return f.Value.(*entry)
	}
	return nil
}

// wake returns when the first entity must leave memory. It returns zero if none rests.
func (r *resting) wake() model.Time {
	if e := r.first(); e != nil {
		return e.actor.until
	}
	return 0
}
