package service

import (
	"context"
	"fmt"
	"slices"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// ListWorkers returns the workers of all live nodes.
func (s *Service) ListWorkers(ctx context.Context, tenant string) ([]api.WorkerInfo, error) {
	if err := s.checkTenant("list workers", tenant); err != nil {
		return nil, err
	}
	view, err := s.store.Members(ctx)
	if err != nil {
		return nil, err
	}

	var all []api.WorkerInfo
	for _, m := range view.Members {
		if m.Expires < view.Now {
			continue
		}
		host := fmt.Sprintf("%s:%d", m.Host, m.PID)

		own := map[string]int{} // index of the workflow worker, by version
		for _, w := range m.Serves {
			if w.Tenant != tenant {
				continue
			}

			if w.Worker != "" {
				all = append(all, api.WorkerInfo{
					Node: m.ID, Host: host, Name: w.Worker, Version: w.Version, Queues: w.Queues, Activities: w.Activities, Slots: w.Slots, Draining: w.Draining || m.Draining,
					Limits: w.Limits, Breakers: w.Breakers, Alike: max(0, w.Workers-1),
				})
				continue
			}

			i, ok := own[w.Version]
			if !ok {
				i = len(all)
				own[w.Version] = i
				all = append(all, api.WorkerInfo{Node: m.ID, Host: host, Version: w.Version, Draining: m.Draining})
			}

			if (model.Address{Type: w.Workflow}).IsEntity() {
				all[i].Entities = append(all[i].Entities, w.Workflow)
			} else {
				all[i].Workflows = append(all[i].Workflows, w.Workflow)
			}
		}
	}

	return all, nil
}

// openTasks returns the open tasks of a run, from its history.
func (s *Service) openTasks(ctx context.Context, row *store.Execution) ([]*core.Task, error) {
	h, err := s.readRun(ctx, "describe", row)
	if err != nil {
		return nil, err
	}
	if row.Start.Task == nil && !slices.ContainsFunc(h.Events, isScheduled) {
		return nil, nil
	}
	return engine.OpenTasks(row.Start, h.Events[len(row.Start.Carried):])
}

// tasks describes open tasks of a run.
func (s *Service) tasks(ctx context.Context, row *store.Execution, open []*core.Task) ([]api.Task, error) {
	if len(open) == 0 {
		return nil, nil
	}
	data, err := s.store.LoadTaskData(ctx, store.RunKey{Shard: row.Shard, Run: row.Start.Run}, store.ProgressRange(""))
	if err != nil {
		return nil, err
	}

	var tasks []api.Task
	for _, t := range open {
		task := api.Task{ID: t.ID, Activity: t.Spec.Kind, Queue: t.Spec.Queue, Scheduled: t.Scheduled, Attempt: t.Attempt, Failures: len(t.Failures) + t.Dropped}
		if t.Held {
			task.Worker, task.Since = t.Worker, t.Since
		} else {
			task.Next = t.Visible
		}
		if n := len(t.Failures); n > 0 {
			task.Last = t.Failures[n-1].Failure
		}
		for i := range data {
			if data[i].Task == t.ID {
				task.Progress = data[i].Value
			}
		}
		tasks = append(tasks, task)
	}

	return tasks, nil
}
