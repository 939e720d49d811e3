package engine

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// servedList caches the list of what the workers of a node can run. Descriptions of runs and
// renewals of the lease need the list, and with ten thousand workers it takes milliseconds to
// build. The zero value is empty.
type servedList struct {
	mu      sync.Mutex
	known   bool
	changes uint64 // the list contains at least this many changes of the workers
	list    []store.Served
}

// get returns the list, and builds it again if the workers have changed since. The caller must read
// the count of changes before it calls get. Then a change that get misses has a higher count, and
// the next call builds the list again.
func (c *servedList) get(changes uint64, build func() []store.Served) []store.Served {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known || c.changes < changes {
		c.known, c.changes, c.list = true, changes, build()
	}
	return c.list
}

// servedByWorkers returns what the workers of the node can run now. Callers share the list, and
// must not change it.
func (e *Engine) servedByWorkers() []store.Served {
	return e.serves.get(e.offerChanges(), e.collectServed)
}

// offerChanges counts all changes that can affect the result of servedByWorkers.
func (e *Engine) offerChanges() uint64 {
	return e.workers.changes.Load() + e.entityWorkers.changes.Load() + e.taskWorkers.changes.Load()
}

// collectServed builds the list of what the workers of the node can run.
func (e *Engine) collectServed() []store.Served {
	var all []store.Served
	for _, s := range e.workers.all() {
		if s.isAway() {
			continue // the node of the worker announces this worker
		}
		for _, name := range s.offer.Workflows {
			all = append(all, store.Served{
				Tenant: s.offer.Tenant, Workflow: name, Version: s.offer.Version, Pinned: slices.Contains(s.offer.Pinned, name),
			})
		}
	}

	for _, s := range e.entityWorkers.all() {
		if s.isAway() {
			continue
		}
		for i := range s.offer.Types {
			all = append(all, store.Served{Tenant: s.offer.Tenant, Workflow: s.offer.Types[i].Type, Version: s.offer.Version})
		}
	}

	// If another node lends a worker, that node announces it.
	for _, s := range e.taskWorkers.all() {
		if !s.node.IsZero() {
			continue
		}
		slots := s.capacity()
		for _, tenant := range s.offer.Tenants {
			all = append(all, store.Served{
				Tenant: tenant, Version: s.offer.Version, Worker: s.offer.Name, Queues: s.offer.Queues, Activities: s.offer.Kinds, Slots: s.offer.Slots, Draining: slots == 0,
				Limits: s.offer.Limits, Breakers: s.offer.Breakers,
			})
		}
	}

	compare := func(a, b store.Served) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Workflow, b.Workflow), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Worker, b.Worker))
	}
	// Several workers of one build announce the same, so one entry is enough.
	slices.SortFunc(all, compare)
	all = slices.CompactFunc(all, func(a, b store.Served) bool { return compare(a, b) == 0 && a.Pinned == b.Pinned })
	return classesOf(all)
}

// classesOf combines remote workers with the same offer into one entry, so that ten thousand of
// them cost as much as one. The list is sorted by name.
func classesOf(all []store.Served) []store.Served {
	classes := map[string]int{}
	out := all[:0:0]
	for i := range all {
		s := all[i]
		if !model.IsRemoteWorker(s.Worker) {
			out = append(out, s)
			continue
		}
		key := fmt.Sprintf("%q", []any{s.Tenant, s.Version, s.Queues, s.Activities, s.Draining, s.Limits, s.Breakers})
		at, known := classes[key]
		if !known {
			classes[key] = len(out)
			out = append(out, s)
			continue
		}
		out[at].Workers = max(out[at].Workers, 1) + 1
		out[at].Slots += s.Slots
	}

	return out
}
