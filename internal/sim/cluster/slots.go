package cluster

import (
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/scenario"
)

// slots counts the runs or calls that a worker has from all lanes of an incarnation, as the slots
// of the engine do.
type slots struct {
	inc         *incarnation
	id          lane.WorkerID
	limit, used int
	waiting     []bool
	kept        *bool // set when the worker keeps work that it already had, even if no slot is free
}

// newSlots returns the slots of a worker; nil if the worker takes any number of runs or calls.
func (inc *incarnation) newSlots(id lane.WorkerID, limit int, kept *bool) lane.Capacity {
	if limit == 0 {
		return nil
	}
	return &slots{inc: inc, id: id, limit: limit, waiting: make([]bool, len(inc.Shells)), kept: kept}
}

// Take implements lane.Capacity.
func (s *slots) Take(lane int) bool {
	if s.used >= s.limit {
		s.inc.p.Cluster.Did(scenario.OpNoSlot)
		s.waiting[lane] = true
		return false
	}
	s.used++
	return true
}

// Keep implements lane.Capacity.
func (s *slots) Keep() {
	s.used++
	*s.kept = true
}

// Free implements lane.Capacity.
func (s *slots) Free() {
	s.used--
	if s.used < 0 {
		s.inc.p.Cluster.Fail("I21: a slot of worker %d of %s was given back twice", s.id, s.inc.p.Name())
	}
	if s.used >= s.limit {
		return
	}
	for i, sh := range s.inc.Shells {
		if s.waiting[i] {
			s.waiting[i] = false
			sh.result(func(now model.Time) { sh.Lane.HandOut(now, s.id) })
		}
	}
}

// Limit implements lane.Capacity.
func (s *slots) Limit() int { return s.limit }
