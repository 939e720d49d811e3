package engine

import (
	"context"
	"sync"
)

// holdings records the hand-overs that a worker has got and not given back, with their generations.
// The zero value is empty.
type holdings[K comparable] struct {
	mu    sync.Mutex
	held  map[K]uint64
	empty chan struct{} // closed when nothing is held; nil while no caller waits for that
}

func (h *holdings[K]) hold(k K, gen uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.held == nil {
		h.held = map[K]uint64{}
	}
	h.held[k] = gen
}

func (h *holdings[K]) release(k K, gen uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.held[k] == gen {
		delete(h.held, k)
	}
	if h.empty != nil && len(h.held) == 0 {
		close(h.empty)
		h.empty = nil
	}
}

// rest waits until nothing is held. The error says why ctx ended first.
func (h *holdings[K]) rest(ctx context.Context) error {
	h.mu.Lock()
	if len(h.held) == 0 {
		h.mu.Unlock()
		return nil
	}

	if h.empty == nil {
		h.empty = make(chan struct{})
	}
	empty := h.empty
	h.mu.Unlock()

	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
