package partitioned

import (
	"cmp"
	"context"
	"slices"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// everywhere calls a function for each part, and stops at the first error. If members are known to
// be away, it does not call the function, and returns an error that names all these members.
func (s *Store) everywhere(ctx context.Context, do func(p *part) error) error {
	if err := s.absentMembers(); err != nil {
		return err
	}
	for _, p := range s.parts {
		if err := s.ifThere(ctx, p, func() error { return do(p) }); err != nil {
			return err
		}
	}
	return nil
}

// page sorts the rows of several parts and cuts them to a page. It returns whether rows were cut.
func page[T any](rows []T, limit int, compare func(a, b *T) int) ([]T, bool) {
	slices.SortStableFunc(rows, func(a, b T) int { return compare(&a, &b) })
	if limit = max(limit, 0); len(rows) > limit {
		return rows[:limit], true
	}
	return rows, false
}

// List returns executions, newest start first.
func (s *Store) List(ctx context.Context, q store.Query) (out store.Page, err error) {
	err = s.everywhere(ctx, func(p *part) error {
		one, err := p.List(ctx, q)
		out.Executions, out.More = append(out.Executions, one.Executions...), out.More || one.More
		return err
	})
	if err != nil {
		return store.Page{}, err
	}
	rows, cut := page(out.Executions, q.Limit, newestFirst)
	return store.Page{Executions: rows, More: out.More || cut}, nil
}

func newestFirst(a, b *store.Execution) int {
	return cmp.Or(cmp.Compare(b.Start.At, a.Start.At), b.Start.Run.Compare(a.Start.Run), cmp.Compare(a.Shard, b.Shard))
}

// Count counts the matching executions.
func (s *Store) Count(ctx context.Context, q store.Query) (total int64, err error) {
	err = s.everywhere(ctx, func(p *part) error {
		n, err := p.Count(ctx, q)
		total += n
		return err
	})
	return total, err
}

// Tenants returns the tenants that have executions, sorted.
func (s *Store) Tenants(ctx context.Context) (all []string, err error) {
	err = s.everywhere(ctx, func(p *part) error {
		some, err := p.Tenants(ctx)
		all = append(all, some...)
		return err
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// LoadEventsOf returns the stored events of a run that have the kind, newest first.
func (s *Store) LoadEventsOf(ctx context.Context, key store.RunKey, kind model.EventKind, before int64, limit int) ([]model.Event, error) {
	p := s.partOf(key.Shard)
	return read(ctx, s, p, func() ([]model.Event, error) { return p.LoadEventsOf(ctx, key, kind, before, limit) })
}

// LastEvent returns the highest position of the stored events of a run.
func (s *Store) LastEvent(ctx context.Context, key store.RunKey) (int64, error) {
	p := s.partOf(key.Shard)
	return read(ctx, s, p, func() (int64, error) { return p.LastEvent(ctx, key) })
}

// runKeys groups keys of runs by their part.
func (s *Store) runKeys(keys []store.RunKey) [][]store.RunKey {
	return splitBy(s, keys, func(k *store.RunKey) model.ShardID { return k.Shard })
}

// LoadLabels returns the present labels of the runs, ordered by shard, run and name.
func (s *Store) LoadLabels(ctx context.Context, keys []store.RunKey) (out []store.LabelRow, err error) {
	for i, mine := range s.runKeys(keys) {
		if len(mine) == 0 {
			continue
		}
		p := s.parts[i]
		rows, err := read(ctx, s, p, func() ([]store.LabelRow, error) { return p.LoadLabels(ctx, mine) })
		if err != nil {
			return nil, err
		}
		out = append(out, rows...)
	}
	slices.SortStableFunc(out, func(a, b store.LabelRow) int {
		return cmp.Or(a.Compare(b.RunKey), cmp.Compare(a.Label.Name, b.Label.Name))
	})
	return out, nil
}

// LoadDetails returns what a description of a run shows.
func (s *Store) LoadDetails(ctx context.Context, shard model.ShardID, address model.Address, run model.RunID) (store.RunDetails, error) {
	p := s.partOf(shard)
	return read(ctx, s, p, func() (store.RunDetails, error) { return p.LoadDetails(ctx, shard, address, run) })
}

// LoadDeadLetters returns requests and messages that the engine refused and kept, in the order of
// their ids.
func (s *Store) LoadDeadLetters(ctx context.Context, after model.RunID, limit int) (out []store.InboxRow, err error) {
	err = s.everywhere(ctx, func(p *part) error {
		rows, err := p.LoadDeadLetters(ctx, after, limit)
		out = append(out, rows...)
		return err
	})
	if err != nil {
		return nil, err
	}
	out, _ = page(out, limit, func(a, b *store.InboxRow) int { return a.ID.Compare(b.ID) })
	return out, nil
}

// ReadRaw calls each with rows as they are stored.
//
//arch:parameters these are the parameters of the port
func (s *Store) ReadRaw(ctx context.Context, shard model.ShardID, address model.Address, run model.RunID, each func(store.RawRow) error) error {
	p := s.partOf(shard)
	return s.ifThere(ctx, p, func() error { return p.ReadRaw(ctx, shard, address, run, each) })
}

// Search calls found with every stored value that contains the text. It looks at every part twice,
// because a message may carry a value from a part that it has not searched yet to a part that it
// has already searched.
func (s *Store) Search(ctx context.Context, text string, found func(value []byte) error) error {
	for range 2 {
		if err := s.everywhere(ctx, func(p *part) error { return p.Search(ctx, text, found) }); err != nil {
			return err
		}
	}
	return nil
}
