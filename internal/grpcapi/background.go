package grpcapi

import "sync"

// background counts goroutines. Unlike with a sync.WaitGroup, a goroutine may start while a caller
// waits for Idle.
type background struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // closed when n is zero; nil if no goroutine waits
}

// Go runs do in a goroutine and counts it.
func (b *background) Go(do func()) {
	b.mu.Lock()
	b.n++
	b.mu.Unlock()
	go func() {
		defer b.done()
		do()
	}()
}

func (b *background) done() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.n--
	if b.n == 0 && b.idle != nil {
		close(b.idle)
		b.idle = nil
	}
}

// Idle returns a channel that is closed as soon as no goroutine runs.
func (b *background) Idle() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.n == 0 {
		none := make(chan struct{})
		close(none)
		return none
	}
	if b.idle == nil {
		b.idle = make(chan struct{})
	}
	return b.idle
}
