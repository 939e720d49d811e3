package grpcapi

import (
	"context"
	"sync"
)

// group counts what goes on beside the streams of workers. Unlike a sync.WaitGroup it may grow
// while a caller waits for it: a worker says something at the moment when the service ends. The
// zero value is empty.
type group struct {
	mu     sync.Mutex
	count  int
	closed bool
	empty  chan struct{} // closed when the group is closed and empty; nil before Close
}

// add adds one member. It returns false when the group is closed.
func (g *group) add() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.count++
	return true
}

// done removes a member.
func (g *group) done() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.count--
	if g.closed && g.count == 0 {
		close(g.empty)
	}
}

// run runs a function in a goroutine that is a member. It returns false when the group is closed.
func (g *group) run(do func()) bool {
	if !g.add() {
		return false
	}
	go func() {
		defer g.done()
		do()
	}()
	return true
}

// close takes no more members, and waits until the group is empty or ctx ends.
func (g *group) close(ctx context.Context) {
	g.mu.Lock()
	if !g.closed {
		g.closed, g.empty = true, make(chan struct{})
		if g.count == 0 {
			close(g.empty)
		}
	}
	empty := g.empty
	g.mu.Unlock()

	select {
	case <-empty:
	case <-ctx.Done():
	}
}
