package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/perdure/perdure"
)

// crowd is a number of clients outside the measured processes. A balancer sends the calls of the
// clients to the processes in turn. Each client waits for a result before it makes the next call.
type crowd struct {
	clients sync.WaitGroup

	mu      sync.Mutex
	members []*process // the processes that get calls
	next    int        // the number of the process that gets the next call
	closed  bool
	calls   []call
}

// call is a call of a client that has ended.
type call struct {
	key          string
	through      *process
	begun, ended time.Time
	err          error
}

// callTime bounds a call, so that a lost call becomes an error.
const callTime = time.Minute

// openCrowd starts clients that call through the given processes.
func openCrowd(members []*process, clients int) *crowd {
	c := &crowd{members: slices.Clone(members)}
	for i := range clients {
		c.clients.Go(func() {
			for n := 0; ; n++ {
				p := c.pick()
				if p == nil {
					return
				}
				made := makeCall(p, fmt.Sprintf("crowd-%d-%d", i, n))
				p.calls.Done()
				c.mu.Lock()
				c.calls = append(c.calls, made)
				c.mu.Unlock()
			}
		})
	}
	return c
}

// pick returns the process for the next call, or nil if the client must stop. The caller tells the
// process when the call has ended.
func (c *crowd) pick() *process {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || len(c.members) == 0 {
		return nil
	}
	p := c.members[c.next%len(c.members)]
	c.next++
	p.calls.Add(1)
	return p
}

// makeCall runs a workflow of three steps through a process.
func makeCall(p *process, key string) call {
	made := call{key: key, through: p, begun: time.Now()}
	_, made.err = ask[perdure.Void](p, "run", key)
	made.ended = time.Now()
	return made
}

// run executes the order "run" of the parent process: it runs a workflow of three steps.
func (c *child) run(key string) (perdure.Void, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	_, err := three.Run(c.app.With(ctx), 1, perdure.RawKey(key))
	return perdure.Void{}, err
}

// join lets the balancer send calls to a process.
func (c *crowd) join(p *process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.members = append(c.members, p)
}

// leave makes the balancer send no further calls to a process.
func (c *crowd) leave(p *process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.members = slices.DeleteFunc(c.members, func(o *process) bool { return o == p })
}

// close stops the clients after their last call, and returns all calls.
func (c *crowd) close() []call {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.clients.Wait()
	return c.calls
}
