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

// op is an input for a lane. The most frequent inputs, which are messages, turns and reports, have
// fields of their own. Any other input is a function.
type op struct {
	message *model.Message
	fresh   bool // according to the sender, the request id of the message is new; see isFresh
	turn    *model.Turn
	worker  lane.WorkerID
	token   any
	awaits  bool // the message is a start, and the caller with the token waits for the end
	// tenure is set for a message that came over a direct connection of another node. It is how
	// often this node had acquired shards at a time when the other node certainly still used that
	// connection. arrived is when that message arrived. See isFresh.
	tenure  int64
	arrived model.Time
	bytes   int // size of the message (the inbox sets it), or of the messages that do passes on
	report  *model.TaskReport
	task    queue.WorkerID // the worker that reports
	do      func(l *lane.Lane, now model.Time)
}

// inbox is the queue in front of a lane. Results of commits and reads have a queue of their own
// without a bound, so that a lane without room can always finish its work. The inbox bounds the
// number of other ops, and the bytes of messages. The bound on bytes does not apply to turns and to
// reports of workers: workers have a limited amount of work at a time, and callers wait for its
// results. follow ignores both bounds.
type inbox struct {
	limit    int
	maxBytes int
	wake     chan struct{} // capacity 1: there is something to take

	mu      sync.Mutex
	ops     []op
	results []op
	bytes   int           // of messages that were put and not applied yet
	room    chan struct{} // closed when there is room again; nil while no caller waits
	closed  error
}

func newInbox(limit, maxBytes int) *inbox {
	return &inbox{limit: limit, maxBytes: maxBytes, wake: make(chan struct{}, 1)}
}

// hasRoom reports whether there is room for an op. There is room if fewer ops than the limit wait.
// For an op with bytes, the bytes that already wait must also be below their limit. Its own size
// does not matter. So a large message waits no longer than a small one, and a message that is
// larger than the limit passes as well.
func (b *inbox) hasRoom(o *op) bool {
	return len(b.ops) < b.limit && (o.message == nil && o.bytes == 0 || b.bytes < b.maxBytes)
}

// add appends an op.
func (b *inbox) add(o op) {
	b.ops = append(b.ops, o)
	b.bytes += o.bytes
}

// tryPut adds an op if there is room.
func (b *inbox) tryPut(o op) (ok bool, err error) {
	if o.message != nil {
		o.bytes = o.message.Size()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed != nil {
		return false, b.closed
	}
	if !b.hasRoom(&o) {
		return false, nil
	}
	b.add(o)
	b.ring()
	return true, nil
}

// put adds an op. It blocks while the inbox is full.
func (b *inbox) put(ctx context.Context, o op) error {
	if o.message != nil {
		o.bytes = o.message.Size()
	}

	for {
		b.mu.Lock()
		switch {
		case b.closed != nil:
			b.mu.Unlock()
			return b.closed
		case b.hasRoom(&o):
			b.add(o)
			b.mu.Unlock()
			b.ring()
			return nil
		}

		if b.room == nil {
			b.room = make(chan struct{})
		}
		room, waiting, bytes := b.room, len(b.ops), b.bytes
		b.mu.Unlock()

		select {
		case <-room:
		case <-ctx.Done():
			return fault.New(fault.Exhausted, "the engine is full: %d requests with %d bytes wait for it: %w", waiting, bytes, context.Cause(ctx))
		}
	}
}

// putAll adds ops as there is room for them, and blocks while there is no room. It returns how many
// were added.
func (b *inbox) putAll(ctx context.Context, ops []op) (n int, err error) {
	for n < len(ops) {
		b.mu.Lock()
		for ; b.closed == nil && n < len(ops)-1 && b.hasRoom(&ops[n]); n++ {
			ops[n].bytes = ops[n].message.Size()
			b.add(ops[n])
		}
		b.mu.Unlock()
		b.ring() // the next op may have to wait until these have been applied
		if err := b.put(ctx, ops[n]); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// follow adds an op after the ops that were put before, even if the inbox is full. It does not
// block, and the op overtakes no other.
func (b *inbox) follow(o op) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed == nil {
		b.ops = append(b.ops, o)
		b.ring()
	}
}

// result adds an op that must not wait. It returns false if the lane has ended.
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

// len returns how many ops wait.
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

// take removes and returns everything that waits. If full is set, the lane has no room for further
// inputs, and take returns only results. The inbox reuses the given slices. The bytes of the
// returned ops stay counted until the caller calls releaseBytes. The caller must pass ops that it
// does not use to giveBack.
func (b *inbox) take(full bool, spareOps, spareResults []op) (ops, results []op) {
	b.mu.Lock()
	defer b.mu.Unlock()
	results, b.results = b.results, spareResults[:0]
	if full {
		return spareOps[:0], results
	}
	ops, b.ops = b.ops, spareOps[:0]
	b.makeRoom()
	return ops, results
}

// makeRoom wakes the callers that wait for room.
func (b *inbox) makeRoom() {
	if b.room != nil {
		close(b.room)
		b.room = nil
	}
}

// releaseBytes frees the given number of bytes, because the lane has applied messages of that size.
func (b *inbox) releaseBytes(bytes int) {
	if bytes == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bytes -= bytes
	b.makeRoom()
}

// giveBack puts back ops that were taken and not used, before the ops that have arrived since.
func (b *inbox) giveBack(ops []op) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ops = append(slices.Clone(ops), b.ops...)
}

// close refuses all further ops, and returns the ops that were left.
func (b *inbox) close(why error) []op {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = why
	left := b.ops
	b.ops, b.results, b.bytes = nil, nil, 0
	b.makeRoom()
	return left
}
