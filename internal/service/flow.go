package service

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/core/breaker"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/engine/flow"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

func (s *Service) flow() *flow.Flow {
	if s.engine == nil {
		return flow.Of(s.store)
	}
	return s.engine.Flow()
}

// Limits lists the limits of a tenant, with the tasks that hold permits or wait for permits.
func (s *Service) Limits(ctx context.Context, tenant string) ([]api.LimitStatus, error) {
	if err := s.checkTenant("limits", tenant); err != nil {
		return nil, err
	}
	st, err := s.flow().StateWithUses(ctx, tenant)
	if err != nil {
		return nil, err
	}

	list := make([]api.LimitStatus, len(st.Limits))
	for i, l := range st.Limits {
		list[i] = api.LimitStatus{Known: st.Known, Rule: l}

		for _, u := range st.Uses {
			if u.Resource.Name != l.Name {
				continue
			}
			if u.Keys > 0 {
				list[i].Others = api.OtherKeys{Keys: u.Keys, Held: u.Held, Waiting: u.Waiting}
				continue
			}
			use := api.LimitUse{Key: u.Resource.Key, Held: u.Held, Waiting: u.Waiting, Holders: u.Holders}
			for _, w := range u.Waiters {
				use.Waiters = append(use.Waiters, w.Ref)
			}
			list[i].Uses = append(list[i].Uses, use)
		}
	}

	return list, nil
}

// SetLimit creates or changes a limit.
func (s *Service) SetLimit(ctx context.Context, tenant string, l api.Limit, anyQueue bool) error {
	if err := s.checkTenant("limit "+l.Name, tenant); err != nil {
		return err
	}
	return s.flow().SetLimit(ctx, tenant, completeLimit(l), anyQueue)
}

// completeLimit fills in the scope of a limit if the scope follows from the other fields. It clears
// the fields that callers cannot set.
func completeLimit(l api.Limit) api.Limit {
	l.Tenant, l.Disabled, l.Why = "", false, ""
	if l.Per == rule.Shared {
		switch {
		case l.Key != "":
			l.Per = rule.PerKey
		case l.Queue == "" && l.Kind == "":
			l.Per = rule.PerName
		}
	}
	return l
}

// DeleteLimit removes a limit.
func (s *Service) DeleteLimit(ctx context.Context, tenant, name string) error {
	if err := s.checkNamed("delete limit", tenant, name, ""); err != nil {
		return err
	}
	return s.flow().DeleteLimit(ctx, tenant, name)
}

// DisableLimit switches a limit off.
func (s *Service) DisableLimit(ctx context.Context, tenant, name, why string) error {
	if err := s.checkNamed("disable limit", tenant, name, why); err != nil {
		return err
	}
	return s.flow().DisableLimit(ctx, tenant, name, why)
}

// EnableLimit undoes DisableLimit.
func (s *Service) EnableLimit(ctx context.Context, tenant, name string) error {
	if err := s.checkNamed("enable limit", tenant, name, ""); err != nil {
		return err
	}
	return s.flow().EnableLimit(ctx, tenant, name)
}

// Breakers lists the circuit breakers of a tenant.
func (s *Service) Breakers(ctx context.Context, tenant string) ([]api.BreakerStatus, error) {
	if err := s.checkTenant("breakers", tenant); err != nil {
		return nil, err
	}
	st, err := s.flow().State(ctx, tenant)
	if err != nil {
		return nil, err
	}
	list := make([]api.BreakerStatus, len(st.Breakers))
	for i, b := range st.Breakers {
		list[i] = api.BreakerStatus{
			Name: b.ID.Name, State: b.State.String(), Since: b.Since, Until: b.Until, Why: b.Why, Held: b.Held,
			Failures: b.Failures, Calls: b.Calls, Probes: b.Probes, Successes: b.Successes, Rule: breakerRule(b.ID.Name, &b.Config),
		}
	}
	return list, nil
}

// BreakerRules lists the rules for circuit breakers.
func (s *Service) BreakerRules(ctx context.Context, tenant string) ([]api.Breaker, error) {
	if err := s.checkTenant("breaker rules", tenant); err != nil {
		return nil, err
	}
	st, err := s.flow().State(ctx, tenant)
	if err != nil {
		return nil, err
	}
	list := make([]api.Breaker, len(st.Rules))
	for i, b := range st.Rules {
		name := b.Name
		if b.Kind != "" {
			name = rule.KindBreaker(b.Kind)
		}
		list[i] = breakerRule(name, &b.Config)
	}
	return list, nil
}

func breakerRule(name string, c *breaker.Config) api.Breaker {
	return api.Breaker{
		Name: name, Failures: c.Failures, Ratio: float64(c.Ratio) / 1000, Calls: c.Calls, Window: c.Window, Reset: c.Reset, Probes: c.Probes, Successes: c.Successes,
		Lease: c.Lease, MaxRetryAfter: c.MaxRetryAfter,
	}
}

// SetBreaker creates or changes a rule for circuit breakers.
func (s *Service) SetBreaker(ctx context.Context, tenant string, b api.Breaker) error {
	v := s.check("breaker " + b.Name)
	v.Tenant(tenant)
	v.Name("breaker", b.Name)
	if !(b.Ratio >= 0 && b.Ratio <= 1) || b.Ratio > 0 && b.Ratio < 0.001 {
		v.Wrong("ratio %v is not between 0.001 and 1", b.Ratio)
	}
	if err := v.Err(); err != nil {
		return err
	}

	r := rule.Breaker{Name: b.Name, Config: breaker.Config{
		Failures: b.Failures, Ratio: int(b.Ratio*1000 + 0.5), Calls: b.Calls, Window: b.Window, Reset: b.Reset, Probes: b.Probes, Successes: b.Successes,
		Lease: b.Lease, MaxRetryAfter: b.MaxRetryAfter,
	}}

	if kind, ok := strings.CutPrefix(b.Name, rule.KindBreaker("")); ok {
		r.Name, r.Kind = "", cmp.Or(kind, "*")
	}
	return s.flow().SetBreaker(ctx, tenant, r)
}

// DeleteBreaker removes a rule for circuit breakers.
func (s *Service) DeleteBreaker(ctx context.Context, tenant, name string) error {
	if err := s.checkNamed("delete breaker", tenant, name, ""); err != nil {
		return err
	}
	return s.flow().DeleteBreaker(ctx, tenant, name)
}

// TripBreaker opens a breaker.
func (s *Service) TripBreaker(ctx context.Context, tenant, name, why string) error {
	if err := s.checkNamed("trip breaker", tenant, name, why); err != nil {
		return err
	}
	if err := s.checkBreaker(ctx, "trip breaker", tenant, name); err != nil {
		return err
	}
	return s.flow().Trip(ctx, rule.BreakerID{Tenant: tenant, Name: name}, why)
}

// ResetBreaker closes a breaker.
func (s *Service) ResetBreaker(ctx context.Context, tenant, name string) error {
	if err := s.checkNamed("reset breaker", tenant, name, ""); err != nil {
		return err
	}
	return s.flow().Reset(ctx, rule.BreakerID{Tenant: tenant, Name: name})
}

// PauseBreaker makes a breaker hold all tasks back until the given time.
//
//arch:parameters given by api.Backend
func (s *Service) PauseBreaker(ctx context.Context, tenant, name string, until model.Time, why string) error {
	if err := s.checkNamed("pause breaker", tenant, name, why); err != nil {
		return err
	}
	if until < 0 || until > model.MaxTime {
		return fault.New(fault.Invalid, "pause breaker %s: the end of the pause is not between 1970 and 9999", name)
	}
	if err := s.checkBreaker(ctx, "pause breaker", tenant, name); err != nil {
		return err
	}
	return s.flow().Pause(ctx, rule.BreakerID{Tenant: tenant, Name: name}, until, why)
}

// checkTenant checks only the tenant of a request.
func (s *Service) checkTenant(op, tenant string) error {
	v := s.check(op)
	v.Tenant(tenant)
	return v.Err()
}

// checkNamed checks the tenant, the name and the reason of an operator's order.
func (s *Service) checkNamed(op, tenant, name, why string) error {
	v := s.check(strings.TrimSpace(op + " " + name))
	v.Tenant(tenant)
	_, what, _ := strings.Cut(op, " ")
	v.Name(what, name)
	v.Size("reason", len(why))
	return v.Err()
}

// Queues lists the queues of a tenant.
func (s *Service) Queues(ctx context.Context, tenant string) ([]api.QueueStatus, error) {
	if err := s.checkTenant("queues", tenant); err != nil {
		return nil, err
	}
	st, err := s.flow().State(ctx, tenant)
	if err != nil {
		return nil, err
	}

	var list []api.QueueStatus
	for _, q := range st.Queues {
		list = append(list, api.QueueStatus{
			Name: q.Queue, Here: true, Waiting: q.Waiting, Delayed: q.Delayed, Claimed: q.Claimed, Oldest: q.Oldest, Workers: q.Workers, Slots: q.Slots,
		})
	}

	for name, why := range st.Paused {
		i := slices.IndexFunc(list, func(q api.QueueStatus) bool { return q.Name == name })
		if i < 0 {
			i = len(list)
			list = append(list, api.QueueStatus{Name: name, Here: st.Here})
		}
		list[i].Paused, list[i].Why = true, why
	}

	slices.SortFunc(list, func(a, b api.QueueStatus) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// PauseQueue makes the engine start no further tasks of a queue.
func (s *Service) PauseQueue(ctx context.Context, tenant, name, why string) error {
	if err := s.checkNamed("pause queue", tenant, name, why); err != nil {
		return err
	}
	return s.flow().PauseQueue(ctx, tenant, name, why)
}

// ResumeQueue undoes PauseQueue.
func (s *Service) ResumeQueue(ctx context.Context, tenant, name string) error {
	if err := s.checkNamed("resume queue", tenant, name, ""); err != nil {
		return err
	}
	return s.flow().ResumeQueue(ctx, tenant, name)
}

// Allowance returns how much of the system a tenant may use.
func (s *Service) Allowance(ctx context.Context, tenant string) (api.Allowance, error) {
	if err := s.checkTenant("allowance", tenant); err != nil {
		return api.Allowance{}, err
	}
	return s.flow().Allowance(ctx, tenant)
}

// SetAllowance changes how much of the system a tenant may use.
func (s *Service) SetAllowance(ctx context.Context, tenant string, a api.Allowance) error {
	if err := s.checkTenant("allowance", tenant); err != nil {
		return err
	}
	return s.flow().SetAllowance(ctx, tenant, a)
}

// admit lets a client start an execution, if the allowance of its tenant has room. A start that
// finds an existing execution needs no room.
func (s *Service) admit(ctx context.Context, m *model.Message) (done func(began bool), err error) {
	return s.flow().Admit(ctx, m.To.Tenant, func(ctx context.Context) (bool, error) {
		row, err := s.store.LoadExecution(ctx, s.shard(m.To), m.To, model.RunID{})
		return row != nil && (m.Reuse == model.ReturnExisting || !row.Outcome.Status.Closed()), err
	})
}
