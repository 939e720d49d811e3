package faultstore

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// Orphans are commits whose sender has been told that the outcome is unknown, and which are not
// decided yet. They outlive their process.
//
// A released orphan goes to the store as it was sent. Whether it lands is up to the store: that is
// the promise under test. Those that landed and those that the fence excluded are counted.
type Orphans struct {
	mu       sync.Mutex // protects what follows; not held while an orphan is applied
	calls    int
	pending  []*orphan
	landed   int
	excluded int
}

// orphan is one late commit.
type orphan struct {
	inner store.Store
	batch *store.Batch
	begun bool
	due   int // the call before which it is released; 0 for never
	once  sync.Once
	err   error
}

// NewOrphans makes an empty set for the wrappers of one store.
func NewOrphans() *Orphans { return &Orphans{} }

// ErrNoOrphan tells that there is no late commit of that number.
var ErrNoOrphan = errors.New("no such orphan")

// Len is how many late commits are undecided.
func (o *Orphans) Len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.pending)
}

// Landed is how many late commits were applied.
func (o *Orphans) Landed() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.landed
}

// Excluded is how many late commits the store turned away, by a fence that was raised or has moved,
// or because of their rows.
func (o *Orphans) Excluded() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.excluded
}

// Release sends the i-th undecided commit, oldest first, to the store, and returns what the store
// says. Its sender never learns of it.
func (o *Orphans) Release(i int) error {
	o.mu.Lock()
	if i < 0 || i >= len(o.pending) {
		o.mu.Unlock()
		return ErrNoOrphan
	}
	late := o.pending[i]
	o.mu.Unlock()
	return o.apply(late)
}

// ReleaseAll sends all undecided commits to the store, oldest first.
func (o *Orphans) ReleaseAll() {
	o.release(func(*orphan) bool { return true })
}

// Drop forgets the i-th undecided commit: its connection was cut and the database has rolled it
// back.
func (o *Orphans) Drop(i int) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if i < 0 || i >= len(o.pending) {
		return ErrNoOrphan
	}
	o.pending = slices.Delete(o.pending, i, i+1)
	return nil
}

// add takes a commit over from its sender. The rows are shared with the sender, who must not change
// them, as with every commit in flight; the batch and its slices are copies, since the sender will
// send them again under another epoch.
func (o *Orphans) add(inner store.Store, b *store.Batch, f Fault) {
	late := &orphan{inner: inner, batch: b.Clone(), begun: f.Kind == LateBegun}
	o.mu.Lock()
	defer o.mu.Unlock()
	if f.After > 0 {
		late.due = o.calls + f.After
	}
	o.pending = append(o.pending, late)
}

// tick counts a call and releases what is due before it.
func (o *Orphans) tick() {
	o.mu.Lock()
	o.calls++
	now, none := o.calls, len(o.pending) == 0
	o.mu.Unlock()
	if !none {
		o.release(func(late *orphan) bool { return late.due > 0 && late.due <= now })
	}
}

// finish applies the commits that have begun on a lane, or on all lanes of a node when lane is
// negative: somebody needs their fence.
func (o *Orphans) finish(node model.NodeID, lane int) {
	o.release(func(late *orphan) bool {
		return late.begun && late.batch.Lane.Node == node && (lane < 0 || late.batch.Lane.Lane == lane)
	})
}

// release applies all undecided commits that match, oldest first.
func (o *Orphans) release(match func(late *orphan) bool) {
	o.mu.Lock()
	var ready []*orphan
	for _, late := range o.pending {
		if match(late) {
			ready = append(ready, late)
		}
	}
	o.mu.Unlock()
	for _, late := range ready {
		_ = o.apply(late) // counted there
	}
}

// apply sends an orphan to the store, once. Whoever comes second waits until it is decided.
func (o *Orphans) apply(late *orphan) error {
	late.once.Do(func() {
		// Nobody waits for it, so nobody's context bounds it.
		_, late.err = late.inner.Commit(context.Background(), late.batch)
		o.mu.Lock()
		defer o.mu.Unlock()
		if late.err == nil {
			o.landed++
		} else {
			o.excluded++
		}
		o.pending = slices.DeleteFunc(o.pending, func(p *orphan) bool { return p == late })
	})
	return late.err
}
