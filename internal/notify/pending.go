package notify

import "sync"

// mostPending bounds the hints that wait; a hub drops further ones.
const mostPending = 10_000

// Pending has the hints that wait to be sent or passed on, each once. Its methods never wait.
type Pending struct {
	mu    sync.Mutex
	hints map[Hint]struct{}
	wake  chan struct{}
}

// NewPending returns an empty Pending.
func NewPending() *Pending {
	return &Pending{hints: make(map[Hint]struct{}), wake: make(chan struct{}, 1)}
}

// Add adds a hint, unless too many wait.
func (p *Pending) Add(h Hint) {
	p.mu.Lock()
	if len(p.hints) < mostPending {
		p.hints[h] = struct{}{}
	}
	p.mu.Unlock()
	ring(p.wake)
}

// Wake returns a channel that receives a value when hints may be waiting.
func (p *Pending) Wake() <-chan struct{} { return p.wake }

// Take returns the waiting hints and removes them.
func (p *Pending) Take() map[Hint]struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	taken := p.hints
	p.hints = make(map[Hint]struct{})
	return taken
}
