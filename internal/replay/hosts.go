package replay

import "sync"

// hosts are the goroutines that coroutines run on. The worker keeps a few idle ones, because their
// stacks have grown to the size that user code needs. Growing a new stack costs more than starting
// a goroutine.
type hosts struct {
	goroutines *sync.WaitGroup

	mu     sync.Mutex
	idle   []chan *Coroutine
	closed bool
}

// run runs the coroutine on an idle goroutine, or on a new one.
func (h *hosts) run(c *Coroutine) {
	h.mu.Lock()
	if last := len(h.idle) - 1; last >= 0 {
		next := h.idle[last]
		h.idle = h.idle[:last]
		h.mu.Unlock()
		next <- c
		return
	}
	h.mu.Unlock()
	h.goroutines.Add(1)
	go h.host(c)
}

// host runs one coroutine after the other. It ends when the worker unloads its coroutine, when user
// code ends the goroutine, when enough other goroutines are idle, or when the worker closes.
func (h *hosts) host(c *Coroutine) {
	defer h.goroutines.Done()
	mine := make(chan *Coroutine, 1)
	for c != nil {
		c.main()
		c = h.next(mine)
	}
}

// next waits for the next coroutine; nil when the goroutine must end.
func (h *hosts) next(mine chan *Coroutine) *Coroutine {
	h.mu.Lock()
	keep := !h.closed && len(h.idle) < maxIdle
	if keep {
		h.idle = append(h.idle, mine)
	}
	h.mu.Unlock()
	if !keep {
		return nil
	}
	return <-mine
}

// close ends the idle goroutines.
func (h *hosts) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for _, c := range h.idle {
		close(c)
	}
	h.idle = nil
}
