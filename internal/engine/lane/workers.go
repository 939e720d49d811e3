package lane

import "github.com/perdure/perdure/internal/model"

// WorkerID names a worker of this process. Zero is nobody.
type WorkerID int

type kind struct{ tenant, workflow string }

// workers knows who offers what.
type workers struct {
	offers map[kind][]offer
	turn   map[kind]int
	gen    uint64
	// unserved are runs that nobody here can continue, by kind.
	unserved map[kind][]*entry
	here     map[WorkerID]bool
	leaving  map[WorkerID]bool
}

// offer is a worker that runs a workflow, and the version of its code.
type offer struct {
	id      WorkerID
	version string
	pinned  bool // it continues only pinned runs of its version

	entity *model.EntityType // what it offers, when that is an entity or a service
}

func newWorkers() workers {
	return workers{offers: map[kind][]offer{}, turn: map[kind]int{}, unserved: map[kind][]*entry{}, here: map[WorkerID]bool{}, leaving: map[WorkerID]bool{}}
}

// pick chooses among the workers that offer the kind, in turn, and have the version that the run is pinned to, or do not care; 0 when there is
// none.
func (w *workers) pick(k kind, pin string) WorkerID {
	offers := w.offers[k]
	for range offers {
		w.turn[k]++
		if o := offers[w.turn[k]%len(offers)]; pin == "" || o.version == pin || !o.pinned {
			return o.id
		}
	}
	return 0
}
