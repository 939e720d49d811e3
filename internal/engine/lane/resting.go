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

// resting are entities in memory that no caller needs, the one first that was called longest ago.
// The next call of such an entity does not have to read it.
type resting struct {
	list  *list.List
	bytes int
}

// full reports whether entities have to leave memory before their time.
func (r *resting) full() bool {
	return r.list.Len() > 1 && (r.list.Len() > entityCacheEntries || r.bytes > entityCacheBytes)
}

// add puts an entity behind those that rest.
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

// remove takes an entity from those that rest.
func (r *resting) remove(e *entry) {
	if a := e.actor; a.rest != nil {
		r.list.Remove(a.rest)
		r.bytes -= a.bytes
		a.rest = nil
	}
}

// first is the entity that was called longest ago; nil when none rests.
func (r *resting) first() *entry {
	if f := r.list.Front(); f != nil {
		return f.Value.(*entry)
	}
	return nil
}

// wake is when the first entity is to leave memory; zero when none rests.
func (r *resting) wake() model.Time {
	if e := r.first(); e != nil {
		return e.actor.until
	}
	return 0
}
