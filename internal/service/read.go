package service

import (
	"context"
	"math"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

const (
	historyPage = 1000
	statePage   = 100
)

// execution reads the row of a target.
func (s *Service) execution(ctx context.Context, op string, t api.Target) (*store.Execution, error) {
	v := s.check(op)
	v.Address(t.Address)
	if err := v.Err(); err != nil {
		return nil, err
	}
	row, err := s.store.LoadExecution(ctx, s.shard(t.Address), t.Address, t.Run)
	if err = checkRow(t, row, err); err != nil {
		return nil, err
	}
	return row, nil
}

// details reads what a description of a target shows.
func (s *Service) details(ctx context.Context, op string, t api.Target) (store.RunDetails, error) {
	v := s.check(op)
	v.Address(t.Address)
	if err := v.Err(); err != nil {
		return store.RunDetails{}, err
	}
	d, err := s.store.LoadDetails(ctx, s.shard(t.Address), t.Address, t.Run)
	return d, checkRow(t, d.Execution, err)
}

// checkRow returns the error that a caller gets for reading the row of a target. That is the error
// of the read, or an error that says that the execution does not exist.
func checkRow(t api.Target, row *store.Execution, err error) error {
	switch {
	case fault.Is(err, fault.Corrupt):
		return wayOut(fault.New(fault.Corrupt, "execution %s cannot be read: %w", t.Address, err))
	case err != nil:
		return err
	case row != nil && row.Start.Address == t.Address:
		return nil
	case !t.Run.IsZero():
		return fault.New(fault.NotFound, "run %s of %s does not exist", t.Run, t.Address)
	default:
		return fault.New(fault.NotFound, "execution %s does not exist", t.Address)
	}
}

// State reads a state that the code of an execution has set: the last value in its history, or the
// value that the run has carried over from the previous run.
func (s *Service) State(ctx context.Context, t api.Target, name string) (p model.Payload, ok bool, err error) {
	v := s.check("state " + name)
	v.Name("state", name)
	if err := v.Err(); err != nil {
		return p, false, err
	}
	row, err := s.execution(ctx, "state "+name, t)
	if err != nil {
		return p, false, err
	}

	key := store.RunKey{Shard: row.Shard, Run: row.Start.Run}
	if row.Start.Task != nil {
		rows, err := s.store.LoadTaskData(ctx, key, store.OneStateRange(model.TaskStep, name))
		if err != nil || len(rows) == 0 {
			return p, false, err
		}
		return rows[0].Value, true, nil
	}

	for before := int64(math.MaxInt64); ; {
		page, err := s.store.LoadEventsOf(ctx, key, model.EventStateSet, before, statePage)
		if err != nil {
			return p, false, err
		}
		for i := range page {
			if page[i].Name == name {
				return page[i].Output, len(page[i].Output.Data) > 0, nil
			}
		}
		if len(page) < statePage {
			break
		}
		before = page[len(page)-1].Seq
	}

	for _, e := range row.Start.Carried {
		if e.Kind == model.EventStateSet && e.Name == name {
			// An empty value in a past means that the state was cleared.
			p, ok = e.Output, len(e.Output.Data) > 0
		}
	}

	return p, ok, nil
}

// History returns a page of events. The first event is built from the start of the run and the last
// from its outcome.
func (s *Service) History(ctx context.Context, r api.HistoryRequest) (api.HistoryPage, error) {
	row, err := s.execution(ctx, "history", r.Target)
	if err != nil {
		return api.HistoryPage{}, err
	}
	limit := r.Limit
	if limit <= 0 || limit > historyPage {
		limit = historyPage
	}
	page := api.HistoryPage{Run: row.Start.Run}

	add := func(e model.Event) {
		if e.Seq > r.After && len(page.Events) < limit {
			page.Events = append(page.Events, e)
		} else if e.Seq > r.After {
			page.More = true
		}
	}

	add(model.Event{Kind: model.EventStarted, At: row.Start.Zero(), Name: row.Start.Address.Type, Input: row.Start.Input, RequestID: row.Start.RequestID, Watcher: row.Start.Parent.Pointer(), Attempt: row.Start.Attempt})
	for _, e := range row.Start.Carried {
		add(e)
	}

	last := max(r.After, int64(len(row.Start.Carried)))
	for !page.More && len(page.Events) <= limit {
		stored, err := s.store.LoadEvents(ctx, store.RunKey{Shard: row.Shard, Run: row.Start.Run}, last, limit+1-len(page.Events), 8<<20)
		if err != nil {
			return page, err
		}
		if len(stored) == 0 {
			break
		}
		for _, e := range stored {
			add(e)
		}
		last = stored[len(stored)-1].Seq
	}

	if row.Outcome.Status.Closed() && !page.More {
		if last == r.After && last > int64(len(row.Start.Carried)) {
			// No event is stored after position last. Either last is the last stored event, or the
			// caller has already seen the end.
			own, err := s.store.LoadEvents(ctx, store.RunKey{Shard: row.Shard, Run: row.Start.Run}, last-1, 1, 1)
			if err != nil || len(own) == 0 {
				return page, err
			}
		}
		add(model.Event{
			Seq: last + 1, At: row.Outcome.At, Kind: model.EventClosed, Status: row.Outcome.Status, Output: row.Outcome.Output,
			Failure: row.Outcome.Failure, Ref: row.Outcome.Seen, Run: row.Outcome.Next,
		})
	}

	return page, nil
}

// label adds the current labels of runs to their descriptions.
func (s *Service) label(ctx context.Context, keys []store.RunKey, to []*api.Description) error {
	labels, err := s.store.LoadLabels(ctx, keys)
	if err != nil || len(labels) == 0 {
		return err
	}
	of := make(map[store.RunKey]*api.Description, len(keys))
	for i, k := range keys {
		of[k] = to[i]
	}
	for _, l := range labels {
		d := of[l.RunKey]
		d.Labels = append(d.Labels, l.Label)
	}
	return nil
}

func (s *Service) query(r api.ListRequest) (store.Query, error) {
	q := store.Query{
		Tenant: r.Tenant, Workflows: r.Workflows, Key: r.Key, KeyPrefix: r.KeyPrefix, Statuses: r.Statuses, Reasons: r.Reasons,
		StartedFrom: r.StartedFrom, StartedTo: r.StartedTo, ClosedFrom: r.ClosedFrom, ClosedTo: r.ClosedTo, Labels: r.Labels,
		AllRuns: r.AllRuns, Limit: pageSize(r.Limit),
	}
	v := s.check("list")
	v.Tenant(q.Tenant)
	// Refuse a text that a store cannot contain, because the store cannot search for it either.
	for _, part := range [...][2]string{{"the key", q.Key}, {"the beginning of the key", q.KeyPrefix}} {
		if part[1] != "" {
			v.Text(part[0], part[1], s.limits.Key)
		}
	}

	for _, name := range q.Workflows {
		v.Text("the name of the workflow", name, s.limits.Key)
	}
	for _, code := range q.Reasons {
		v.Text("the reason", string(code), s.limits.Name)
	}

	for _, c := range q.Labels {
		for _, value := range c.Values {
			v.Label(c.Name, value)
		}
	}

	if err := v.Err(); err != nil || r.Cursor == "" {
		return q, err
	}
	started, run, rest, err := parseCursor("list", r.Cursor)
	if err == nil && rest != "" {
		err = notOurs("list", r.Cursor)
	}
	q.After = store.PageMark{Started: started, Run: run}

	return q, err
}

// List returns executions, newest first.
func (s *Service) List(ctx context.Context, r api.ListRequest) (api.ListPage, error) {
	q, err := s.query(r)
	if err != nil {
		return api.ListPage{}, err
	}
	rows, err := s.store.List(ctx, q)
	if err != nil {
		return api.ListPage{}, err
	}

	page := api.ListPage{Executions: make([]api.Description, len(rows.Executions))}
	keys, found := make([]store.RunKey, len(rows.Executions)), make([]*api.Description, len(rows.Executions))
	for i := range rows.Executions {
		row, d := &rows.Executions[i], &page.Executions[i]
		*d = describe(row)
		d.Start.Input, d.Start.Carried, d.Outcome.Output = model.Payload{}, nil, model.Payload{}
		keys[i], found[i] = store.RunKey{Shard: row.Shard, Run: row.Start.Run}, d
	}

	if err := s.label(ctx, keys, found); err != nil {
		return api.ListPage{}, err
	}

	if r.Explain {
		j, err := s.judge(ctx, q.Tenant)
		if err == nil {
			err = j.page(ctx, rows.Executions, func(i int, owner model.NodeID, reasons []model.Reason) {
				page.Executions[i].Owner, page.Executions[i].Reasons = owner, reasons
			})
		}
		if err != nil {
			return api.ListPage{}, err
		}
	}

	if r.Versions {
		for i := range rows.Executions {
			row := &rows.Executions[i]
			if row.Outcome.Status.Closed() || row.Start.Task != nil {
				continue // a standalone task has no code of a workflow
			}
			if page.Executions[i].Version, err = s.pin(ctx, row); err != nil {
				return api.ListPage{}, err
			}
		}
	}

	if rows.More {
		last := rows.Executions[len(rows.Executions)-1].Start
		page.Cursor = cursor(last.At, last.Run, "")
	}

	return page, nil
}

// Count counts executions.
func (s *Service) Count(ctx context.Context, r api.ListRequest) (int64, error) {
	q, err := s.query(r)
	if err != nil {
		return 0, err
	}
	return s.store.Count(ctx, q)
}
