package engine

import (
	"slices"
	"sync"

	"github.com/perdure/perdure/internal/engine/lane"
)

// runReads are the runs that a lane wants to read. For a store, one call that reads many runs costs
// little more than a call that reads one. So while one reader is at work, another one starts only
// if enough runs wait. If fewer runs wait, the next call reads them together. If no reader is at
// work, a reader reads a run immediately.
type runReads struct {
	mu      sync.Mutex
	news    sync.Cond
	waiting []lane.Load
	reading int // readers at work
	closed  bool
}

const (
	mostTogether = 64 // runs that are read with one call
	enoughRuns   = 16 // if this many wait, one more reader starts
)

func newRunReads() *runReads {
	r := new(runReads)
	r.news.L = &r.mu
	return r
}

// add asks for a run. It never waits, because the lane bounds how many reads it asks for.
func (r *runReads) add(ld lane.Load) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = append(r.waiting, ld)
	if r.ready() {
		r.news.Signal()
	}
}

func (r *runReads) ready() bool {
	return len(r.waiting) > 0 && (r.reading == 0 || len(r.waiting) >= enoughRuns)
}

// take waits for runs to read. It returns them in the memory of spare, if they fit there. The
// caller calls leave afterwards. After close, when no run waits, take returns nothing.
func (r *runReads) take(spare []lane.Load) []lane.Load {
	r.mu.Lock()
	defer r.mu.Unlock()
	for !r.ready() {
		if r.closed && len(r.waiting) == 0 {
			return nil
		}
		r.news.Wait()
	}

	n := min(len(r.waiting), mostTogether)
	runs := append(spare[:0], r.waiting[:n]...)
	r.waiting = slices.Delete(r.waiting, 0, n)
	r.reading++
	return runs
}

// leave says that a reader is no longer at work, so that another reader may start. The reader calls
// it when its read has ended, or when its read takes long.
func (r *runReads) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reading--
	if r.closed {
		r.news.Broadcast()
	} else if r.ready() {
		r.news.Signal()
	}
}

// close ends the readers.
func (r *runReads) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.news.Broadcast()
}
