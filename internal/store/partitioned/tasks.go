package partitioned

import (
	"cmp"
	"context"
	"slices"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// LoadDead returns a dead task.
func (s *Store) LoadDead(ctx context.Context, key store.DeadKey) (*store.DeadRow, error) {
	p := s.partOf(key.Shard)
	return read(ctx, s, p, func() (*store.DeadRow, error) { return p.LoadDead(ctx, key) })
}

// ListDead returns dead tasks, the latest failure first.
func (s *Store) ListDead(ctx context.Context, q store.DeadQuery) (out store.DeadPage, err error) {
	err = s.everywhere(ctx, func(p *part) error {
		one, err := p.ListDead(ctx, q)
		out.Rows, out.More = append(out.Rows, one.Rows...), out.More || one.More
		return err
	})
	if err != nil {
		return store.DeadPage{}, err
	}
	rows, cut := page(out.Rows, q.Limit, func(a, b *store.DeadRow) int { return b.Place().Compare(a.Place()) })
	return store.DeadPage{Rows: rows, More: out.More || cut}, nil
}

// CountDead counts the matching dead tasks.
func (s *Store) CountDead(ctx context.Context, q store.DeadQuery) (total int64, err error) {
	err = s.everywhere(ctx, func(p *part) error {
		n, err := p.CountDead(ctx, q)
		total += n
		return err
	})
	return total, err
}

// groupsOfPart is how many groups of dead tasks GroupDead reads from each part. The result is exact
// as long as no part has more groups.
const groupsOfPart = 10_000

// GroupDead groups the matching dead tasks by kind and fingerprint, the largest groups first.
func (s *Store) GroupDead(ctx context.Context, q store.DeadQuery, limit int) ([]store.DeadGroup, error) {
	type alike struct{ kind, fingerprint string }
	groups := map[alike]*store.DeadGroup{}
	err := s.everywhere(ctx, func(p *part) error {
		some, err := p.GroupDead(ctx, q, max(limit, groupsOfPart))
		for _, g := range some {
			all := groups[alike{g.Kind, g.Fingerprint}]
			if all == nil {
				groups[alike{g.Kind, g.Fingerprint}] = &g
				continue
			}
			all.Count += g.Count
			all.First = min(all.First, g.First)
			if g.Last > all.Last {
				all.Last, all.Message = g.Last, g.Message
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}

	out := make([]store.DeadGroup, 0, len(groups))
	for _, g := range groups {
		out = append(out, *g)
	}
	slices.SortFunc(out, store.CompareGroups)
	return out[:min(len(out), max(limit, 0))], nil
}

// LoadDeadBefore returns the dead tasks that failed before the given time, in the given shards,
// ordered by (shard, time, run, task). Sweeps use it. If a member (a part other than the home)
// cannot be reached, its rows are missing in the result.
func (s *Store) LoadDeadBefore(ctx context.Context, shards []model.ShardID, before model.Time, after store.DeadPlace, limit int) ([]store.DeadRow, error) {
	inOrder := func(a, b store.DeadRow) int {
		return cmp.Or(cmp.Compare(a.Shard, b.Shard), a.Place().Compare(b.Place()))
	}
	return collect(s, shards, limit, inOrder, func(p *part, mine []model.ShardID) (rows []store.DeadRow, err error) {
		load := func(ctx context.Context) error {
			rows, err = p.LoadDeadBefore(ctx, mine, before, after, limit)
			return err
		}
		if p.index == 0 {
			err = load(ctx)
		} else {
			_, err = s.unlessAway(ctx, p, longestSweep, load)
		}
		return rows, p.explain(err)
	})
}

// LoadTaskData returns data of a task, or of all tasks of the run.
func (s *Store) LoadTaskData(ctx context.Context, key store.RunKey, r store.DataRange) ([]store.TaskDatum, error) {
	p := s.partOf(key.Shard)
	return read(ctx, s, p, func() ([]store.TaskDatum, error) { return p.LoadTaskData(ctx, key, r) })
}

// LoadLogs returns log lines of a task, or of all tasks of the run.
func (s *Store) LoadLogs(ctx context.Context, key store.RunKey, task string, after store.LogPlace, limit int) ([]store.LogRow, error) {
	p := s.partOf(key.Shard)
	return read(ctx, s, p, func() ([]store.LogRow, error) { return p.LoadLogs(ctx, key, task, after, limit) })
}

// LoadEntity returns the row of an entity and the first items of its mailbox.
func (s *Store) LoadEntity(ctx context.Context, key store.EntityKey, limit, maxBytes int) (store.LoadedEntity, error) {
	p := s.partOf(key.Shard)
	return read(ctx, s, p, func() (store.LoadedEntity, error) { return p.LoadEntity(ctx, key, limit, maxBytes) })
}

// LoadMailbox returns the items of a mailbox after the given position.
func (s *Store) LoadMailbox(ctx context.Context, key store.EntityKey, after int64, limit, maxBytes int) ([]model.MailboxItem, error) {
	p := s.partOf(key.Shard)
	return read(ctx, s, p, func() ([]model.MailboxItem, error) { return p.LoadMailbox(ctx, key, after, limit, maxBytes) })
}

// LoadMailboxes returns the keys of the entities that have a non-empty mailbox, in the given
// shards, ordered by key.
func (s *Store) LoadMailboxes(ctx context.Context, shards []model.ShardID, after store.EntityKey, limit int) ([]store.EntityKey, error) {
	return collect(s, shards, limit, store.EntityKey.Compare, func(p *part, mine []model.ShardID) ([]store.EntityKey, error) {
		return read(ctx, s, p, func() ([]store.EntityKey, error) { return p.LoadMailboxes(ctx, mine, after, limit) })
	})
}

// ListEntities returns entities, ordered by type and key.
func (s *Store) ListEntities(ctx context.Context, q store.EntityQuery) (out store.EntityPage, err error) {
	err = s.everywhere(ctx, func(p *part) error {
		one, err := p.ListEntities(ctx, q)
		out.Entities, out.More = append(out.Entities, one.Entities...), out.More || one.More
		return err
	})
	if err != nil {
		return store.EntityPage{}, err
	}
	rows, cut := page(out.Entities, q.Limit, func(a, b *model.Entity) int {
		return cmp.Or(cmp.Compare(a.Address.Type, b.Address.Type), cmp.Compare(a.Address.Key, b.Address.Key))
	})
	return store.EntityPage{Entities: rows, More: out.More || cut}, nil
}
