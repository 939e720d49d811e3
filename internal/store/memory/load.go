package memory

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// LoadRunnable returns open runs that are not parked.
func (s *Store) LoadRunnable(ctx context.Context, shards []model.ShardID, after store.RunKey, limit int) ([]store.RunHead, error) {
	defer s.mu.Unlock()
	if err := s.begin(ctx, "load runnable"); err != nil {
		return nil, err
	}

	var out []store.RunHead
	for _, sh := range s.some(shards) {
		if sh.id < after.Shard {
			continue
		}
		p := sh.runnable.first()
		if sh.id == after.Shard {
			p = sh.runnable.after(&run{key: after})
		}
		for ; len(out) < limit; p.next() {
			r, ok := p.at()
			if !ok {
				break
			}
			out = append(out, store.RunHead{RunKey: r.key, Address: r.row.Start.Address})
		}
	}

	return out, nil
}

// LoadExpired returns closed runs that may be removed.
func (s *Store) LoadExpired(ctx context.Context, r store.ExpiredRequest) (store.Expired, error) {
	defer s.mu.Unlock()
	if err := s.begin(ctx, "load expired"); err != nil {
		return store.Expired{}, err
	}

	var out store.Expired
	for _, sh := range s.some(r.Shards) {
		for p := sh.leaving.first(); len(out.Runs) < r.Limit; p.next() {
			c, ok := p.at()
			if !ok || c.row.Outcome.Leaves >= r.Now {
				break
			}
			out.Runs = append(out.Runs, store.RunHead{RunKey: c.key, Address: c.row.Start.Address})
		}
	}

	end := store.OldestID(r.ClosedBefore)
	for _, sh := range s.some(r.Shards) {
		if sh.id < r.After.Shard {
			continue
		}
		p := sh.started.first()
		if sh.id == r.After.Shard {
			p = sh.started.after(&run{key: r.After})
		}

		for ; ; p.next() {
			c, ok := p.at()
			if !ok || c.key.Run.Compare(end) >= 0 {
				break
			}
			if out.Walked >= r.Limit {
				return out, nil
			}
			out.Walked, out.Next = out.Walked+1, c.key
			if o := &c.row.Outcome; o.Status.Closed() && o.Leaves == 0 && max(o.At, c.row.Start.At) < r.ClosedBefore {
				out.Runs = append(out.Runs, store.RunHead{RunKey: c.key, Address: c.row.Start.Address})
			}
		}
	}

	if out.Walked < r.Limit || r.Limit <= 0 {
		out.Next = store.RunKey{}
	}
	return out, nil
}

// look returns everything that is stored about a run, or nil if nothing is stored.
func (s *Store) look(key store.RunKey) *run {
	if sh := s.peek(key.Shard); sh != nil {
		return sh.runs[key.Run]
	}
	return nil
}

// LoadExecution returns the current run of an address, or the given run.
func (s *Store) LoadExecution(ctx context.Context, shard model.ShardID, address model.Address, id model.RunID) (*store.Execution, error) {
	defer s.mu.Unlock()
	if err := s.begin(ctx, "load execution"); err != nil {
		return nil, err
	}
	var r *run
	if !id.IsZero() {
		r = s.look(store.RunKey{Shard: shard, Run: id})
	} else if sh := s.peek(shard); sh != nil {
		r = sh.current[address]
	}
	if r == nil || !r.started {
		return nil, nil
	}
	e := cloneExecution(r.row)
	return &e, nil
}

// LoadEvents returns stored events of a run.
func (s *Store) LoadEvents(ctx context.Context, key store.RunKey, after int64, limit, maxBytes int) ([]model.Event, error) {
	defer s.mu.Unlock()
	if err := s.begin(ctx, "load events"); err != nil {
		return nil, err
	}
	r := s.look(key)
	if r == nil {
		return nil, nil
	}

	from, found := r.event(after)
	if found {
		from++
	}

	end, size := from, 0
	for end < len(r.events) && end-from < limit {
		size += r.events[end].Size()
		if end > from && size > maxBytes {
			break
		}
		end++
	}

	if end == from {
		return nil, nil
	}
	return cloneEvents(r.events[from:end]), nil
}

// LoadEventsOf returns stored events of one kind, newest first.
func (s *Store) LoadEventsOf(ctx context.Context, key store.RunKey, kind model.EventKind, before int64, limit int) ([]model.Event, error) {
	defer s.mu.Unlock()
	if err := s.begin(ctx, "load events"); err != nil {
		return nil, err
	}
	r := s.look(key)
	if r == nil {
		return nil, nil
	}
	var out []model.Event
	for i := len(r.events) - 1; i >= 0 && len(out) < limit; i-- {
		if e := &r.events[i]; e.Seq < before && e.Kind == kind {
			out = append(out, *e)
		}
	}
	return cloneEvents(out), nil
}

// LastEvent returns the highest position of the stored events of a run.
func (s *Store) LastEvent(ctx context.Context, key store.RunKey) (int64, error) {
	defer s.mu.Unlock()
	if err := s.begin(ctx, "count events"); err != nil {
		return 0, err
	}
	r := s.look(key)
	if r == nil || len(r.events) == 0 {
		return 0, nil
	}
	return r.events[len(r.events)-1].Seq, nil
}

// LoadRun returns what the engine needs to continue a run.
//
//arch:parameters the signature is part of the store port
func (s *Store) LoadRun(ctx context.Context, shard model.ShardID, a model.Address, run model.RunID, limit, maxBytes int) (store.Run, error) {
	return store.LoadRunByParts(ctx, s, shard, a, run, limit, maxBytes)
}

// LoadRuns returns what the engine needs to continue several runs.
func (s *Store) LoadRuns(ctx context.Context, keys []store.AddressKey, limit, maxBytes int) ([]store.Run, error) {
	return store.LoadRunsByParts(ctx, s, keys, limit, maxBytes)
}

// LoadTimers returns timers in the order of (due, run, id).
func (s *Store) LoadTimers(ctx context.Context, shards []model.ShardID, after store.TimerMark, until model.Time, limit int) ([]store.Timer, error) {
	defer s.mu.Unlock()
	if err := s.begin(ctx, "load timers"); err != nil {
		return nil, err
	}
	mark := &store.Timer{Due: after.Due, Run: after.Run, ID: after.ID}
	var places []place[*store.Timer]
	for _, sh := range s.some(shards) {
		places = append(places, sh.timers.after(mark))
	}
	var out []store.Timer

	merge(places, byDue, func(t *store.Timer) bool {
		if t.Due > until || len(out) >= limit {
			return false
		}
		out = append(out, *t)
		return true
	})

	return out, nil
}

// LoadRunTimers returns the timers of a run, ordered by id.
func (s *Store) LoadRunTimers(ctx context.Context, key store.RunKey) ([]store.Timer, error) {
	defer s.mu.Unlock()
	if err := s.begin(ctx, "load timers of a run"); err != nil {
		return nil, err
	}
	r := s.look(key)
	if r == nil {
		return nil, nil
	}
	var out []store.Timer
	for _, t := range r.timers {
		out = append(out, *t)
	}
	return out, nil
}

// matches reports whether a query selects a run. It ignores the paging fields.
func matches(r *run, q *store.Query) bool {
	start := &r.row.Start
	if start.Address.Tenant != q.Tenant || !q.AllRuns && !r.row.Current {
		return false
	}

	for _, c := range q.Labels {
		i := slices.IndexFunc(r.labels, func(l model.Label) bool { return l.Name == c.Name })
		if (i >= 0 && slices.Contains(c.Values, r.labels[i].Value)) == c.Not {
			return false
		}
	}

	closed := &r.row.Outcome
	return (len(q.Workflows) == 0 || slices.Contains(q.Workflows, start.Address.Type)) &&
		(q.Key == "" || start.Address.Key == q.Key) &&
		strings.HasPrefix(start.Address.Key, q.KeyPrefix) &&
		(len(q.Statuses) == 0 || slices.Contains(q.Statuses, closed.Status)) &&
		(len(q.Reasons) == 0 || !closed.Status.Closed() && slices.Contains(q.Reasons, r.row.Reason())) &&
		(q.StartedFrom == 0 || start.At >= q.StartedFrom) &&
		(q.StartedTo == 0 || start.At < q.StartedTo) &&
		(q.ClosedFrom == 0 || closed.Status.Closed() && closed.At >= q.ClosedFrom) &&
		(q.ClosedTo == 0 || closed.Status.Closed() && closed.At < q.ClosedTo)
}

// List returns executions, newest start first.
func (s *Store) List(ctx context.Context, q store.Query) (store.Page, error) {
	defer s.mu.Unlock()
	if err := s.begin(ctx, "list"); err != nil {
		return store.Page{}, err
	}
	p := s.listing.first()

	if q.After != (store.PageMark{}) {
		mark := &run{key: store.RunKey{Shard: model.MaxShards, Run: q.After.Run}}
		mark.row.Start.At = q.After.Started
		p = s.listing.after(mark)
	}

	var out store.Page
	for ; ; p.next() {
		r, ok := p.at()
		if !ok {
			return out, nil
		}
		if !matches(r, &q) {
			continue
		}
		if len(out.Executions) >= q.Limit {
			out.More = true
			return out, nil
		}
		out.Executions = append(out.Executions, cloneExecution(r.row))
	}
}

// Count counts executions.
func (s *Store) Count(ctx context.Context, q store.Query) (n int64, err error) {
	defer s.mu.Unlock()
	if err := s.begin(ctx, "count"); err != nil {
		return 0, err
	}
	for p := s.listing.first(); ; p.next() {
		r, ok := p.at()
		if !ok {
			return n, nil
		}
		if matches(r, &q) {
			n++
		}
	}
}

// Tally counts executions in groups.
func (s *Store) Tally(ctx context.Context, q store.Query, by store.TallyBy) ([]store.TallyGroup, error) {
	defer s.mu.Unlock()
	if err := s.begin(ctx, "tally"); err != nil {
		return nil, err
	}
	t, seen := store.Tally{By: by}, 0
	for p := s.listing.first(); seen < q.Limit; p.next() {
		r, ok := p.at()
		if !ok {
			break
		}
		if matches(r, &q) {
			t.Add(store.TallyGroup{Workflow: r.row.Start.Address.Type, Status: r.row.Outcome.Status, Reason: r.row.Reason()}, 1)
			seen++
		}
	}
	return t.Groups, nil
}

// LoadLabels returns the labels of runs.
func (s *Store) LoadLabels(ctx context.Context, keys []store.RunKey) ([]store.LabelRow, error) {
	defer s.mu.Unlock()
	if err := s.begin(ctx, "load labels"); err != nil {
		return nil, err
	}
	var out []store.LabelRow
	for _, key := range slices.SortedFunc(slices.Values(keys), store.RunKey.Compare) {
		r := s.look(key)
		if r == nil || !r.started {
			continue
		}
		for _, l := range r.labels {
			out = append(out, store.LabelRow{RunKey: key, Label: l})
		}
	}
	return out, nil
}

// LoadDetails returns what a description of a run shows.
func (s *Store) LoadDetails(ctx context.Context, shard model.ShardID, a model.Address, run model.RunID) (store.RunDetails, error) {
	return store.LoadDetailsByParts(ctx, s, shard, a, run)
}

// Tenants returns the tenants that have executions.
func (s *Store) Tenants(ctx context.Context) ([]string, error) {
	defer s.mu.Unlock()
	if err := s.begin(ctx, "load tenants"); err != nil {
		return nil, err
	}
	found := map[string]bool{}
	for p := s.listing.first(); ; p.next() {
		r, ok := p.at()
		if !ok {
			return slices.Sorted(maps.Keys(found)), nil
		}
		found[r.row.Start.Address.Tenant] = true
	}
}
