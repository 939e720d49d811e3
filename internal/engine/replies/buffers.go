package replies

import (
	"context"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Bounds of a node.
const (
	// DefaultStreams bounds the streams of a node, DefaultTenantStreams the streams of one tenant,
	// and DefaultEntityStreams the streams of one entity.
	DefaultStreams       = 1_000
	DefaultTenantStreams = 500
	DefaultEntityStreams = 100

	// DefaultWait is how long a request waits for items or for room. After that it returns, and its
	// sender asks again.
	DefaultWait = 10 * time.Second
	// DefaultSilence is how long a caller or a worker may be silent.
	DefaultSilence = 45 * time.Second
	// DefaultIdle is how long a caller may read nothing, even if it sends other requests.
	DefaultIdle = 10 * time.Minute
)

// Config configures the buffers of a node. A zero field selects its default, which is a constant
// above.
type Config struct {
	Streams, TenantStreams, EntityStreams int
	Wait, Silence, Idle                   time.Duration
}

func (c *Config) withDefaults() {
	set(&c.Streams, DefaultStreams)
	set(&c.TenantStreams, DefaultTenantStreams)
	set(&c.EntityStreams, DefaultEntityStreams)
	set(&c.Wait, DefaultWait)
	set(&c.Silence, DefaultSilence)
	set(&c.Idle, DefaultIdle)
}

func set[T int | time.Duration](v *T, def T) {
	if *v == 0 {
		*v = def
	}
}

// Buffers has the streams of a node. It is safe for concurrent use.
type Buffers struct {
	cfg Config

	mu       sync.Mutex
	streams  map[streamKey]*stream
	tenants  map[string]int
	entities map[model.Address]int
	sweeper  *time.Timer // runs while there are streams
	closed   bool
}

type streamKey struct {
	entity model.Address
	id     string
}

// New returns the buffers of a node, without streams.
func New(cfg Config) *Buffers {
	cfg.withDefaults()
	return &Buffers{cfg: cfg, streams: map[streamKey]*stream{}, tenants: map[string]int{}, entities: map[model.Address]int{}}
}

// errClosed is the error of all requests after Close.
var errClosed = fault.New(fault.Unavailable, "the node that has the stream is stopping")

// gone is the error for a stream that is not here.
func gone(entity model.Address, id string) error {
	return fault.New(fault.NotFound, "stream %s of %s is not here: its caller has left, or the entity has moved to another process", id, entity)
}

// Take serves a request of a caller. If the caller asks for the next items, Take waits for them.
func (h *Buffers) Take(ctx context.Context, r *model.ItemsTake) (model.ItemsPage, error) {
	k := streamKey{r.Entity, r.ID}
	h.mu.Lock()
	s := h.streams[k]

	switch {
	case h.closed:
		h.mu.Unlock()
		return model.ItemsPage{}, errClosed
	case r.Do == model.TakeOpen:
		defer h.mu.Unlock()
		return model.ItemsPage{}, h.open(k)
	case r.Do == model.TakeLeave:
		defer h.mu.Unlock()
		h.remove(k)
		return model.ItemsPage{}, nil
	case s == nil:
		h.mu.Unlock()
		return model.ItemsPage{}, gone(r.Entity, r.ID)
	case r.Do == model.TakeKeep:
		defer h.mu.Unlock()
		s.heard = time.Now()
		if r.After <= s.taken { // the caller still works on an item, or a later request came first
			return model.ItemsPage{}, nil
		}
		return model.ItemsPage{}, s.acknowledge(r.After)
	}

	if err := s.acknowledge(r.After); err != nil {
		h.mu.Unlock()
		return model.ItemsPage{}, err
	}
	turn := s.taking.begin()
	h.mu.Unlock()
	return h.next(ctx, k, s, turn)
}

// next waits for items. A later request of the same caller ends the wait.
func (h *Buffers) next(ctx context.Context, k streamKey, s *stream, turn <-chan struct{}) (model.ItemsPage, error) {
	timer := time.NewTimer(h.cfg.Wait)
	defer timer.Stop()
	for over := false; ; {
		h.mu.Lock()
		changed := s.changed
		page, ready, err := s.page()
		err = h.still(k, s, err)
		h.mu.Unlock()
		if ready || over || err != nil {
			return page, err
		}

		select {
		case <-changed:
		case <-turn:
			over = true
		case <-timer.C:
			over = true
		case <-ctx.Done():
			return model.ItemsPage{}, fault.New(fault.KindOf(ctx.Err()), "read stream %s of %s: %w", k.id, k.entity, context.Cause(ctx))
		}
	}
}

// Send serves a request of a worker, and returns the number of the last item that is here. It waits
// until there is room for all of the items, but at most for Config.Wait. A request that has no
// items and does not end the stream waits until the stream is removed or fails, also at most for
// Config.Wait. This is how the worker learns that its caller has left.
func (h *Buffers) Send(ctx context.Context, r *model.ItemsSend) (int64, error) {
	k := streamKey{r.Entity, r.ID}
	h.mu.Lock()
	s := h.streams[k]
	if h.closed || s == nil {
		defer h.mu.Unlock()
		if h.closed {
			return 0, errClosed
		}
		return 0, gone(r.Entity, r.ID)
	}
	turn := s.sending.begin()
	h.mu.Unlock()

	timer := time.NewTimer(h.cfg.Wait)
	defer timer.Stop()
	for over := false; ; {
		h.mu.Lock()
		changed := s.changed
		done, err := s.accept(r)
		err = h.still(k, s, err)
		last := s.last()
		h.mu.Unlock()
		if done || over || err != nil {
			return last, err
		}

		select {
		case <-changed:
		case <-turn:
			over = true
		case <-timer.C:
			over = true
		case <-ctx.Done():
			return 0, fault.New(fault.KindOf(ctx.Err()), "send items of stream %s of %s: %w", k.id, k.entity, context.Cause(ctx))
		}
	}
}

// still returns the error of a request whose stream was removed, or err. The caller holds the lock.
func (h *Buffers) still(k streamKey, s *stream, err error) error {
	switch {
	case h.closed:
		return errClosed
	case h.streams[k] != s:
		return gone(k.entity, k.id)
	}
	return err
}

// open creates a stream. A repeated request changes nothing. The caller holds the lock.
func (h *Buffers) open(k streamKey) error {
	switch {
	case h.streams[k] != nil:
		return nil
	case len(h.streams) >= h.cfg.Streams:
		return fault.New(fault.Exhausted, "stream of %s: the owner has %d streams, which is the limit", k.entity, h.cfg.Streams)
	case h.tenants[k.entity.Tenant] >= h.cfg.TenantStreams:
		return fault.New(fault.Exhausted, "stream of %s: the tenant has %d streams at the owner, which is the limit", k.entity, h.cfg.TenantStreams)
	case h.entities[k.entity] >= h.cfg.EntityStreams:
		return fault.New(fault.Exhausted, "stream of %s: the entity has %d streams, which is the limit", k.entity, h.cfg.EntityStreams)
	}

	now := time.Now()
	h.streams[k] = &stream{heard: now, read: now, changed: make(chan struct{})}
	h.tenants[k.entity.Tenant]++
	h.entities[k.entity]++
	if h.sweeper == nil {
		h.sweeper = time.AfterFunc(h.cfg.Silence/4, h.sweep)
	}
	return nil
}

// remove forgets a stream and wakes the requests that wait for it. The caller holds the lock.
func (h *Buffers) remove(k streamKey) {
	s := h.streams[k]
	if s == nil {
		return
	}
	delete(h.streams, k)
	s.wake()
	if h.tenants[k.entity.Tenant]--; h.tenants[k.entity.Tenant] == 0 {
		delete(h.tenants, k.entity.Tenant)
	}
	if h.entities[k.entity]--; h.entities[k.entity] == 0 {
		delete(h.entities, k.entity)
	}
}

// sweep ends the streams of callers and workers that are silent for too long.
func (h *Buffers) sweep() {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()

	for k, s := range h.streams {
		switch {
		case now.Sub(s.heard) > h.cfg.Silence:
			h.remove(k)
		case s.isOver():
		case now.Sub(s.read) > h.cfg.Idle:
			s.fail(fault.New(fault.Timeout, "stream %s of %s: its caller has read nothing for %s", k.id, k.entity, h.cfg.Idle))
		case !s.fed.IsZero() && now.Sub(s.fed) > h.cfg.Silence:
			s.fail(fault.New(fault.Unavailable, "stream %s of %s: the process that runs its code does not answer; read the stream again", k.id, k.entity))
		}
	}

	h.sweeper = nil
	if len(h.streams) > 0 && !h.closed {
		h.sweeper = time.AfterFunc(h.cfg.Silence/4, h.sweep)
	}
}

// Count returns how many streams there are.
func (h *Buffers) Count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.streams)
}

// Close ends all streams and all requests that wait.
func (h *Buffers) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for k := range h.streams {
		h.remove(k)
	}
	if h.sweeper != nil {
		h.sweeper.Stop()
		h.sweeper = nil
	}
}
