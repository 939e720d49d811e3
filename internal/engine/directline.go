package engine

import (
	"context"
	"sync"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/fault"
)

// Bounds of a line. A line takes a quarter of the requests that another node may send before this
// node has taken them. So if one lane has no room, the connection still has room for requests to
// other lanes.
const (
	maxLine      = 1024
	maxLineBytes = 4 << 20 // one op may exceed it
)

// errLineFull means that a lane has no room for a request of another node, so that the request must
// go through the store.
var errLineFull = fault.New(fault.Exhausted, "the lane has no room")

// line holds, in order, the ops (inputs for a lane) that other nodes have sent while the lane had
// no room for them. The connections continue to serve other lanes. The zero value is empty.
type line struct {
	mu      sync.Mutex
	waiting []lined
	bytes   int
	served  bool // a goroutine puts the waiting ops into the inbox
}

// lined is an op in a line.
type lined struct {
	ctx  context.Context //nolint:containedctx // the context of its connection
	op   op
	then func(error)
}

// put passes an op to the lane. It does not block. The callback gets the result when the op no
// longer waits for room.
func (n *line) put(ctx context.Context, s *laneShell, o op, then func(error)) {
	if o.message != nil {
		o.bytes = o.message.Size()
	}
	ok, err := n.tryPut(ctx, s, o, then)
	switch {
	case err != nil:
		then(err)
	case ok:
		then(nil)
	}
}

// tryPut puts an op into the inbox, or into the line. ok means that the op is in the inbox.
func (n *line) tryPut(ctx context.Context, s *laneShell, o op, then func(error)) (ok bool, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.served {
		if ok, err := s.inbox.tryPut(o); ok || err != nil {
			return ok, err
		}
	}
	if len(n.waiting) >= maxLine || n.bytes >= maxLineBytes {
		return false, errLineFull
	}
	if !n.served && !s.inc.eng.beside.run(func(context.Context) { n.serve(s) }) {
		return false, lane.ErrNotOwner // the engine ends
	}
	n.served = true
	n.waiting = append(n.waiting, lined{ctx, o, then})
	n.bytes += o.bytes
	return false, nil
}

// serve puts the ops into the inbox until the line is empty. An op leaves the line when its
// connection ends.
func (n *line) serve(s *laneShell) {
	for {
		n.mu.Lock()
		if len(n.waiting) == 0 {
			n.served, n.waiting = false, nil
			n.mu.Unlock()
			return
		}
		first := n.waiting[0]
		n.waiting[0] = lined{}
		n.waiting = n.waiting[1:]
		n.mu.Unlock()

		err := s.inbox.put(first.ctx, first.op)
		n.mu.Lock()
		n.bytes -= first.op.bytes
		n.mu.Unlock()
		first.then(err)
	}
}

// When another node waits for the end of an execution, this node may have to read the store. looks
// runs these reads, at most maxLooks at a time. Further reads wait. The zero value runs none.
type looks struct {
	mu      sync.Mutex
	running int
	waiting []func(ctx context.Context)
}

// maxLooks bounds the reads of looks that are in progress.
const maxLooks = 32

// start runs a read as soon as possible. It does not block.
func (k *looks) start(e *Engine, look func(ctx context.Context)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.running == maxLooks {
		// Package peerlink bounds the requests, and so the reads that wait.
		k.waiting = append(k.waiting, look)
		return
	}
	if e.beside.run(func(ctx context.Context) { k.run(ctx, look) }) {
		k.running++
	}
}

// run runs a read, and then reads that wait.
func (k *looks) run(ctx context.Context, look func(ctx context.Context)) {
	for look != nil {
		look(ctx)
		look = k.next()
	}
}

// next takes the first waiting read. It returns nil if there is none.
func (k *looks) next() (look func(ctx context.Context)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.waiting) == 0 {
		k.running--
		k.waiting = nil
		return nil
	}
	look = k.waiting[0]
	k.waiting[0] = nil
	k.waiting = k.waiting[1:]
	return look
}
