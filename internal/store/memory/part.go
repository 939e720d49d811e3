package memory

import (
	"context"
	"slices"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

var _ store.Part = (*Store)(nil)

// DrawEpoch takes the next epoch of the cluster.
func (s *Store) DrawEpoch(ctx context.Context) (int64, error) {
	defer s.mu.Unlock()
	if err := s.begin(ctx, "draw an epoch"); err != nil {
		return 0, err
	}
	s.epoch++
	return s.epoch, nil
}

// RegisterAt adds a node with an epoch that the home has drawn. The home is the part that has the
// epochs and leases of the cluster; see store.Part.
func (s *Store) RegisterAt(ctx context.Context, r store.PartRegistration) error {
	const op = "register in a part"
	defer s.mu.Unlock()
	if err := s.begin(ctx, op); err != nil {
		return err
	}
	if r.Node.ID.IsZero() || r.Lanes < 1 || r.Node.Sole {
		return store.Errorf(store.Refused, op, "a node needs an id and a lane, and cannot be alone")
	}

	i, found := s.find(r.Node.ID)
	if found {
		switch has := s.nodes[i].member.Epoch; {
		case has == r.Epoch:
			return nil
		case has > r.Epoch:
			return store.Errorf(store.Fenced, op, "%s is registered at epoch %d, after epoch %d", r.Node.ID, has, r.Epoch)
		}
	}

	fresh := &node{
		member: store.Member{NodeInfo: r.Node, Epoch: r.Epoch, Expires: s.time().Add(r.TTL), TTL: r.TTL},
		lanes:  slices.Repeat([]fence{{epoch: r.Epoch}}, r.Lanes),
	}
	if found {
		s.nodes[i] = fresh
	} else {
		s.nodes = slices.Insert(s.nodes, i, fresh)
	}
	return nil
}

// RefenceAt moves the fence of a lane to an epoch that the home has drawn.
func (s *Store) RefenceAt(ctx context.Context, l store.LaneRef, epoch int64) (landed int64, err error) {
	const op = "refence"
	defer s.mu.Unlock()
	if err := s.begin(ctx, op); err != nil {
		return 0, err
	}
	f := s.fence(l)
	if f == nil {
		return 0, store.Errorf(store.Fenced, op, "lane %d of %s does not stand at epoch %d", l.Lane, l.Node, l.Epoch)
	}
	f.epoch = epoch
	return f.batch, nil
}

// LoadChannels returns the channels to the shards. It leaves out channels without messages.
func (s *Store) LoadChannels(ctx context.Context, shards []model.ShardID) (out []store.Channel, err error) {
	defer s.mu.Unlock()
	if err := s.begin(ctx, "load channels"); err != nil {
		return nil, err
	}
	for _, sh := range s.some(shards) {
		for _, w := range sh.in {
			if len(w.rows) > 0 {
				out = append(out, store.Channel{To: w.to, From: w.from})
			}
		}
	}
	return out, nil
}

// LoadCursors returns the cursors of pairs of shards.
func (s *Store) LoadCursors(ctx context.Context, pairs []store.Channel) (out []store.ChannelCursor, err error) {
	defer s.mu.Unlock()
	if err := s.begin(ctx, "load cursors"); err != nil {
		return nil, err
	}
	for _, c := range pairs {
		if w := s.way(c.To, c.From); w != nil && w.received > 0 {
			out = append(out, store.ChannelCursor{Channel: c, Position: w.received})
		}
	}
	return out, nil
}

// AdvanceCursors moves this part's copies of cursors forward. The originals belong to receiving
// shards of another part.
func (s *Store) AdvanceCursors(ctx context.Context, cursors []store.ChannelCursor) error {
	const op = "advance cursors"
	defer s.mu.Unlock()
	if err := s.begin(ctx, op); err != nil {
		return err
	}
	for _, c := range cursors {
		w := s.way(c.To, c.From)
		if w == nil {
			return store.Errorf(store.Refused, op, "there is no way from shard %d to shard %d", c.From, c.To)
		}
		w.received = max(w.received, c.Position)
	}
	return nil
}
