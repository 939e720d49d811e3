package grpcapi

import (
	"context"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/wire"
)

// ListDead lists dead tasks.
func (c *client) ListDead(ctx context.Context, m *pb.ListDeadRequest) (*pb.DeadPage, error) {
	return ask(ctx, m, wire.ReadListDeadRequest, c.backend.ListDead, wire.DeadPage)
}

// CountDead counts dead tasks.
func (c *client) CountDead(ctx context.Context, m *pb.ListDeadRequest) (*pb.CountReply, error) {
	return ask(ctx, m, wire.ReadListDeadRequest, c.backend.CountDead, wire.CountReply)
}

// GroupDead counts dead tasks by the way in which they failed.
func (c *client) GroupDead(ctx context.Context, m *pb.ListDeadRequest) (*pb.DeadGroups, error) {
	return ask(ctx, m, wire.ReadListDeadRequest, c.backend.GroupDead, wire.DeadGroups)
}

// ShowDead returns a dead task.
func (c *client) ShowDead(ctx context.Context, m *pb.DeadTaskRequest) (*pb.DeadTask, error) {
	return ask(ctx, m, wire.ReadDeadTaskRequest, c.backend.ShowDead, wire.DeadTask)
}

// Requeue schedules a dead task again.
func (c *client) Requeue(ctx context.Context, m *pb.RequeueRequest) (*pb.RequeueReply, error) {
	return ask(ctx, m, wire.ReadRequeueRequest, c.backend.Requeue, wire.RequeueReply)
}

// UndoRequeue undoes a requeue.
func (c *client) UndoRequeue(ctx context.Context, m *pb.UndoRequeueRequest) (*pb.Done, error) {
	return tell(ctx, m, wire.ReadUndoRequeueRequest, c.backend.UndoRequeue)
}

// PurgeDead removes a dead task.
func (c *client) PurgeDead(ctx context.Context, m *pb.DeadTaskRequest) (*pb.Done, error) {
	return tell(ctx, m, wire.ReadDeadTaskRequest, c.backend.PurgeDead)
}

// TaskStates returns the states of a task.
func (c *client) TaskStates(ctx context.Context, m *pb.TaskStatesRequest) (*pb.TaskStatesReply, error) {
	return ask(ctx, m.GetTask(), wire.ReadTaskTarget, c.backend.TaskStates, wire.TaskStatesReply)
}

// ListWorkers lists workers.
func (c *client) ListWorkers(ctx context.Context, _ *pb.ListWorkersRequest) (*pb.WorkerList, error) {
	return list(ctx, c.backend.ListWorkers, wire.WorkerList)
}

// ListQueues lists queues.
func (c *client) ListQueues(ctx context.Context, _ *pb.ListQueuesRequest) (*pb.QueueList, error) {
	return list(ctx, c.backend.ListQueues, wire.QueueList)
}

// Limits lists limits.
func (c *client) Limits(ctx context.Context, _ *pb.LimitsRequest) (*pb.LimitList, error) {
	return list(ctx, c.backend.Limits, wire.LimitList)
}

// SetLimit creates or changes a limit.
func (c *client) SetLimit(ctx context.Context, m *pb.SetLimitRequest) (*pb.Done, error) {
	tenant := tenantOf(ctx)
	limit, err := wire.ReadLimit(tenant, m.GetLimit())
	if err != nil {
		return nil, err
	}
	return done(c.backend.SetLimit(ctx, tenant, limit, m.GetAnyQueue()))
}

// TryLimit says what a limit would do.
func (c *client) TryLimit(ctx context.Context, m *pb.TryLimitRequest) (*pb.LimitTrial, error) {
	tenant := tenantOf(ctx)
	limit, err := wire.ReadLimit(tenant, m.GetLimit())
	if err != nil {
		return nil, err
	}
	t, err := c.backend.TryLimit(ctx, tenant, limit)
	if err != nil {
		return nil, err
	}
	return wire.LimitTrial(t), nil
}

// DeleteLimit removes a limit.
func (c *client) DeleteLimit(ctx context.Context, m *pb.DeleteLimitRequest) (*pb.Done, error) {
	return done(c.backend.DeleteLimit(ctx, tenantOf(ctx), m.GetName()))
}

// DisableLimit turns a limit off without removing it.
func (c *client) DisableLimit(ctx context.Context, m *pb.DisableLimitRequest) (*pb.Done, error) {
	return done(c.backend.DisableLimit(ctx, tenantOf(ctx), m.GetName(), m.GetReason()))
}

// EnableLimit undoes DisableLimit.
func (c *client) EnableLimit(ctx context.Context, m *pb.EnableLimitRequest) (*pb.Done, error) {
	return done(c.backend.EnableLimit(ctx, tenantOf(ctx), m.GetName()))
}

// Breakers lists breakers.
func (c *client) Breakers(ctx context.Context, _ *pb.BreakersRequest) (*pb.BreakerList, error) {
	return list(ctx, c.backend.Breakers, wire.BreakerList)
}

// BreakerRules lists the rules of breakers.
func (c *client) BreakerRules(ctx context.Context, _ *pb.BreakersRequest) (*pb.BreakerRuleList, error) {
	return list(ctx, c.backend.BreakerRules, wire.BreakerRuleList)
}

// SetBreaker creates or changes a rule.
func (c *client) SetBreaker(ctx context.Context, m *pb.BreakerRule) (*pb.Done, error) {
	tenant := tenantOf(ctx)
	rule, err := wire.ReadBreakerRule(tenant, m)
	if err != nil {
		return nil, err
	}
	return done(c.backend.SetBreaker(ctx, tenant, rule))
}

// DeleteBreaker removes a rule.
func (c *client) DeleteBreaker(ctx context.Context, m *pb.DeleteBreakerRequest) (*pb.Done, error) {
	return done(c.backend.DeleteBreaker(ctx, tenantOf(ctx), m.GetName()))
}

// TripBreaker opens a breaker.
func (c *client) TripBreaker(ctx context.Context, m *pb.TripBreakerRequest) (*pb.Done, error) {
	return done(c.backend.TripBreaker(ctx, tenantOf(ctx), m.GetName(), m.GetReason()))
}

// ResetBreaker closes a breaker.
func (c *client) ResetBreaker(ctx context.Context, m *pb.ResetBreakerRequest) (*pb.Done, error) {
	return done(c.backend.ResetBreaker(ctx, tenantOf(ctx), m.GetName()))
}

// PauseBreaker makes a breaker hold all tasks back until a time.
func (c *client) PauseBreaker(ctx context.Context, m *pb.PauseBreakerRequest) (*pb.Done, error) {
	return done(c.backend.PauseBreaker(ctx, tenantOf(ctx), m.GetName(), model.Time(m.GetUntil()), m.GetReason()))
}

// Queues lists the state of queues.
func (c *client) Queues(ctx context.Context, _ *pb.QueuesRequest) (*pb.QueueStatusList, error) {
	return list(ctx, c.backend.Queues, wire.QueueStatusList)
}

// Allowance returns how much of the system the tenant may use.
func (c *client) Allowance(ctx context.Context, _ *pb.AllowanceRequest) (*pb.AllowanceValue, error) {
	a, err := c.backend.Allowance(ctx, tenantOf(ctx))
	if err != nil {
		return nil, err
	}
	return wire.AllowanceValue(a), nil
}

// SetAllowance changes how much of the system the tenant may use.
func (c *client) SetAllowance(ctx context.Context, m *pb.AllowanceValue) (*pb.Done, error) {
	tenant := tenantOf(ctx)
	a, err := wire.ReadAllowanceValue(tenant, m)
	if err != nil {
		return nil, err
	}
	return done(c.backend.SetAllowance(ctx, tenant, a))
}

// PauseQueue pauses a queue.
func (c *client) PauseQueue(ctx context.Context, m *pb.PauseQueueRequest) (*pb.Done, error) {
	return done(c.backend.PauseQueue(ctx, tenantOf(ctx), m.GetName(), m.GetReason()))
}

// ResumeQueue resumes a queue.
func (c *client) ResumeQueue(ctx context.Context, m *pb.ResumeQueueRequest) (*pb.Done, error) {
	return done(c.backend.ResumeQueue(ctx, tenantOf(ctx), m.GetName()))
}
