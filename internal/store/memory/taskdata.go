package memory

import (
	"cmp"
	"context"
	"slices"

	"github.com/perdure/perdure/internal/store"
)

// datum returns the index of a value that a task reported.
func (r *run) datum(task, name string) (int, bool) {
	return slices.BinarySearchFunc(r.data, store.TaskDatum{Task: task, Name: name}, func(a, b store.TaskDatum) int {
		return cmp.Or(cmp.Compare(a.Task, b.Task), cmp.Compare(a.Name, b.Name))
	})
}

// line returns the index of a log line.
func (r *run) line(at store.LogPlace) (int, bool) {
	return slices.BinarySearchFunc(r.logs, at, func(l *store.LogRow, at store.LogPlace) int { return l.Place().Compare(at) })
}

func oldestLineFirst(a, b *store.LogRow) int {
	return cmp.Or(cmp.Compare(a.At, b.At), a.Run.Compare(b.Run), a.Place().Compare(b.Place()))
}

func (s *Store) applyTaskData(b *store.Batch) error {
	for i := range b.TaskData {
		row := &b.TaskData[i]
		sh := s.shard(row.Shard)
		if sh == nil {
			return refuse("there is no shard %d", row.Shard)
		}
		r := sh.run(row.Run)
		at, found := r.datum(row.Task, row.Name)

		switch fresh := cloneDatum(*row); {
		case row.Deleted && !found:
		case row.Deleted:
			was := r.data[at]
			r.data = slices.Delete(r.data, at, at+1)
			s.addUndo(func() { r.data = slices.Insert(r.data, at, was) })
		case found:
			was := r.data[at]
			r.data[at] = fresh
			s.addUndo(func() { r.data[at] = was })
		default:
			r.data = slices.Insert(r.data, at, fresh)
			s.addUndo(func() { r.data = slices.Delete(r.data, at, at+1) })
		}
	}

	return nil
}

func (s *Store) applyLogs(b *store.Batch) error {
	for i := range b.Logs {
		l := b.Logs[i]
		l.Epoch, l.Batch = b.Lane.Epoch, b.Number
		sh := s.shard(l.Shard)
		if sh == nil {
			return refuse("there is no shard %d", l.Shard)
		}
		r := sh.run(l.Run)
		at, found := r.line(l.Place())
		if found {
			return refuse("line %d of %s is there twice", l.N, l.Run)
		}
		r.logs = slices.Insert(r.logs, at, &l)
		sh.lines.insert(&l)
		s.addUndo(func() { sh.dropLine(r, &l) })
	}

	return nil
}

func (s *shard) dropLine(r *run, l *store.LogRow) {
	at, _ := r.line(l.Place())
	r.logs = slices.Delete(r.logs, at, at+1)
	s.lines.remove(l)
}

// sweepLines removes old log lines, at most left of them, and returns how many more rows the sweep
// may remove.
func (s *shard) sweepLines(r *store.SweepRequest, left int) int {
	for ; left > 0; left-- {
		p := s.lines.first()
		oldest, ok := p.at()
		if !ok || oldest.At >= r.LogsBefore {
			break
		}
		s.dropLine(s.runs[oldest.Run], oldest)
	}
	return left
}

// sweepTasks removes the data and log lines of the tasks of a deleted run, at most left rows. It
// returns how many more rows the sweep may remove.
func (s *shard) sweepTasks(r *run, left int) int {
	n := min(len(r.data), left)
	r.data = slices.Delete(r.data, 0, n)
	for left -= n; left > 0 && len(r.logs) > 0; left-- {
		s.dropLine(r, r.logs[0])
	}
	return left
}

// LoadTaskData returns the data of a task, or of all tasks of a run.
func (s *Store) LoadTaskData(ctx context.Context, key store.RunKey, q store.DataRange) ([]store.TaskDatum, error) {
	defer s.mu.Unlock()
	if err := s.begin(ctx, "load data of tasks"); err != nil {
		return nil, err
	}
	r := s.look(key)
	if r == nil {
		return nil, nil
	}

	var out []store.TaskDatum
	first := 0
	if q.Task != "" {
		first, _ = r.datum(q.Task, q.From)
	}

	for i := first; i < len(r.data) && (q.Limit <= 0 || len(out) < q.Limit); i++ {
		switch d := &r.data[i]; {
		case q.Task != "" && (d.Task != q.Task || !q.Covers(d.Name)):
			return out, nil
		case q.Covers(d.Name):
			out = append(out, cloneDatum(*d))
		}
	}

	return out, nil
}

// LoadLogs returns the log lines of a task, or of all tasks of a run.
func (s *Store) LoadLogs(ctx context.Context, key store.RunKey, task string, after store.LogPlace, limit int) ([]store.LogRow, error) {
	defer s.mu.Unlock()
	if err := s.begin(ctx, "load log lines"); err != nil {
		return nil, err
	}
	r := s.look(key)
	if r == nil {
		return nil, nil
	}

	at, found := r.line(after)
	if found {
		at++
	}

	var out []store.LogRow
	for ; at < len(r.logs) && len(out) < limit; at++ {
		if task == "" || r.logs[at].Task == task {
			out = append(out, *r.logs[at])
		}
	}

	return out, nil
}
