package faultstore

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// Orphans are late commits. Their senders got an error of class Unknown, and the store has neither
// applied nor refused these commits yet. Orphans outlive the process that sent them.
//
// When an orphan is released, it goes to the store unchanged. The store decides whether to apply
// the orphan, and tests check that decision. Orphans counts the commits that the store applied and
// the commits that it refused.
type Orphans struct {
	mu       sync.Mutex // protects the fields below; not held while an orphan is applied
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
	due   int // the call before which the orphan is released; 0 for never
	once  sync.Once
	err   error
}

// NewOrphans creates an empty set for the wrappers of one store.
func NewOrphans() *Orphans { return &Orphans{} }

// ErrNoOrphan means that there is no late commit with that number.
var ErrNoOrphan = errors.New("no such orphan")

// Len returns the number of undecided late commits.
func (o *Orphans) Len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.pending)
}

// CountLanded returns the number of late commits that the store applied.
func (o *Orphans) CountLanded() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.landed
}

// CountExcluded returns the number of late commits that the store refused, because the fence is
// gone or has moved, or because of their rows.
func (o *Orphans) CountExcluded() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.excluded
}

// Release sends the i-th undecided commit, oldest first, to the store, and returns the answer. The
// sender of the commit never gets that answer.
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

// Drop forgets the i-th undecided commit, as if its connection was cut and the database had rolled
// it back.
func (o *Orphans) Drop(i int) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if i < 0 || i >= len(o.pending) {
		return ErrNoOrphan
	}
	o.pending = slices.Delete(o.pending, i, i+1)
	return nil
}

// add takes a commit over from its sender. It copies the batch and its slices, because the sender
// will use them again under another epoch. The copy shares the rows with the sender, which must not
// change them while a commit is in flight.
func (o *Orphans) add(inner store.Store, b *store.Batch, f Fault) {
	late := &orphan{inner: inner, batch: b.Clone(), begun: f.Kind == LateBegun}
	o.mu.Lock()
	defer o.mu.Unlock()
	if f.After > 0 {
		late.due = o.calls + f.After
	}
	o.pending = append(o.pending, late)
}

// tick counts a call, and releases the orphans that are due before this call.
func (o *Orphans) tick() {
	o.mu.Lock()
	o.calls++
	now, none := o.calls, len(o.pending) == 0
	o.mu.Unlock()
	if !none {
		o.release(func(late *orphan) bool { return late.due > 0 && late.due <= now })
	}
}

// finish applies the late commits that have begun on a lane, or on all lanes of a node if lane is
// negative. These commits hold the row of the fence, which the caller needs.
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
		_ = o.apply(late) // the result is in the counters
	}
}

// apply sends an orphan to the store once. A concurrent second call waits until the store has
// decided.
func (o *Orphans) apply(late *orphan) error {
	late.once.Do(func() {
		// No caller waits for the commit, so no context bounds it.
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
