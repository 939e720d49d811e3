package cluster

import (
	"math"
	"reflect"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// Config of a membership. Zero fields take the defaults.
type Config struct {
	Self store.NodeInfo
	// TTL is the length of the lease. The default is 10 s. RenewEvery is the time between renewals.
	// The default is a fifth of TTL, but at most a minute, because a renewal also reports whether
	// messages wait for the node, and what the store's clock shows. Without frequent readings, a
	// node with a long lease could not find out that a jump of that clock lasts (see package
	// storeclock). Margin is how long before the end of its lease a node stops serving. The default
	// is a tenth of TTL.
	TTL, RenewEvery, Margin time.Duration
	// Gone reports whether a process of this host has provably ended. It must not have side
	// effects.
	Gone func(store.NodeInfo) bool
}

func (c *Config) withDefaults() {
	if c.TTL == 0 {
		c.TTL = 10 * time.Second
	}
	if c.RenewEvery == 0 {
		c.RenewEvery = min(c.TTL/5, time.Minute)
	}
	if c.Margin == 0 {
		c.Margin = c.TTL / marginShare
	}
	if c.Gone == nil {
		c.Gone = func(store.NodeInfo) bool { return false }
	}
}

// Membership is the state machine of one incarnation of a node. It is not safe for concurrent use.
//
// It uses two clocks. mono is the node's own monotonic clock, for its own lease. Store time comes
// only from views.
type Membership struct {
	cfg      Config
	epoch    int64
	draining bool
	// said: the renewal in flight says that the node stops. announced: a successful renewal has
	// said so. A node that stops does not give up its shards for that reason until announced is
	// true. So the next owners of these shards know why they get them.
	said, announced bool
	serves          []store.Served

	validUntil time.Duration // mono time until which the lease surely holds
	nextRenew  time.Duration
	renewing   bool
	sentAt     time.Duration // mono time when the renewal in flight was sent

	view store.View
	// off is how far the store's clock may be wrong. It is math.MaxInt64 while that clock is in
	// doubt because of a jump. wasOff is the value of off at the time of the previous view.
	off, wasOff time.Duration
	lastView    model.Time                // store time of the previous view
	seen        map[model.NodeID]sighting // leases of all nodes, as last seen
	fencing     map[model.NodeID]bool
	owned       map[model.ShardID]bool // the shards of this node, according to the store
	leaving     map[model.ShardID]bool // shards that the lanes are giving up
	acquires    bool                   // an acquire is in flight
	missed      bool                   // a view showed further shards to acquire during that time
	// stale: something has changed since the renewal in flight was sent, so its view will be
	// outdated.
	stale bool
	// again: the caller has asked for another renewal since the one in flight was sent.
	again bool
	lost  error
}

// Actions is what the caller must do.
type Actions struct {
	// Renew is a renewal to send. The caller passes the result to ApplyRenewal.
	Renew *store.RenewRequest
	// Fence are nodes to fence. The caller passes each result to ApplyFence.
	Fence []store.FenceRequest
	// Acquire are shards to acquire. The caller passes the result to ApplyAcquire.
	Acquire []model.ShardID
	// GiveUp are shards that the lanes must drain and free. When a shard is free, the caller calls
	// RemoveShards.
	GiveUp []model.ShardID
	// Mail says that messages for our shards wait in the store.
	Mail bool
	// Lost is set when the node is no longer a member: its commits no longer take effect.
	Lost error
}

// New returns the membership of a registered node. sentAt is the mono time when the registration
// was sent.
func New(cfg Config, epoch int64, sentAt time.Duration) *Membership {
	cfg.withDefaults()
	return &Membership{
		cfg: cfg, epoch: epoch, validUntil: sentAt + cfg.TTL - cfg.Margin, nextRenew: sentAt,
		fencing: map[model.NodeID]bool{}, seen: map[model.NodeID]sighting{}, owned: map[model.ShardID]bool{}, leaving: map[model.ShardID]bool{},
	}
}

// IsServing reports whether the lease surely holds at mono. The caller must call IsServing after a
// request has arrived and before it answers the request, so that a process that was paused in
// between notices that its lease has ended.
func (m *Membership) IsServing(mono time.Duration) bool { return m.lost == nil && mono < m.validUntil }

// ValidUntil returns the mono time until which the lease surely holds.
func (m *Membership) ValidUntil() time.Duration { return m.validUntil }

// Epoch returns the epoch of the registration.
func (m *Membership) Epoch() int64 { return m.epoch }

// View returns the cluster as last seen.
func (m *Membership) View() store.View { return m.view }

// Serve publishes what the workers of the node can run. If other nodes must know the change, the
// node renews immediately. If only the names of workers or the numbers of workers and slots have
// changed, the next renewal publishes them.
func (m *Membership) Serve(what []store.Served) {
	same := slices.EqualFunc(m.serves, what, func(a, b store.Served) bool {
		a.Slots, a.Workers, b.Slots, b.Workers = 0, 0, 0, 0
		a.Worker, b.Worker = "", ""
		return reflect.DeepEqual(a, b)
	})
	m.serves = what
	if !same {
		m.RenewNow()
	}
}

// Drain makes the node give up all its shards and take no others.
func (m *Membership) Drain() {
	m.draining = true
	m.RenewNow()
}

// HasDrained reports whether a drain is complete: the node owns no shard, and no acquire is in
// flight.
func (m *Membership) HasDrained() bool { return m.draining && len(m.owned) == 0 && !m.acquires }

// Tick returns what is due at mono.
func (m *Membership) Tick(mono time.Duration) (a Actions) {
	if m.lost != nil {
		a.Lost = m.lost
		return a
	}
	if !m.renewing && mono >= m.nextRenew {
		m.renewing, m.sentAt, m.said = true, mono, m.draining
		m.stale, m.again = false, false // they are about an earlier renewal, which has failed
		a.Renew = &store.RenewRequest{
			Node: m.cfg.Self.ID, Epoch: m.epoch, TTL: m.cfg.TTL, Draining: m.draining, Shards: sortedShards(m.owned), Serves: m.serves,
		}
	}
	return a
}

// NextTick returns the mono time of the next Tick. While a renewal is in flight, no tick is due
// before its result arrives.
func (m *Membership) NextTick() time.Duration {
	if m.renewing {
		return math.MaxInt64
	}
	return m.nextRenew
}

// RenewNow asks for an immediate renewal, because something has changed. A renewal that is in
// flight may have missed the change, so another renewal follows it.
func (m *Membership) RenewNow() { m.nextRenew, m.again = 0, m.renewing }

// ApplyRenewal applies the result of a renewal.
func (m *Membership) ApplyRenewal(mono time.Duration, v store.View, err error) (a Actions) {
	m.renewing = false
	m.nextRenew = max(m.sentAt+m.cfg.RenewEvery, mono)
	switch {
	case m.lost != nil:
		a.Lost = m.lost
		return a
	case err != nil && store.ClassOf(err) == store.Fenced:
		m.lost = err
		a.Lost = err
		return a
	case err != nil:
		m.nextRenew = mono + m.cfg.RenewEvery/4
		return a
	}

	m.validUntil = max(m.validUntil, m.sentAt+m.cfg.TTL-m.cfg.Margin)
	m.view, m.announced = v, m.announced || m.said
	if m.again {
		m.again, m.nextRenew = false, mono
	}

	if m.stale {
		m.stale, m.nextRenew = false, mono
	} else {
		a = m.plan(mono)
	}

	a.Mail = v.Mail
	return a
}

// plan compares the owners in the view with the proposal.
func (m *Membership) plan(mono time.Duration) (a Actions) {
	m.watch(mono)
	live := m.liveMembers(mono, &a)
	proposed := assign(&m.view, live)
	registered := map[model.NodeID]int64{}
	for _, n := range m.view.Members {
		registered[n.ID] = n.Epoch
	}

	for _, o := range m.view.Owners {
		mine := proposed[o.Shard] == m.cfg.Self.ID
		switch {
		case o.Node == m.cfg.Self.ID && o.Epoch == m.epoch:
			// The shard is ours. Give it up if it is proposed for another node.
			switch {
			case m.owned[o.Shard]:
				if !mine && !m.leaving[o.Shard] {
					m.leaving[o.Shard] = true
					a.GiveUp = append(a.GiveUp, o.Shard)
				}
			case !m.acquires: // the answer to the acquire was lost
				a.Acquire = append(a.Acquire, o.Shard)
			}
		case mine && !m.draining && !m.owned[o.Shard]:
			// Take the shard if it is free, or if the registration of its owner has ended.
			if epoch, ok := registered[o.Node]; o.Node.IsZero() || !ok || epoch != o.Epoch {
				if m.acquires {
					m.missed = true // perhaps wrong: the acquire in flight may take it
				} else {
					a.Acquire = append(a.Acquire, o.Shard)
				}
			}
		}
	}

	m.acquires = m.acquires || len(a.Acquire) > 0
	return a
}

// liveMembers returns the nodes that are alive and are not stopping. It adds dead nodes to the
// actions, so that the caller fences them.
func (m *Membership) liveMembers(mono time.Duration, a *Actions) []store.Member {
	live := make([]store.Member, 0, len(m.view.Members))
	for _, n := range m.view.Members {
		expired := m.isExpired(mono, &n)
		self := n.ID == m.cfg.Self.ID
		proven := !self && m.cfg.Gone(n.NodeInfo)
		abandoned := m.isAbandoned(mono, &n)
		if !self && (expired || proven || abandoned) {
			if !m.fencing[n.ID] {
				m.fencing[n.ID] = true
				a.Fence = append(a.Fence, store.FenceRequest{Node: n.ID, Epoch: n.Epoch, Expires: n.Expires, Abandoned: abandoned, Proven: proven})
			}
			continue
		}
		if !n.Draining && (!self || !m.announced) {
			live = append(live, n)
		}
	}

	return live
}

// ApplyFence applies the result of fencing a node. If the node is gone, a renewal is due
// immediately. The view of that renewal shows the shards that this node can take from the dead
// node.
func (m *Membership) ApplyFence(node model.NodeID, done bool, err error) {
	delete(m.fencing, node)
	if err == nil && done {
		m.RenewNow()
	}
}

// ApplyAcquire applies the result of an acquire: the shards that are ours now. An owner gives up
// its shards one after the other, so further shards may have become free in the meantime. Requests
// for those shards wait until this node acquires them, so a renewal is due immediately.
func (m *Membership) ApplyAcquire(shards []store.AcquiredShard, err error) (a Actions) {
	m.acquires = false
	if m.missed && err == nil {
		m.RenewNow()
	}
	m.missed = false
	if err != nil {
		if store.ClassOf(err) == store.Fenced {
			m.lost = err
			a.Lost = err
		}
		// The result is not known. The next view shows it.
		return a
	}
	for _, s := range shards {
		m.owned[s.Shard] = true
	}
	m.stale = m.renewing
	return a
}

// RemoveShards notes that shards have been given up.
func (m *Membership) RemoveShards(shards []model.ShardID) {
	for _, s := range shards {
		delete(m.owned, s)
		delete(m.leaving, s)
	}
	m.stale = m.renewing
}

// OwnedShards lists our shards.
func (m *Membership) OwnedShards() []model.ShardID { return sortedShards(m.owned) }

func sortedShards(set map[model.ShardID]bool) []model.ShardID {
	ids := make([]model.ShardID, 0, len(set))
	for s := range set {
		ids = append(ids, s)
	}
	slices.Sort(ids)
	return ids
}
