package lane

import (
	"container/list"
	"time"
)

const (
	defaultEntityIdle  = time.Minute
	entityCacheEntries = 100_000
	entityCacheBytes   = 64 << 20
)

// resting are entities in memory that nobody calls, those first that nobody has called for longest.
type resting struct {
	list  *list.List
	bytes int
}

func (r *resting) full() bool { return r.list.Len() > entityCacheEntries || r.bytes > entityCacheBytes }
