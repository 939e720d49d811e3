package partitioned

import (
	"cmp"
	"context"
	"slices"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// collect reads pages of several parts and merges them in the order of compare, up to limit. A
// limit of 0 means no limit. Each part returns as many rows as the whole page may have.
//
//arch:parameters the last two are functions
func collect[T any](s *Store, shards []model.ShardID, limit int, compare func(a, b T) int, load func(p *part, mine []model.ShardID) ([]T, error)) (out []T, err error) {
	var skipped error
	for i, mine := range s.split(shards) {
		if len(mine) == 0 {
			continue
		}
		rows, err := load(s.parts[i], mine)
		if !store.Whole(err) {
			return nil, err
		}
		skipped = cmp.Or(skipped, err)
		out = append(out, rows...)
	}
	slices.SortStableFunc(out, compare)
	if limit > 0 {
		out = out[:min(len(out), limit)]
	}
	return out, skipped
}

// LoadRunnable returns the open runs that are not parked, in the given shards.
func (s *Store) LoadRunnable(ctx context.Context, shards []model.ShardID, after store.RunKey, limit int) ([]store.RunHead, error) {
	return collect(s, shards, limit, func(a, b store.RunHead) int { return a.Compare(b.RunKey) }, func(p *part, mine []model.ShardID) ([]store.RunHead, error) {
		return read(ctx, s, p, func() ([]store.RunHead, error) { return p.LoadRunnable(ctx, mine, after, limit) })
	})
}

// LoadExpired returns closed runs that may be removed, in the shards of r. It walks through one
// part after the other.
func (s *Store) LoadExpired(ctx context.Context, r store.ExpiredRequest) (store.Expired, error) {
	if p := s.only(r.Shards); p != nil {
		return s.loadExpired(ctx, p, r)
	}

	if r.Limit <= 0 {
		return store.Expired{}, nil
	}

	parts := s.split(r.Shards)
	var out store.Expired
	for i, mine := range parts {
		own := r
		own.Shards, own.After, own.ClosedBefore, own.Limit = mine, store.RunKey{}, 0, r.Limit-len(out.Runs)
		if len(mine) == 0 || own.Limit <= 0 {
			continue
		}
		x, err := s.loadExpired(ctx, s.parts[i], own)
		if err != nil {
			return store.Expired{}, err
		}
		out.Runs = append(out.Runs, x.Runs...)
	}

	walk := r
	walk.Now = 0 // out already has the runs with a removal time of their own
	for i := s.partOf(r.After.Shard).index; i < len(parts); i++ {
		if len(parts[i]) == 0 {
			continue
		}
		if walk.Limit = r.Limit - out.Walked; walk.Limit <= 0 {
			out.Next = store.RunKey{Shard: slices.Min(parts[i])}
			break
		}
		walk.Shards = parts[i]
		x, err := s.loadExpired(ctx, s.parts[i], walk)
		if err != nil {
			return store.Expired{}, err
		}
		out.Runs, out.Walked, out.Next = append(out.Runs, x.Runs...), out.Walked+x.Walked, x.Next
		if out.Next != (store.RunKey{}) {
			break
		}
		walk.After = store.RunKey{}
	}
	return out, nil
}

func (s *Store) loadExpired(ctx context.Context, p *part, r store.ExpiredRequest) (store.Expired, error) {
	return read(ctx, s, p, func() (store.Expired, error) { return p.LoadExpired(ctx, r) })
}

// LoadExecution returns the current run of an address, or the given run.
func (s *Store) LoadExecution(ctx context.Context, shard model.ShardID, address model.Address, run model.RunID) (*store.Execution, error) {
	p := s.partOf(shard)
	return read(ctx, s, p, func() (*store.Execution, error) { return p.LoadExecution(ctx, shard, address, run) })
}

// LoadEvents returns stored events of a run.
func (s *Store) LoadEvents(ctx context.Context, key store.RunKey, after int64, limit, maxBytes int) ([]model.Event, error) {
	p := s.partOf(key.Shard)
	return read(ctx, s, p, func() ([]model.Event, error) { return p.LoadEvents(ctx, key, after, limit, maxBytes) })
}

// LoadRun returns what the engine needs to continue a run.
//
//arch:parameters these are the parameters of the port
func (s *Store) LoadRun(ctx context.Context, shard model.ShardID, address model.Address, run model.RunID, limit, maxBytes int) (store.Run, error) {
	p := s.partOf(shard)
	return read(ctx, s, p, func() (store.Run, error) { return p.LoadRun(ctx, shard, address, run, limit, maxBytes) })
}

// LoadRuns returns what LoadRun returns, for the current runs of several addresses. It asks one
// part after the other, each for its own keys in their order.
func (s *Store) LoadRuns(ctx context.Context, keys []store.AddressKey, limit, maxBytes int) (runs []store.Run, err error) {
	for len(keys) > 0 && (maxBytes > 0 || len(runs) == 0) {
		p := s.partOf(keys[0].Shard)
		end := slices.IndexFunc(keys, func(k store.AddressKey) bool { return s.partOf(k.Shard) != p })
		if end < 0 {
			end = len(keys)
		}

		some, err := read(ctx, s, p, func() ([]store.Run, error) { return p.LoadRuns(ctx, keys[:end], limit, maxBytes) })
		if err != nil {
			return nil, err
		}
		runs = append(runs, some...)
		for i := range some {
			maxBytes -= some[i].Size()
		}
		if len(some) < end {
			break
		}
		keys = keys[end:]
	}
	return runs, nil
}

// LoadTimers returns timers of the shards, ordered by (Due, Run, ID).
func (s *Store) LoadTimers(ctx context.Context, shards []model.ShardID, after store.TimerMark, until model.Time, limit int) ([]store.Timer, error) {
	byDue := func(a, b store.Timer) int {
		return cmp.Or(cmp.Compare(a.Due, b.Due), a.Run.Compare(b.Run), cmp.Compare(a.ID, b.ID))
	}
	return collect(s, shards, limit, byDue, func(p *part, mine []model.ShardID) ([]store.Timer, error) {
		return read(ctx, s, p, func() ([]store.Timer, error) { return p.LoadTimers(ctx, mine, after, until, limit) })
	})
}

// LoadRunTimers returns the open timers of one run.
func (s *Store) LoadRunTimers(ctx context.Context, key store.RunKey) ([]store.Timer, error) {
	p := s.partOf(key.Shard)
	return read(ctx, s, p, func() ([]store.Timer, error) { return p.LoadRunTimers(ctx, key) })
}
