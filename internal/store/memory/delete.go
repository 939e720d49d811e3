package memory

import (
	"slices"

	"github.com/perdure/perdure/internal/store"
)

func (s *Store) applyDeletes(b *store.Batch) error {
	for _, key := range b.Deletes {
		sh := s.peek(key.Shard)
		if sh == nil || sh.runs[key.Run] == nil || !sh.runs[key.Run].started {
			continue
		}
		r := sh.runs[key.Run]
		if r.open() {
			return refuse("%s is open and cannot be deleted", key.Run)
		}
		s.remove(sh, r)
	}
	return nil
}

func (s *Store) applyRemoves(b *store.Batch) {
	for _, key := range b.Removes {
		sh := s.peek(key.Shard)
		if sh == nil || sh.runs[key.Run] == nil {
			continue
		}
		r := sh.runs[key.Run]
		for len(r.timers) > 0 {
			t := s.dropTimer(sh, r, len(r.timers)-1)
			s.addUndo(func() { s.addTimer(sh, r, t) })
		}
		if r.started {
			s.remove(sh, r)
		}
	}
}

// remove removes the row of a run. A later sweep removes its events and the data of its tasks.
func (s *Store) remove(sh *shard, r *run) {
	row, labels, current := r.row, r.labels, sh.current[r.row.Start.Address] == r
	s.listing.remove(r)
	sh.started.remove(r)
	_, leaving := sh.leaving.remove(r)
	_, runnable := sh.runnable.remove(r)
	r.started = false
	r.row, r.labels = store.Execution{}, nil
	if current {
		delete(sh.current, row.Start.Address)
	}
	sh.garbage = append(sh.garbage, r)

	s.addUndo(func() {
		sh.garbage = slices.DeleteFunc(sh.garbage, func(g *run) bool { return g == r })
		r.started, r.row, r.labels = true, row, labels
		s.listing.insert(r)
		sh.started.insert(r)
		if leaving {
			sh.leaving.insert(r)
		}
		if runnable {
			sh.runnable.insert(r)
		}
		if current {
			sh.current[row.Start.Address] = r
		}
	})
}

// sweepGarbage removes the events of deleted runs and the data of their tasks. left is how many
// rows the sweep may remove. sweepGarbage returns how many rows the sweep may remove after that.
func (s *shard) sweepGarbage(left int) int {
	for len(s.garbage) > 0 && left > 0 {
		r := s.garbage[0]
		n := min(len(r.events), left)
		r.events = slices.Delete(r.events, 0, n)
		left = s.sweepTasks(r, left-n)
		if left == 0 { // the entry of the run in garbage is a row too
			break
		}
		left--
		s.garbage = s.garbage[1:]
		if len(r.timers) == 0 && !r.started {
			delete(s.runs, r.key.Run)
		}
	}
	return left
}
