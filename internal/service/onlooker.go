package service

import (
	"cmp"
	"context"
	"slices"
	"strconv"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/engine/flow"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// maxExplained bounds the tasks whose reasons are told of a run that is in the memory of another node.
const maxExplained = 20

// onlooker tells why runs with open tasks of a tenant do not move without owning them: from their histories, from who serves which queue, and from what is set for tasks. What it
// has found out once counts for all that it is asked, so that a page of runs asks the nodes who holds limits once, and only if one of them needs to know.
type onlooker struct {
	service *Service
	tenant  string
	view    store.View
	workers []store.Served
	outlook *flow.Outlook
}

func (s *Service) onlooker(ctx context.Context, tenant string) (*onlooker, error) {
	view, err := s.store.Members(ctx)
	return &onlooker{service: s, tenant: tenant, view: view, workers: taskWorkers(&view)}, err
}

// reasons are why a run does not move.
func (l *onlooker) reasons(ctx context.Context, row *store.Execution, open []*core.Task) (reasons []model.Reason, err error) {
	if ownerOf(l.view, row.Shard).IsZero() && !row.Parked && row.Blocked == nil {
		return []model.Reason{{Code: model.WaitOwner, Name: strconv.Itoa(int(row.Shard))}}, nil
	}
	reasons = storedReasons(row)
	if len(open) == 0 || row.Blocked != nil {
		return reasons, nil
	}
	why := func(t *core.Task) (model.Reason, bool) {
		r, failed := l.why(ctx, t)
		err = cmp.Or(err, failed)
		return r, true
	}
	switch {
	case row.Start.Task != nil:
		reasons = reasons[:0]
	case row.Parked:
		return core.TaskReasons(reasons, open, why), err
	}
	// What code that is in memory waits for is known to its owner alone; a task that is open is what it most likely is.
	for _, t := range open[:min(len(open), maxExplained)] {
		if r, _ := why(t); !slices.Contains(reasons, r) {
			reasons = append(reasons, r)
		}
	}
	return reasons, err
}

// why tells what one open task waits for.
func (l *onlooker) why(ctx context.Context, t *core.Task) (model.Reason, error) {
	switch {
	case t.Held:
		return model.Reason{Code: model.WaitStep, Name: t.Spec.Kind}, nil
	case t.Visible > l.view.Now && t.Attempt > 0:
		r := model.Reason{Code: model.WaitRetry, Name: t.Spec.Kind, Attempt: t.Attempt + 1, Until: t.Visible}
		if n := len(t.Failures); n > 0 && t.Failures[n-1].Failure != nil {
			r.Detail = t.Failures[n-1].Failure.Message
		}
		return r, nil
	case t.Visible > l.view.Now:
		return model.Reason{Code: model.WaitTimer, Until: t.Visible}, nil
	}
	if l.outlook == nil {
		var err error
		if l.outlook, err = l.service.flow().Outlook(ctx, l.tenant); err != nil {
			return model.Reason{}, err
		}
	}
	if r, paused := l.outlook.Paused(l.tenant, t.Spec.Queue); paused {
		return r, nil
	}
	if r := nobodyExecutes(l.tenant, t.Spec, l.workers); r != nil {
		return *r, nil
	}
	if r, refused, err := l.outlook.Refuses(ctx, l.tenant, t.Spec, &t.Input); err != nil || refused {
		return r, err
	}
	return model.Reason{Code: model.WaitLine, Name: t.Spec.Queue, Detail: "every worker that could take it is busy, or it is about to begin"}, nil
}

// explain has the open tasks of a page say why they wait. Their owner is asked where it is this node; else their histories are read.
func (s *Service) explain(ctx context.Context, tenant string, rows []store.Execution, to []api.Description) error {
	var l *onlooker
	for i := range rows {
		row := &rows[i]
		if row.Start.Task == nil || row.Outcome.Status.Closed() || row.Blocked != nil {
			continue
		}
		if s.engine != nil {
			if told, known := s.engine.Explain(ctx, row.Start.Address); known && row.Current {
				to[i].Reasons = told
				continue
			}
		}
		open, err := s.openTasks(ctx, row)
		if fault.Is(err, fault.NotFound) {
			continue // it has left meanwhile
		}
		if err == nil && l == nil {
			l, err = s.onlooker(ctx, tenant)
		}
		if err == nil {
			to[i].Reasons, err = l.reasons(ctx, row, open)
		}
		if fault.Is(err, fault.Corrupt) {
			to[i].Reasons = []model.Reason{model.Unreadable(err)} // of one row: the others are listed all the same
		} else if err != nil {
			return err
		}
	}
	return nil
}
