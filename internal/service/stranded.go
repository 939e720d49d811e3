package service

import (
	"context"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
)

// Stranded returns the open executions of a page that continue only after a person changes
// something, with the reason. It looks at all open executions, regardless of what they wait for.
// For example, an execution that sleeps for a month is already stranded now if no process has its
// code.
func (s *Service) Stranded(ctx context.Context, tenant, cursor string) (api.ListPage, error) {
	page, err := s.List(ctx, api.ListRequest{Tenant: tenant, Statuses: []model.Status{model.Running}, Limit: maxPage, Cursor: cursor, Explain: true})
	if err != nil {
		return page, err
	}
	kept := page.Executions[:0]
	for _, d := range page.Executions {
		if model.Stranded(d.Reasons) {
			kept = append(kept, d)
		}
	}
	page.Executions = kept
	return page, nil
}

// Missing returns why no live process would run an execution or a task.
func (s *Service) Missing(ctx context.Context, a model.Address, t *model.TaskSpec) (*model.Reason, error) {
	v := s.check("missing code")
	v.Address(a)
	if err := v.Err(); err != nil {
		return nil, err
	}
	j, err := s.judge(ctx, a.Tenant)
	if err != nil {
		return nil, err
	}
	if why, ok := j.world.WhyNoProcess(a, t); ok {
		return &why, nil
	}
	return nil, nil
}
