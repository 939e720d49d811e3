package engine

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// roster holds the sessions of workers that have joined a node, over all of its incarnations. The
// zero value is empty.
type roster[ID ~int, S any] struct {
	mu   sync.Mutex
	next ID
	byID map[ID]*S

	// changes counts changes of the sessions: workers join, leave, stop taking work or start taking
	// it again. It grows after the change is visible.
	changes atomic.Uint64
}

// add creates a session under a new id, and keeps it.
func (r *roster[ID, S]) add(session func(ID) *S) *S {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byID == nil {
		r.byID = map[ID]*S{}
	}
	r.next++
	s := session(r.next)
	r.byID[r.next] = s
	r.changes.Add(1)
	return s
}

func (r *roster[ID, S]) remove(id ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byID, id)
	r.changes.Add(1)
}

// get returns the session with the id, or nil if its worker has left.
func (r *roster[ID, S]) get(id ID) *S {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byID[id]
}

// all returns the current sessions.
func (r *roster[ID, S]) all() []*S {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.AppendSeq(make([]*S, 0, len(r.byID)), maps.Values(r.byID))
}
