package engine

import (
	"context"
	"slices"
	"sync"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// op is something for a lane to do: one of the two hot inputs, or any other as a function.
type op struct {
	message *model.Message
	fresh   bool // the request id of the message has never been used before
	turn    *model.Turn
	worker  lane.WorkerID
	token   any
	awaits  bool // the message is a start, and the token waits for the end
	report  *model.TaskReport
	task    queue.WorkerID // whose report it is
	do      func(l *lane.Lane, now model.Time)
}

// inbox is the bounded queue in front of a lane. Results of commits and reads have a line of their own that is never full, so
// that a lane without room can always get on with what it has.
type inbox struct {
	limit int
	wake  chan struct{} // capacity 1: there is something to take

	mu      sync.Mutex
	ops     []op
	results []op
	room    chan struct{} // closed when there is room again; nil when nobody waits
	closed  error
}

func newInbox(limit int) *inbox { return &inbox{limit: limit, wake: make(chan struct{}, 1)} }

// put adds an op; it waits while the inbox is full.
func (b *inbox) put(ctx context.Context, o op) error {
	for {
		b.mu.Lock()
		switch {
		case b.closed != nil:
			b.mu.Unlock()
			return b.closed
		case len(b.ops) < b.limit:
			b.ops = append(b.ops, o)
			b.mu.Unlock()
			b.ring()
			return nil
		}
		if b.room == nil {
			b.room = make(chan struct{})
		}
		room := b.room
		b.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return fault.New(fault.Exhausted, "the engine is full: %w", context.Cause(ctx))
		}
	}
}

// putAll adds ops as there is room for them; it waits while there is none. It returns how many were added.
func (b *inbox) putAll(ctx context.Context, ops []op) (n int, err error) {
	for n < len(ops) {
		b.mu.Lock()
		if free := min(b.limit-len(b.ops), len(ops)-n); b.closed == nil && free > 1 {
			b.ops = append(b.ops, ops[n:n+free-1]...)
			n += free - 1
		}
		b.mu.Unlock()
		if err := b.put(ctx, ops[n]); err != nil { // the last one waits, or rings
			return n, err
		}
		n++
	}
	return n, nil
}

// follow adds an op behind those that were put, even when the inbox is full: it does not wait, and overtakes nothing.
func (b *inbox) follow(o op) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed == nil {
		b.ops = append(b.ops, o)
		b.ring()
	}
}

// result adds an op that must not wait. It reports false when the lane has ended.
func (b *inbox) result(do func(l *lane.Lane, now model.Time)) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed != nil {
		return false
	}
	b.results = append(b.results, op{do: do})
	b.ring()
	return true
}

// empty reports whether nothing waits.
func (b *inbox) empty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.ops)+len(b.results) == 0
}

// len is how many ops wait.
func (b *inbox) len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.ops)
}

func (b *inbox) ring() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// take empties the inbox; only the line of results when full is set. The given slices are used for what comes next.
func (b *inbox) take(full bool, spareOps, spareResults []op) (ops, results []op) {
	b.mu.Lock()
	defer b.mu.Unlock()
	results, b.results = b.results, spareResults[:0]
	if full {
		return spareOps[:0], results
	}
	ops, b.ops = b.ops, spareOps[:0]
	if b.room != nil {
		close(b.room)
		b.room = nil
	}
	return ops, results
}

// giveBack puts ops back that were taken and not used, before those that have come since.
func (b *inbox) giveBack(ops []op) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ops = append(slices.Clone(ops), b.ops...)
}

// close refuses everything from now on and returns what was left.
func (b *inbox) close(why error) []op {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = why
	left := b.ops
	b.ops, b.results = nil, nil
	if b.room != nil {
		close(b.room)
		b.room = nil
	}
	return left
}
