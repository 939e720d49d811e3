package feed

import (
	"crypto/rand"
	"encoding/binary"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Bounds of a node.
const (
	// DefaultWatchers bounds the watchers of a node, DefaultTenantWatchers the watchers of one
	// tenant.
	DefaultWatchers       = 4_000
	DefaultTenantWatchers = 2_000
	// DefaultChanges and DefaultBytes bound the buffer of one tenant, DefaultTotal the bytes of all
	// tenants together.
	DefaultChanges = 16_384
	DefaultBytes   = 4 << 20
	DefaultTotal   = 64 << 20
	// DefaultLinger is how long the hub keeps the changes of a tenant after its last watcher has
	// left.
	DefaultLinger = time.Minute
)

// Config configures a hub. A zero field selects its default, which is a constant above. Changes and
// Bytes also bound what the hub keeps for another node that has subscribed here, and Total bounds
// what it keeps for all of them together.
type Config struct {
	Watchers, TenantWatchers int
	Changes, Bytes, Total    int
	Linger                   time.Duration
	// Shards is the number of shards of the store. The default is 1. Shard returns the shard of an
	// address. The default returns shard 0.
	Shards int
	Shard  func(model.Address) model.ShardID
	// Tap, if set, gets every change of every tenant that this node publishes, in the order of the
	// feed; one call at a time. It gets no changes of other nodes. It must not block, and must not
	// keep the slice.
	Tap func(changes []model.Change)
	// Now returns a time that never goes back. It must be set.
	Now func() time.Duration
}

func (c *Config) withDefaults() {
	set := func(v *int, def int) {
		if *v == 0 {
			*v = def
		}
	}
	set(&c.Watchers, DefaultWatchers)
	set(&c.TenantWatchers, DefaultTenantWatchers)
	set(&c.Changes, DefaultChanges)
	set(&c.Bytes, DefaultBytes)
	set(&c.Total, DefaultTotal)
	set(&c.Shards, 1)
	if c.Shard == nil {
		c.Shard = func(model.Address) model.ShardID { return 0 }
	}
	if c.Linger == 0 {
		c.Linger = DefaultLinger
	}
}

// Hub has the changes of all tenants of a node. All methods are safe for concurrent use, and none
// of them waits. A watcher waits in Watcher.Next and Watcher.Settle.
type Hub struct {
	cfg Config
	on  atomic.Bool // there is a topic or a subscription

	mu       sync.RWMutex
	topics   map[string]*topic // by tenant
	watchers int
	sweepAt  time.Duration // when Publish looks for tenants to drop
	closed   chan struct{} // closed when the node has stopped

	// What this node gets from other nodes.
	origins *origins
	inlets  map[model.NodeID]*Inlet
	version int64         // counts how often the set of topics has changed
	changed chan struct{} // closed when the topics or the nodes change
	// What other nodes get from this node.
	subscriptions map[model.NodeID]*subscription
	byTenant      map[string][]*subscription
}

// New returns a hub of a node that owns no shard yet.
func New(cfg Config) *Hub {
	cfg.withDefaults()
	return &Hub{
		cfg: cfg, topics: map[string]*topic{}, closed: make(chan struct{}), origins: newOrigins(cfg.Shards), inlets: map[model.NodeID]*Inlet{},
		changed: make(chan struct{}), subscriptions: map[model.NodeID]*subscription{}, byTenant: map[string][]*subscription{},
	}
}

// On reports whether any changes are wanted. It costs one atomic load.
func (h *Hub) On() bool { return h.cfg.Tap != nil || h.on.Load() }

// Publish adds changes of this node that are durable, in order. It never waits for a watcher or for
// another node.
func (h *Hub) Publish(changes []model.Change) { wake(h.publish(changes)) }

// publish adds changes, and returns the nodes to wake.
func (h *Hub) publish(changes []model.Change) (ready []func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cfg.Tap != nil {
		h.cfg.Tap(changes)
	}
	if now := h.cfg.Now(); now >= h.sweepAt {
		h.sweep(now)
	}

	most := h.share()
	for i := range changes {
		c := &changes[i]
		t := h.topics[c.Address.Tenant]
		if t == nil {
			continue
		}
		t.add(t.queues.complete(*c), h.cfg.Changes, most)
		// Changes of one commit often have the same tenant. The watchers of that tenant wake once
		// for all these changes.
		if i+1 == len(changes) || changes[i+1].Address.Tenant != c.Address.Tenant {
			t.ring()
		}
	}
	if len(h.subscriptions) == 0 {
		return nil
	}
	return h.forward(changes)
}

// share returns the bytes that the buffer of a tenant may have. The caller must hold the lock.
func (h *Hub) share() int { return min(h.cfg.Bytes, h.cfg.Total/max(len(h.topics), 1)) }

// Close ends all watchers.
func (h *Hub) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case <-h.closed:
	default:
		close(h.closed)
	}
}

// Watch adds a watcher of a tenant. The watcher continues after the cursor of an earlier page.
// Without a cursor it starts now. The caller must call Close.
func (h *Hub) Watch(tenant string, filter model.ChangeFilter, cursor string) (*Watcher, error) {
	at, err := parseCursor(cursor)
	if err != nil {
		return nil, err
	}

	h.mu.Lock()
	defer h.mu.Unlock()
	h.sweep(h.cfg.Now())
	if h.watchers >= h.cfg.Watchers {
		return nil, fault.New(fault.Exhausted, "watch: the node has %d watchers, which is the limit", h.watchers)
	}
	t := h.topics[tenant]
	switch {
	case t == nil:
		t = &topic{id: newTopicID(), tenant: tenant, first: 1, next: 1, rung: make(chan struct{})}
		h.topics[tenant] = t
		h.on.Store(true)
		for _, other := range h.topics {
			other.trim(h.cfg.Changes, h.share())
		}
		h.changeTenants()
	case t.watchers >= h.cfg.TenantWatchers:
		return nil, fault.New(fault.Exhausted, "watch: the tenant has %d watchers on this node, which is the limit", t.watchers)
	}
	t.watchers++
	h.watchers++

	w := &Watcher{hub: h, topic: t, filter: filter, next: t.next, fresh: true}
	switch {
	case cursor == "":
		w.begins = true
	case at.topic == t.id && at.next <= t.next:
		w.next = at.next // if the position is too old, the first page says so
	default:
		w.gap = true
	}
	return w, nil
}

// A watcher pauses between two pages: for pauseForEach times the number of watchers of the node,
// and at most for mostPause. A page costs about 15 microseconds of CPU time. So a thousand watchers
// of busy tenants together use less than half of a core.
const (
	pauseForEach = 50 * time.Microsecond
	mostPause    = 200 * time.Millisecond
)

// Pause returns how long a watcher pauses after a page, so that its next page has several changes.
// A few watchers do not pause.
func (h *Hub) Pause() time.Duration {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return min(time.Duration(h.watchers)*pauseForEach, mostPause).Truncate(time.Millisecond)
}

// leave removes a watcher. The hub keeps the changes of the tenant for a while.
func (h *Hub) leave(t *topic) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watchers--
	if t.watchers--; t.watchers == 0 {
		t.since = h.cfg.Now()
	}
}

// sweep drops the changes of tenants that have had no watcher for a while, and the subscriptions of
// nodes that have asked for nothing for a while. The caller must hold the lock.
func (h *Hub) sweep(now time.Duration) {
	h.sweepAt = now + h.cfg.Linger/16
	before := len(h.topics)
	for tenant, t := range h.topics {
		if t.watchers == 0 && now-t.since >= h.cfg.Linger {
			delete(h.topics, tenant)
		}
	}
	if len(h.topics) < before {
		h.changeTenants()
	}
	for node, s := range h.subscriptions {
		if s.demander == nil && now-s.heard >= silence {
			h.end(node)
		}
	}
	h.on.Store(len(h.topics)+len(h.subscriptions) > 0)
}

// newTopicID draws the id of a topic. Cursors contain it, so that the hub recognises a cursor of
// another tenant, or of another life of the process.
func newTopicID() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it never returns an error
	return binary.BigEndian.Uint64(b[:])
}
