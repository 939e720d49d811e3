package memory

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// ReadRaw returns rows as they are stored. This store does not encode rows, so the result is the
// JSON of their Go values.
func (s *Store) ReadRaw(ctx context.Context, shard model.ShardID, a model.Address, run model.RunID, each func(store.RawRow) error) error {
	rows, err := s.rawRows(ctx, shard, a, run)
	for i := range rows {
		if err != nil {
			return err
		}
		err = each(rows[i]) // call each without the lock
	}
	return err
}

func (s *Store) rawRows(ctx context.Context, shard model.ShardID, a model.Address, id model.RunID) (out []store.RawRow, err error) {
	defer s.mu.Unlock()
	if err := s.begin(ctx, "read raw rows"); err != nil {
		return nil, err
	}
	sh := s.peek(shard)
	if sh == nil {
		return nil, nil
	}

	if a.IsEntity() {
		return s.rawEntity(store.EntityKey{Shard: shard, Address: a})
	}

	var runs []*run
	for _, r := range sh.runs {
		if r.started && r.row.Start.Address == a && (id.IsZero() || r.key.Run == id) {
			runs = append(runs, r)
		}
	}

	slices.SortFunc(runs, func(x, y *run) int { return x.key.Compare(y.key) })
	add := func(table string, r *run, value any) {
		var row []byte
		if row, err = json.Marshal(value); err == nil {
			out = append(out, store.RawRow{Table: table, Run: r.key.Run, Row: row})
		}
	}
	for _, r := range runs {
		add("executions", r, r.row)
	}

	for _, r := range runs {
		for i := range r.events {
			add("history", r, r.events[i])
		}
		for _, t := range r.timers {
			add("timers", r, t)
		}
		for _, l := range r.labels {
			add("labels", r, l)
		}
	}

	return out, err
}

// rawEntity returns the row and the mailbox of an entity.
func (s *Store) rawEntity(key store.EntityKey) (out []store.RawRow, err error) {
	add := func(table string, value any) {
		row, failed := json.Marshal(value)
		err = errors.Join(err, failed)
		out = append(out, store.RawRow{Table: table, Row: row})
	}
	if n, found := s.entities.get(&entity{key: key}); found {
		add("entities", n.row)
	}
	if m := s.mailbox(key); m != nil {
		for i := range m.items {
			add("mailbox", m.items[i])
		}
	}
	return out, err
}
