package memory

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// node is a registered node: its lease and its fences.
type node struct {
	member store.Member
	lanes  []fence
}

// fence is the epoch and the last batch of a lane.
type fence struct{ epoch, batch int64 }

// find returns the index of a node.
func (s *Store) find(id model.NodeID) (int, bool) {
	return slices.BinarySearchFunc(s.nodes, id, func(n *node, id model.NodeID) int { return bytes.Compare(n.member.ID[:], id[:]) })
}

// node returns the node with this id and epoch, or nil if none is registered.
func (s *Store) node(id model.NodeID, epoch int64) *node {
	if i, ok := s.find(id); ok && s.nodes[i].member.Epoch == epoch {
		return s.nodes[i]
	}
	return nil
}

// fence returns the fence of a lane, or nil if the fence does not have the epoch of the lane.
func (s *Store) fence(l store.LaneRef) *fence {
	i, ok := s.find(l.Node)
	if !ok || l.Lane < 0 || l.Lane >= len(s.nodes[i].lanes) || s.nodes[i].lanes[l.Lane].epoch != l.Epoch {
		return nil
	}
	return &s.nodes[i].lanes[l.Lane]
}

// notRegistered returns the error of a call by a node that is not registered with its epoch.
func notRegistered(op string, id model.NodeID, epoch int64) error {
	return store.Errorf(store.Fenced, op, "%s is not registered at epoch %d", id, epoch)
}

// Register adds a node with a new epoch. It replaces a node with the same id. If n.Sole is set, it
// also removes all other nodes.
func (s *Store) Register(ctx context.Context, n store.NodeInfo, lanes int, ttl time.Duration) (store.Registration, error) {
	defer s.mu.Unlock()
	if err := s.begin(ctx, "register"); err != nil {
		return store.Registration{}, err
	}
	if n.ID.IsZero() || lanes < 1 {
		return store.Registration{}, store.Errorf(store.Refused, "register", "a node needs an id and a lane")
	}
	if n.Sole {
		s.nodes = nil
	}

	s.epoch++
	now := s.time()
	n.Sole = false // Sole is not stored
	fresh := &node{member: store.Member{NodeInfo: n, Epoch: s.epoch, Expires: now.Add(ttl), TTL: ttl}, lanes: make([]fence, lanes)}
	for i := range fresh.lanes {
		fresh.lanes[i].epoch = s.epoch
	}
	if i, found := s.find(n.ID); found {
		s.nodes[i] = fresh
	} else {
		s.nodes = slices.Insert(s.nodes, i, fresh)
	}
	return store.Registration{Epoch: s.epoch, Now: now}, nil
}

// Renew extends a lease and returns the view of the cluster.
func (s *Store) Renew(ctx context.Context, r store.RenewRequest) (store.View, error) {
	defer s.mu.Unlock()
	if err := s.begin(ctx, "renew"); err != nil {
		return store.View{}, err
	}
	n := s.node(r.Node, r.Epoch)
	if n == nil {
		return store.View{}, notRegistered("renew", r.Node, r.Epoch)
	}
	now := s.time()
	n.member.Expires, n.member.TTL = now.Add(r.TTL), r.TTL
	n.member.Draining, n.member.Serves = r.Draining, slices.Clone(r.Serves)
	v := s.view(now)
	v.Mail = slices.ContainsFunc(r.Shards, func(id model.ShardID) bool { return s.mail(id, now) })
	_, v.PeerMail = s.firstNote(r.Node)
	return v, nil
}

// mail reports whether messages or requests wait for a shard.
func (s *Store) mail(id model.ShardID, now model.Time) bool {
	sh := s.peek(id)
	if sh == nil {
		return false
	}
	if slices.ContainsFunc(sh.in, (*way).hasMail) {
		return true
	}

	for p := sh.inbox.first(); ; p.next() {
		row, ok := p.at()
		if !ok {
			return false
		}
		if row.NotBefore <= now && row.NotBefore < model.MaxTime {
			return true
		}
	}
}

// view returns the cluster: the members sorted by id, and every shard.
func (s *Store) view(now model.Time) store.View {
	v := store.View{Now: now, Members: make([]store.Member, len(s.nodes)), Owners: slices.Clone(s.owners), Settings: s.settings.counter, Groups: s.info.Groups}
	for i, n := range s.nodes {
		v.Members[i] = n.member
	}
	return v
}

// Members returns the view of the cluster.
func (s *Store) Members(ctx context.Context) (store.View, error) {
	defer s.mu.Unlock()
	if err := s.begin(ctx, "members"); err != nil {
		return store.View{}, err
	}
	return s.view(s.time()), nil
}

// FenceNode removes a node whose lease has expired or that is gone for another reason.
func (s *Store) FenceNode(ctx context.Context, r store.FenceRequest) (bool, error) {
	defer s.mu.Unlock()
	if err := s.begin(ctx, "fence node"); err != nil {
		return false, err
	}
	i, found := s.find(r.Node)
	if !found {
		return true, nil
	}
	m := &s.nodes[i].member
	if !r.Ends(m.Epoch, m.Expires, m.Expires <= s.time()) {
		return false, nil
	}
	s.nodes = slices.Delete(s.nodes, i, i+1)
	return true, nil
}

// SetDrained stores or withdraws the order that a node must hand its shards over.
func (s *Store) SetDrained(ctx context.Context, id model.NodeID, drained bool) (bool, error) {
	defer s.mu.Unlock()
	if err := s.begin(ctx, "set drained"); err != nil {
		return false, err
	}
	i, found := s.find(id)
	if found {
		s.nodes[i].member.Drained = drained
	}
	return found, nil
}

// Unregister removes a node and frees its shards. It has no effect if the node is gone.
func (s *Store) Unregister(ctx context.Context, id model.NodeID, epoch int64) error {
	defer s.mu.Unlock()
	if err := s.begin(ctx, "unregister"); err != nil {
		return err
	}
	i, found := s.find(id)

	switch {
	case !found:
		return nil
	case s.nodes[i].member.Epoch != epoch:
		return notRegistered("unregister", id, epoch)
	}

	s.nodes = slices.Delete(s.nodes, i, i+1)
	for i := range s.owners {
		if o := &s.owners[i]; o.Node == id && o.Epoch == epoch {
			*o = store.ShardOwner{Shard: o.Shard}
		}
	}

	return nil
}

// Acquire takes shards that are free or whose owner was fenced. It also returns shards that the
// node already owns. The result is ordered by shard.
func (s *Store) Acquire(ctx context.Context, id model.NodeID, epoch int64, shards []model.ShardID) ([]store.AcquiredShard, error) {
	defer s.mu.Unlock()
	if err := s.begin(ctx, "acquire"); err != nil {
		return nil, err
	}
	if s.node(id, epoch) == nil {
		return nil, notRegistered("acquire", id, epoch)
	}

	shards = slices.Clone(shards)
	slices.Sort(shards)
	shards = slices.Compact(shards)
	if n := len(shards); n > 0 && int(shards[n-1]) >= len(s.owners) {
		return nil, store.Errorf(store.Refused, "acquire", "there is no shard %d", shards[n-1])
	}

	var out []store.AcquiredShard
	for _, shard := range shards {
		o := &s.owners[shard]
		ours := o.Node == id && o.Epoch == epoch
		if !ours && !o.Node.IsZero() && s.node(o.Node, o.Epoch) != nil {
			continue
		}
		o.Node, o.Epoch = id, epoch
		out = append(out, s.shardState(shard))
	}

	return out, nil
}

// shardState returns the state that moves with a shard.
func (s *Store) shardState(id model.ShardID) store.AcquiredShard {
	a := store.AcquiredShard{Shard: id, Received: map[model.ShardID]int64{}, Sent: map[model.ShardID]int64{}, Tokens: s.tokens[id]}
	sh := s.peek(id)
	if sh == nil {
		return a
	}

	for _, w := range sh.in {
		if w.received > 0 {
			a.Received[w.from] = w.received
		}
	}

	for _, w := range sh.out {
		if sent := max(w.sent, w.received); sent > 0 {
			a.Sent[w.to] = sent
		}
	}

	return a
}

// Refence moves the fence of a lane to a new epoch.
func (s *Store) Refence(ctx context.Context, l store.LaneRef) (epoch, landed int64, err error) {
	defer s.mu.Unlock()
	if err := s.begin(ctx, "refence"); err != nil {
		return 0, 0, err
	}
	f := s.fence(l)
	if f == nil {
		return 0, 0, store.Errorf(store.Fenced, "refence", "lane %d of %s does not stand at epoch %d", l.Lane, l.Node, l.Epoch)
	}
	s.epoch++
	f.epoch = s.epoch
	return f.epoch, f.batch, nil
}
