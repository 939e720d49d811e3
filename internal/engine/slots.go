package engine

import (
	"sync"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
)

// slots counts how much work a worker has from all lanes of an incarnation. The next incarnation
// starts with new slots, because the lanes take everything back from the worker when an incarnation
// ends.
type slots struct {
	limit int
	wake  func(lane int) // tells a lane that a slot is free; does not block

	mu      sync.Mutex
	used    int
	waiting []bool // lanes that have found no free slot since they were last woken
	// guests are other owners that found no free slot, with the functions that wake them.
	guests map[any]func()
}

// newSlots returns the slots of a worker. It returns nil if the worker takes any number of runs or
// calls.
func (inc *incarnation) newSlots(id lane.WorkerID, limit int) *slots {
	if limit <= 0 {
		return nil
	}
	wake := func(i int) {
		inc.lanes[i].inbox.result(func(l *lane.Lane, now model.Time) { l.HandOut(now, id) })
	}
	return &slots{limit: limit, wake: wake, waiting: make([]bool, len(inc.lanes)), guests: map[any]func(){}}
}

// capacity returns the slots in the form that lanes use. It returns nil if the worker takes any
// number of runs or calls.
func (s *slots) capacity() lane.Capacity {
	if s == nil {
		return nil
	}
	return s
}

// TakeFor implements crew.SharedSlots.
func (s *slots) TakeFor(key any, wake func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used >= s.limit {
		s.guests[key] = wake
		return false
	}
	s.used++
	return true
}

// Forget implements crew.SharedSlots.
func (s *slots) Forget(key any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.guests, key)
}

// Take implements lane.Capacity.
func (s *slots) Take(lane int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used >= s.limit {
		s.waiting[lane] = true
		return false
	}
	s.used++
	return true
}

// Keep implements lane.Capacity.
func (s *slots) Keep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used++
}

// Free implements lane.Capacity. It wakes all waiting lanes, because the first one may no longer
// need a slot.
func (s *slots) Free() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used--
	if s.used >= s.limit {
		return
	}
	for i, waits := range s.waiting {
		if waits {
			s.waiting[i] = false
			s.wake(i)
		}
	}
	for key, wake := range s.guests {
		delete(s.guests, key)
		wake()
	}
}

// Limit implements lane.Capacity.
func (s *slots) Limit() int { return s.limit }
