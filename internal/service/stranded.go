package service

import (
	"context"
	"math"
	"slices"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// Stranded returns those open executions of a page that no live worker can continue. It looks through all open ones, whatever they wait for:
// one that sleeps for a month is stranded now, if nobody has its code any more.
func (s *Service) Stranded(ctx context.Context, tenant, cursor string) (api.ListPage, error) {
	page, err := s.List(ctx, api.ListRequest{Tenant: tenant, Statuses: []model.Status{model.Running}, Limit: maxPage, Cursor: cursor})
	if err != nil {
		return page, err
	}
	view, err := s.store.Members(ctx) // afterwards, so that what has begun since is not suspected
	if err != nil {
		return page, err
	}
	served, hands := map[[2]string][]store.Served{}, taskWorkers(&view)
	for _, m := range view.Members {
		for _, w := range m.Serves {
			if w.Worker == "" {
				k := [2]string{w.Tenant, w.Workflow}
				served[k] = append(served[k], w)
			}
		}
	}
	kept := page.Executions[:0]
	for _, d := range page.Executions {
		a := d.Start.Address
		if t := d.Start.Task; t != nil {
			if why := nobodyExecutes(a.Tenant, t, hands); why != nil {
				d.Reasons = []model.Reason{*why}
				kept = append(kept, d)
			}
			continue
		}
		why, err := s.strands(ctx, &d, served[[2]string{a.Tenant, a.Type}])
		if err != nil {
			return page, err
		}
		if why != nil {
			d.Reasons = []model.Reason{*why}
			kept = append(kept, d)
		}
	}
	page.Executions = kept
	return page, nil
}

// strands is why nobody among the workers can continue an execution; nil when somebody can.
func (s *Service) strands(ctx context.Context, d *api.Description, workers []store.Served) (*model.Reason, error) {
	why := &model.Reason{Code: model.WaitWorker, Name: d.Start.Address.Type}
	if len(workers) == 0 {
		return why, nil
	}
	if slices.ContainsFunc(workers, func(w store.Served) bool { return !w.Pinned }) {
		return nil, nil // somebody continues any of them
	}
	pin, err := s.pin(ctx, d)
	if err != nil || pin == "" || slices.ContainsFunc(workers, func(w store.Served) bool { return w.Version == pin }) {
		return nil, err
	}
	why.Detail = "version " + pin + " of workflow"
	return why, nil
}

// pin is the version that an execution of a page is pinned to: by what it has recorded, or by the past that it began with.
func (s *Service) pin(ctx context.Context, d *api.Description) (pin string, err error) {
	own, err := s.store.LoadEventsOf(ctx, store.RunKey{Shard: d.Shard, Run: d.Start.Run}, model.EventPinned, math.MaxInt64, 1)
	if err != nil {
		return "", err
	}
	if len(own) > 0 {
		return own[0].Name, nil
	}
	if d.Start.Source.IsZero() {
		return "", nil
	}
	row, err := s.store.LoadExecution(ctx, d.Shard, d.Start.Address, d.Start.Run) // pages leave the past out
	if err != nil || row == nil {
		return "", err
	}
	for i := range row.Start.Carried {
		if e := &row.Start.Carried[i]; e.Kind == model.EventPinned {
			pin = e.Name
		}
	}
	return pin, nil
}

// taskWorkers are the workers of all live nodes that execute tasks.
func taskWorkers(view *store.View) (all []store.Served) {
	for _, m := range view.Members {
		if m.Expires < view.Now {
			continue
		}
		for _, w := range m.Serves {
			if w.Worker != "" {
				all = append(all, w)
			}
		}
	}
	return all
}

// nobodyExecutes is why no worker of any node executes a task; nil when one does.
func nobodyExecutes(tenant string, t *model.TaskSpec, workers []store.Served) *model.Reason {
	if slices.ContainsFunc(workers, func(w store.Served) bool {
		return w.Tenant == tenant && slices.Contains(w.Queues, t.Queue) && slices.Contains(w.Activities, t.Kind)
	}) {
		return nil
	}
	return &model.Reason{Code: model.WaitWorker, Name: t.Kind, Detail: "queue " + t.Queue + ", activity"}
}
