package partitioned

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// registration is a node that this process has registered in the home.
type registration struct {
	store.PartRegistration
	done []bool // in which parts the node is registered; the mutex of the store protects done
	// turns has a channel per part. Each channel has room for one value. The call that registers
	// the node in the part fills the channel, so that only one call at a time does this.
	turns []chan struct{}
}

func newRegistration(r store.PartRegistration, parts int) *registration {
	reg := &registration{r, make([]bool, parts), make([]chan struct{}, parts)}
	for i := range reg.turns {
		reg.turns[i] = make(chan struct{}, 1)
	}
	return reg
}

// Register adds a node to the home, and then to the members. If a member does not answer, each
// renewal asks it again.
func (s *Store) Register(ctx context.Context, n store.NodeInfo, lanes int, ttl time.Duration) (store.Registration, error) {
	r, err := s.parts[0].Register(ctx, n, lanes, ttl)
	if err != nil {
		return r, err
	}

	sole := n.Sole
	n.Sole = false // several nodes share a member
	reg := newRegistration(store.PartRegistration{Node: n, Lanes: lanes, TTL: ttl, Epoch: r.Epoch}, len(s.parts))
	s.mu.Lock()
	s.nodes[n.ID] = reg
	s.mu.Unlock()

	answers := inMembers(ctx, s, s.parts[1:], waitFor(ttl), func(ctx context.Context, p *part) (struct{}, error) {
		if err := s.join(ctx, p, n.ID); err != nil {
			return struct{}{}, err
		}
		look := p.beginLook()
		v, err := p.Members(ctx)
		if err != nil {
			return struct{}{}, err
		}
		s.noteOwners(p, look, v.Owners)
		if sole {
			err = fenceAll(ctx, p, v.Members, func(m *store.Member) bool { return m.ID == n.ID })
		}
		return struct{}{}, err
	})
	for _, a := range answers {
		if a.err != nil && !isTrouble(a.err) {
			// Remove the node from the home again. Otherwise other nodes would leave shards to a
			// node that does not serve, until its lease ends.
			return store.Registration{}, errors.Join(a.err, s.Unregister(ctx, n.ID, r.Epoch))
		}
	}
	return r, nil
}

// waitFor returns how long a call waits for members, if the lease of the node has the length ttl.
func waitFor(ttl time.Duration) time.Duration { return min(max(ttl/5, time.Millisecond), longestWait) }

// join registers a node in a member, unless it is registered there. Only one call at a time does
// this. A second call could arrive after the node was fenced, and would give the node its fences
// back. See the package comment.
func (s *Store) join(ctx context.Context, p *part, node model.NodeID) error {
	reg := s.unjoined(p, node)
	if reg == nil {
		return nil
	}
	turn := reg.turns[p.index]
	select {
	case turn <- struct{}{}:
	case <-ctx.Done():
		return store.Errorf(store.Away, "register in a part", "a registration is under way: %w", context.Cause(ctx))
	}
	defer func() { <-turn }()

	// Another call may have registered the node by now, or the node may have a new registration.
	if s.unjoined(p, node) != reg {
		return s.join(ctx, p, node)
	}
	if err := p.RegisterAt(ctx, reg.PartRegistration); err != nil {
		return err
	}
	s.mu.Lock()
	reg.done[p.index] = true
	s.mu.Unlock()
	return nil
}

// unjoined returns the registration of a node if a member does not have it yet. It returns nil if
// the member has the registration, or if this process has not registered the node.
func (s *Store) unjoined(p *part, node model.NodeID) *registration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if reg := s.nodes[node]; reg != nil && !reg.done[p.index] {
		return reg
	}
	return nil
}

// beginLook returns the number of a call that reads the owners of shards, for noteOwners.
func (p *part) beginLook() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.looks++
	return p.looks
}

// noteOwners remembers the owners of the shards of a part. A view of a part also has shards of
// other parts, if its store has rows for them.
//
// A view may arrive late. It is ignored if a later look has arrived, or if this process has taken
// or freed a shard of the part since the look began. Otherwise it could say that a node owns a
// shard that it has freed, and the node would take the shard again.
func (s *Store) noteOwners(p *part, look int64, owners []store.ShardOwner) {
	mine := slices.DeleteFunc(slices.Clone(owners), func(o store.ShardOwner) bool { return s.partOf(o.Shard) != p })
	p.mu.Lock()
	defer p.mu.Unlock()
	if look > p.seen {
		p.owners, p.seen = mine, look
	}
}

// fenceAll removes nodes from a part, except the nodes for which keep returns true. The caller has
// proven that the removed nodes are gone from the home.
func fenceAll(ctx context.Context, p *part, nodes []store.Member, keep func(*store.Member) bool) error {
	for i := range nodes {
		if m := &nodes[i]; !keep(m) {
			if _, err := p.FenceNode(ctx, store.FenceRequest{Node: m.ID, Epoch: m.Epoch, Proven: true}); err != nil {
				return err
			}
		}
	}
	return nil
}

// Renew extends the lease in the home, and reads the owners of the shards of the members at the
// same time. It does not wait long for members.
func (s *Store) Renew(ctx context.Context, r store.RenewRequest) (store.View, error) {
	// Renew the lease in the members too. They do not judge leases, but an operator who works on a
	// member must see that the member is in use. The view of a member also says whether it has
	// mail, for shards of any part.
	begun := time.Now()
	type visit struct{ mail bool }
	visits := make(chan []answer[visit], 1)
	if !s.start(2*longestWait+r.TTL, func(context.Context) {
		visits <- inMembers(s.closing, s, s.idle(), waitFor(r.TTL), func(ctx context.Context, p *part) (visit, error) {
			defer p.endVisit(p.beginVisit())
			if err := s.join(ctx, p, r.Node); err != nil {
				return visit{}, err
			}
			look, begun := p.beginLook(), p.beginCall()
			v, err := p.Renew(ctx, r)
			s.judge(ctx, p, begun, err)
			if err != nil {
				return visit{}, err
			}
			s.noteOwners(p, look, v.Owners)
			return visit{v.Mail}, nil
		})
	}) {
		return store.View{}, store.Errorf(store.Away, "renew", "the store is closed")
	}

	known := s.registrations()
	v, err := s.parts[0].Renew(ctx, r)
	if err != nil {
		if store.ClassOf(err) == store.Fenced {
			s.forgetNode(r.Node, r.Epoch)
		}
		return store.View{}, err
	}
	s.forgetGone(known, v.Members)
	timer := time.NewTimer(max(0, waitFor(r.TTL)-time.Since(begun)))
	defer timer.Stop()
	select {
	case answers := <-visits:
		for _, a := range answers {
			v.Mail = v.Mail || a.value.mail
		}
	case <-timer.C:
	case <-ctx.Done():
	}
	s.complete(&v)
	return v, nil
}

// idle returns the members that are not slow.
func (s *Store) idle() (out []*part) {
	for _, p := range s.parts[1:] {
		p.mu.Lock()
		slow := p.isSlow()
		p.mu.Unlock()
		if !slow {
			out = append(out, p)
		}
	}
	return out
}

func (p *part) beginVisit() (begun time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	begun = time.Now()
	p.visits = append(p.visits, begun)
	return begun
}

func (p *part) endVisit(begun time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.visits, begun)
	p.visits = slices.Delete(p.visits, i, i+1)
}

// complete puts the owners of the shards of members into a view of the home.
func (s *Store) complete(v *store.View) {
	owners := make([]store.ShardOwner, s.info.Shards)
	for i := range owners {
		owners[i].Shard = model.ShardID(i)
	}
	put := func(from []store.ShardOwner, p *part) {
		for _, o := range from {
			if int(o.Shard) < len(owners) && s.partOf(o.Shard) == p {
				owners[o.Shard] = o
			}
		}
	}

	put(v.Owners, s.parts[0])
	for _, p := range s.parts[1:] {
		p.mu.Lock()
		put(p.owners, p)
		p.mu.Unlock()
	}
	v.Owners = owners
}

// Members returns the nodes of the home and the owners of all shards. For a member that is away, it
// returns the owners that the store has seen last, and says so.
func (s *Store) Members(ctx context.Context) (store.View, error) {
	v, err := s.parts[0].Members(ctx)
	if err != nil {
		return v, err
	}

	var there []*part
	for _, p := range s.parts[1:] {
		if _, err := p.admit(ctx); err == nil {
			there = append(there, p)
		}
	}
	answers := inMembers(ctx, s, there, longestWait, func(ctx context.Context, p *part) (struct{}, error) {
		look, begun := p.beginLook(), p.beginCall()
		v, err := p.Members(ctx)
		s.judge(ctx, p, begun, err)
		if err == nil {
			s.noteOwners(p, look, v.Owners)
		}
		return struct{}{}, err
	})
	s.complete(&v)

	fresh := map[*part]bool{s.parts[0]: true}
	for _, a := range answers {
		fresh[a.part] = a.err == nil
	}
	for i := range v.Owners {
		v.Owners[i].Old = !fresh[s.partOf(v.Owners[i].Shard)]
	}
	return v, nil
}

// FenceNode removes a node from the home, and then from the members. If a member does not answer,
// Acquire removes the node there before it takes a shard.
func (s *Store) FenceNode(ctx context.Context, r store.FenceRequest) (bool, error) {
	ended, err := s.parts[0].FenceNode(ctx, r)
	if err != nil || !ended {
		return ended, err
	}
	gone := store.FenceRequest{Node: r.Node, Epoch: r.Epoch, Proven: true}
	inMembers(ctx, s, s.parts[1:], longestWait, func(ctx context.Context, p *part) (bool, error) {
		return p.FenceNode(ctx, gone)
	})
	return true, nil
}

// Acquire takes shards of the home and of the members. If a member does not answer, the result
// leaves out its shards.
func (s *Store) Acquire(ctx context.Context, node model.NodeID, epoch int64, shards []model.ShardID) ([]store.AcquiredShard, error) {
	wanted := s.split(shards)
	var members []*part
	for _, p := range s.parts[1:] {
		if len(wanted[p.index]) > 0 && !p.isSick() {
			members = append(members, p)
		}
	}
	// Call the home even if no shard of the home is wanted, because the home says whether the node
	// is fenced.
	got, err := s.parts[0].Acquire(ctx, node, epoch, wanted[0])
	if err != nil {
		return nil, err
	}

	answers := inMembers(ctx, s, members, longestWait, func(ctx context.Context, p *part) ([]store.AcquiredShard, error) {
		return s.acquireIn(ctx, p, node, epoch, wanted[p.index])
	})
	for _, a := range answers {
		if a.err != nil && (!isTrouble(a.err) || len(answers) == 1 && len(wanted[0]) == 0) {
			return nil, a.err
		}
		got = append(got, a.value...)
	}
	slices.SortFunc(got, func(a, b store.AcquiredShard) int { return cmp.Compare(a.Shard, b.Shard) })
	return got, nil
}

// acquireIn takes shards of a member, after it has fenced the nodes there that the home no longer
// has.
//
//arch:parameters these are the parameters of Acquire
func (s *Store) acquireIn(ctx context.Context, p *part, node model.NodeID, epoch int64, shards []model.ShardID) ([]store.AcquiredShard, error) {
	if err := s.join(ctx, p, node); err != nil {
		return nil, err
	}

	// The order of the two reads matters; see the package comment.
	there, err := p.Members(ctx)
	if err != nil {
		return nil, err
	}
	home, err := s.parts[0].Members(ctx)
	if err != nil {
		return nil, err
	}

	alive := map[model.NodeID]int64{}
	for i := range home.Members {
		alive[home.Members[i].ID] = home.Members[i].Epoch
	}
	if alive[node] != epoch {
		return nil, store.Errorf(store.Fenced, "acquire", "%s is not registered at epoch %d", node, epoch)
	}
	if err := fenceAll(ctx, p, there.Members, func(m *store.Member) bool { return alive[m.ID] == m.Epoch }); err != nil {
		return nil, err
	}
	got, err := p.Acquire(ctx, node, epoch, shards)
	if err == nil {
		p.noteAcquired(node, epoch, got)
	}
	return got, err
}

// noteAcquired corrects the remembered owners of the shards of the part, after a node has acquired
// some of them.
func (p *part) noteAcquired(node model.NodeID, epoch int64, got []store.AcquiredShard) {
	if len(got) == 0 {
		return
	}
	taken := make(map[model.ShardID]bool, len(got))
	for i := range got {
		taken[got[i].Shard] = true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = p.looks
	for i := range p.owners {
		if o := &p.owners[i]; taken[o.Shard] {
			o.Node, o.Epoch = node, epoch
		}
	}
}

// noteFreed corrects the remembered owners of the shards of the part, after a node has freed some
// of them. If the next renewal gets no answer from the part, its view must not say that the node
// still owns these shards. Otherwise the node would take them again.
func (p *part) noteFreed(shards []model.ShardID) {
	if len(shards) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = p.looks
	for i := range p.owners {
		if o := &p.owners[i]; slices.Contains(shards, o.Shard) {
			o.Node, o.Epoch = model.NodeID{}, 0
		}
	}
}

// SetDrained stores or withdraws the order that a node must hand its shards over.
func (s *Store) SetDrained(ctx context.Context, node model.NodeID, drained bool) (bool, error) {
	return s.parts[0].SetDrained(ctx, node, drained)
}

// Unregister removes a node from the members, and then from the home.
func (s *Store) Unregister(ctx context.Context, node model.NodeID, epoch int64) error {
	if err := ctx.Err(); err != nil {
		return store.Errorf(store.Retryable, "unregister", "%w", context.Cause(ctx))
	}
	// If a member does not answer, a later Acquire removes the node there.
	inMembers(ctx, s, s.parts[1:], longestWait, func(ctx context.Context, p *part) (struct{}, error) {
		return struct{}{}, p.Unregister(ctx, node, epoch)
	})
	if err := s.parts[0].Unregister(ctx, node, epoch); err != nil {
		return err
	}
	s.forgetNode(node, epoch)
	return nil
}

// registrations returns the nodes that this process has registered, with their epochs.
func (s *Store) registrations() map[model.NodeID]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[model.NodeID]int64, len(s.nodes))
	for id, reg := range s.nodes {
		out[id] = reg.Epoch
	}
	return out
}

// forgetGone forgets the nodes that the home no longer has, because they ended without leaving and
// other nodes have fenced them. Without this, a process that loses its lease often would keep the
// registrations of all its incarnations. The parameter known has the registrations from before the
// home was read. The home had all of these nodes, so a node that is not in members is gone.
func (s *Store) forgetGone(known map[model.NodeID]int64, members []store.Member) {
	for i := range members {
		delete(known, members[i].ID)
	}
	for id, epoch := range known {
		s.forgetNode(id, epoch)
	}
}

// forgetNode forgets a registration that has ended.
func (s *Store) forgetNode(node model.NodeID, epoch int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if reg := s.nodes[node]; reg != nil && reg.Epoch == epoch {
		delete(s.nodes, node)
	}
}

// partOfLane returns the part to which a lane writes.
func (s *Store) partOfLane(lane int) *part {
	if lane < 0 {
		return s.parts[0] // the home has no such lane
	}
	return s.parts[lane%len(s.parts)]
}

// Refence moves the fence of a lane to a new epoch of the home.
func (s *Store) Refence(ctx context.Context, l store.LaneRef) (epoch, landed int64, err error) {
	p := s.partOfLane(l.Lane)
	if p.index == 0 {
		return p.Refence(ctx, l)
	}
	if epoch, err = s.parts[0].DrawEpoch(ctx); err != nil {
		return 0, 0, err
	}
	if landed, err = p.RefenceAt(ctx, l, epoch); err != nil {
		return 0, 0, p.explain(err)
	}
	p.comeBack()
	return epoch, landed, nil
}
