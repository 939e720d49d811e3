package service

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// TryLimit returns what a limit would do to the open tasks of a tenant.
func (s *Service) TryLimit(ctx context.Context, tenant string, l api.Limit) (api.LimitTrial, error) {
	if err := s.checkTenant("limit "+l.Name, tenant); err != nil {
		return api.LimitTrial{}, err
	}
	l = completeLimit(l)
	if err := s.flow().CheckLimit(tenant, l); err != nil {
		return api.LimitTrial{}, err
	}
	l.Tenant = tenant
	set, err := rule.NewSet([]rule.Limit{l}, nil)
	if err != nil {
		return api.LimitTrial{}, err
	}
	j, err := s.judge(ctx, tenant)
	if err != nil {
		return api.LimitTrial{}, err
	}

	t := &trial{judge: j, set: set, tenant: tenant, uses: map[string]*api.TrialUse{}}
	if err := t.look(ctx); err != nil {
		return api.LimitTrial{}, err
	}
	return t.result(&l.Numbers), nil
}

// trial counts the open tasks that a limit would apply to, by key.
type trial struct {
	judge   *judge
	set     *rule.Set
	tenant  string
	uses    map[string]*api.TrialUse
	partial bool
}

// look reads the open executions that may have tasks, the newest first.
func (t *trial) look(ctx context.Context) error {
	q := store.Query{Tenant: t.tenant, Statuses: []model.Status{model.Running}, Limit: maxPage}
	for n, visited := 0, 0; ; {
		page, err := t.judge.service.store.List(ctx, q)
		if err != nil {
			return err
		}
		for i := range page.Executions {
			row := &page.Executions[i]
			if row.Parked && row.Start.Task == nil {
				continue // a parked run has no open tasks, unless it is paused
			}
			if n++; n > api.MaxTrialRuns {
				t.partial = true
				return nil
			}
			if err := t.add(ctx, row); err != nil {
				return err
			}
		}

		if visited += len(page.Executions); !page.More {
			return nil
		}
		if visited > maxCounted {
			t.partial = true
			return nil
		}
		last := &page.Executions[len(page.Executions)-1].Start
		q.After = store.PageMark{Started: last.At, Run: last.Run}
	}
}

// add counts the open tasks of a run. A run whose history cannot be read, or that was deleted since
// it was listed, adds nothing.
func (t *trial) add(ctx context.Context, row *store.Execution) error {
	open, err := t.judge.openTasks(ctx, row)
	if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Corrupt) {
		return nil
	}
	for _, task := range open {
		t.count(task)
	}
	return err
}

func (t *trial) count(task *core.Task) {
	for _, need := range t.set.Resolve(t.tenant, task.Spec, &task.Input) {
		if need.Missing {
			continue // the task names another limit
		}
		use := t.uses[need.Resource.Key]
		if use == nil {
			use = &api.TrialUse{Key: need.Resource.Key}
			t.uses[use.Key] = use
		}
		switch {
		case task.Held:
			use.Held++
		case task.Visible > t.judge.world.Now():
			use.Delayed++
		default:
			use.Waiting++
		}
	}
}

// result says what the numbers of the limit would mean for the tasks.
func (t *trial) result(n *api.Numbers) api.LimitTrial {
	out := api.LimitTrial{Partial: t.partial}
	for _, use := range t.uses {
		if n.Concurrency > 0 {
			use.Excess = max(0, use.Held+use.Waiting-n.Concurrency)
		}
		if n.Rate > 0 {
			// Compute with seconds in floating point, because the product may exceed the range of a
			// Duration.
			seconds := float64(max(0, int64(use.Waiting)-max(1, n.Burst))) * n.Per.Seconds() / float64(n.Rate)
			use.Clears = time.Duration(min(seconds*float64(time.Second), math.MaxInt64/2))
		}
		out.Uses = append(out.Uses, *use)
	}
	slices.SortFunc(out.Uses, func(a, b api.TrialUse) int {
		return cmp.Or(cmp.Compare(b.Held+b.Waiting+b.Delayed, a.Held+a.Waiting+a.Delayed), strings.Compare(a.Key, b.Key))
	})

	for _, use := range out.Uses[min(len(out.Uses), api.MaxTrialUses):] {
		out.Others.Keys++
		out.Others.Held += use.Held
		out.Others.Waiting += use.Waiting + use.Delayed
	}
	out.Uses = out.Uses[:min(len(out.Uses), api.MaxTrialUses)]
	return out
}
