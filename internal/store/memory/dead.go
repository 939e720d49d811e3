package memory

import (
	"cmp"
	"context"
	"slices"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// lastDeadFirst is the order of lists.
func lastDeadFirst(a, b *store.DeadRow) int {
	return cmp.Or(b.Place().Compare(a.Place()), cmp.Compare(a.Shard, b.Shard))
}

// longestDeadFirst is the order in which a shard keeps its dead tasks by age.
func longestDeadFirst(a, b *store.DeadRow) int { return a.Place().Compare(b.Place()) }

// addDead adds a dead task to all indexes of dead tasks, and dropDead removes it from all of them.
func (s *Store) addDead(sh *shard, r *store.DeadRow) {
	if sh.dead == nil {
		sh.dead = make(map[store.DeadKey]*store.DeadRow)
	}
	sh.dead[r.DeadKey] = r
	sh.deadByAge.insert(r)
	s.dead.insert(r)
}

func (s *Store) dropDead(sh *shard, r *store.DeadRow) {
	delete(sh.dead, r.DeadKey)
	sh.deadByAge.remove(r)
	s.dead.remove(r)
}

// deadTask returns a dead task; nil when there is none.
func (s *Store) deadTask(key store.DeadKey) (*shard, *store.DeadRow) {
	if sh := s.peek(key.Shard); sh != nil {
		return sh, sh.dead[key]
	}
	return nil, nil
}

func (s *Store) applyDead(b *store.Batch) error {
	for i := range b.Dead {
		sh := s.shard(b.Dead[i].Shard)
		if sh == nil {
			return refuse("there is no shard %d", b.Dead[i].Shard)
		}
		if sh.dead[b.Dead[i].DeadKey] != nil {
			return refuse("task %q of %s is dead already", b.Dead[i].Task, b.Dead[i].Run)
		}
		row := cloneDead(b.Dead[i])
		s.addDead(sh, &row)
		s.addUndo(func() { s.dropDead(sh, &row) })
	}

	for i := range b.DeadMarks {
		m := &b.DeadMarks[i]
		_, row := s.deadTask(m.DeadKey)
		switch {
		case row == nil:
			return refuse("there is no dead task %q of %s", m.Task, m.Run)
		case row.Requeued != m.Prev:
			return refuse("the dead task %q of %s was requeued %d times, not %d", m.Task, m.Run, row.Requeued, m.Prev)
		case store.ColumnsOf(&row.Body) != store.ColumnsOf(&m.Body):
			return refuse("the dead task %q of %s would be another one", m.Task, m.Run)
		}
		was := *row
		row.Requeued, row.Body = m.Next, cloneDeadTask(m.Body)
		s.addUndo(func() { *row = was })
	}

	for _, key := range b.DeadDeletes {
		sh, row := s.deadTask(key)
		if row == nil {
			return refuse("there is no dead task %q of %s", key.Task, key.Run)
		}
		s.dropDead(sh, row)
		s.addUndo(func() { s.addDead(sh, row) })
	}

	return nil
}

// LoadDead returns a dead task.
func (s *Store) LoadDead(ctx context.Context, key store.DeadKey) (*store.DeadRow, error) {
	defer s.mu.Unlock()
	if err := s.begin(ctx, "load dead task"); err != nil {
		return nil, err
	}
	_, row := s.deadTask(key)
	if row == nil {
		return nil, nil
	}
	out := cloneDead(*row)
	return &out, nil
}

func deadMatches(r *store.DeadRow, q *store.DeadQuery) bool {
	d := &r.Body
	return d.Address.Tenant == q.Tenant &&
		(len(q.Kinds) == 0 || slices.Contains(q.Kinds, d.Spec.Kind)) &&
		(len(q.Queues) == 0 || slices.Contains(q.Queues, d.Spec.Queue)) &&
		(q.Fingerprint == "" || d.Fingerprint == q.Fingerprint) &&
		(q.From == 0 || d.At >= q.From) &&
		(q.To == 0 || d.At < q.To) &&
		(q.Requeued == nil || *q.Requeued == (r.Requeued > 0))
}

// eachDead visits the dead tasks that match, newest first, until visit returns false.
func (s *Store) eachDead(q *store.DeadQuery, visit func(r *store.DeadRow) bool) {
	for p := s.dead.first(); ; p.next() {
		r, ok := p.at()
		if !ok || deadMatches(r, q) && !visit(r) {
			return
		}
	}
}

// ListDead returns dead tasks, the latest failure first.
func (s *Store) ListDead(ctx context.Context, q store.DeadQuery) (out store.DeadPage, err error) {
	defer s.mu.Unlock()
	if err := s.begin(ctx, "list dead tasks"); err != nil {
		return store.DeadPage{}, err
	}
	s.eachDead(&q, func(r *store.DeadRow) bool {
		if q.After != (store.DeadPlace{}) && r.Place().Compare(q.After) >= 0 {
			return true
		}
		if out.More = len(out.Rows) >= q.Limit; !out.More {
			out.Rows = append(out.Rows, cloneDead(*r))
		}
		return !out.More
	})
	return out, nil
}

// CountDead counts dead tasks.
func (s *Store) CountDead(ctx context.Context, q store.DeadQuery) (n int64, err error) {
	defer s.mu.Unlock()
	if err := s.begin(ctx, "count dead tasks"); err != nil {
		return 0, err
	}
	s.eachDead(&q, func(*store.DeadRow) bool { n++; return true })
	return n, nil
}

// GroupDead returns dead tasks by kind and fingerprint.
func (s *Store) GroupDead(ctx context.Context, q store.DeadQuery, limit int) ([]store.DeadGroup, error) {
	defer s.mu.Unlock()
	if err := s.begin(ctx, "group dead tasks"); err != nil {
		return nil, err
	}
	var out []store.DeadGroup
	at := make(map[[2]string]int)

	s.eachDead(&q, func(r *store.DeadRow) bool {
		d := &r.Body
		key := [2]string{d.Spec.Kind, d.Fingerprint}
		i, ok := at[key]
		if !ok {
			i = len(out)
			at[key] = i
			g := store.DeadGroup{Kind: d.Spec.Kind, Fingerprint: d.Fingerprint, Last: d.At}
			if d.Failure != nil {
				g.Message = d.Failure.Message
			}
			out = append(out, g)
		}
		out[i].Count++
		out[i].First = d.At
		return true
	})

	slices.SortFunc(out, store.CompareGroups)
	return out[:min(len(out), max(limit, 0))], nil
}

// LoadDeadBefore returns the dead tasks that failed before the given time, in the given shards.
func (s *Store) LoadDeadBefore(ctx context.Context, shards []model.ShardID, before model.Time, after store.DeadPlace, limit int) ([]store.DeadRow, error) {
	defer s.mu.Unlock()
	if err := s.begin(ctx, "load old dead tasks"); err != nil {
		return nil, err
	}

	var out []store.DeadRow
	for _, sh := range s.some(shards) {
		if sh.id < after.Shard {
			continue
		}
		p := sh.deadByAge.first()

		if sh.id == after.Shard {
			mark := &store.DeadRow{DeadKey: store.DeadKey{RunKey: store.RunKey{Shard: sh.id, Run: after.Run}, Task: after.Task}}
			mark.Body.At = after.At
			p = sh.deadByAge.after(mark)
		}

		for ; len(out) < limit; p.next() {
			r, ok := p.at()
			if !ok || r.Body.At >= before {
				break
			}
			out = append(out, cloneDead(*r))
		}
	}

	return out, nil
}
