package remote

import (
	"context"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/wire"
)

// ListDead lists dead tasks.
func (b *Backend) ListDead(ctx context.Context, r api.DeadRequest) (api.DeadPage, error) {
	if err := b.own(r.Tenant); err != nil {
		return api.DeadPage{}, err
	}
	return ask(b.client.ListDead, wire.ReadDeadPage).do(ctx, b, wire.ListDeadRequest(r))
}

// CountDead counts dead tasks.
func (b *Backend) CountDead(ctx context.Context, r api.DeadRequest) (int64, error) {
	if err := b.own(r.Tenant); err != nil {
		return 0, err
	}
	return ask(b.client.CountDead, wire.ReadCountReply).do(ctx, b, wire.ListDeadRequest(r))
}

// GroupDead counts dead tasks by the way in which they failed.
func (b *Backend) GroupDead(ctx context.Context, r api.DeadRequest) ([]api.DeadGroup, error) {
	if err := b.own(r.Tenant); err != nil {
		return nil, err
	}
	return ask(b.client.GroupDead, wire.ReadDeadGroups).do(ctx, b, wire.ListDeadRequest(r))
}

// ShowDead returns a dead task.
func (b *Backend) ShowDead(ctx context.Context, id api.DeadID) (api.DeadTask, error) {
	if err := b.own(id.Tenant); err != nil {
		return api.DeadTask{}, err
	}
	return ask(b.client.ShowDead, wire.ReadDeadTask).do(ctx, b, wire.DeadTaskRequest(id))
}

// Requeue schedules a dead task again.
func (b *Backend) Requeue(ctx context.Context, r api.RequeueRequest) (api.RequeueReply, error) {
	if err := b.own(r.ID.Tenant); err != nil {
		return api.RequeueReply{}, err
	}
	r.RequestID = requestID(r.RequestID)
	return ask(b.client.Requeue, wire.ReadRequeueReply).do(ctx, b, wire.RequeueRequest(r))
}

// UndoRequeue undoes a requeue.
func (b *Backend) UndoRequeue(ctx context.Context, r api.UndoRequest) error {
	if err := b.own(r.ID.Tenant); err != nil {
		return err
	}
	r.RequestID = requestID(r.RequestID)
	return tell(ctx, b, b.client.UndoRequeue, wire.UndoRequeueRequest(r))
}

// PurgeDead removes a dead task. The client may repeat the request, because it is no error if the
// task is gone.
func (b *Backend) PurgeDead(ctx context.Context, id api.DeadID) error {
	if err := b.own(id.Tenant); err != nil {
		return err
	}
	return tell(ctx, b, b.client.PurgeDead, wire.DeadTaskRequest(id))
}

// TaskStates returns the states of a task.
func (b *Backend) TaskStates(ctx context.Context, t api.TaskTarget) (api.TaskStatesReply, error) {
	if err := b.own(t.Address.Tenant); err != nil {
		return api.TaskStatesReply{}, err
	}
	return ask(b.client.TaskStates, wire.ReadTaskStatesReply).do(ctx, b, &pb.TaskStatesRequest{Task: wire.TaskTarget(t)})
}

// ListWorkers lists workers.
func (b *Backend) ListWorkers(ctx context.Context, tenant string) ([]api.WorkerInfo, error) {
	if err := b.own(tenant); err != nil {
		return nil, err
	}
	return ask(b.client.ListWorkers, wire.ReadWorkerList).do(ctx, b, &pb.ListWorkersRequest{})
}

// ListQueues lists queues.
func (b *Backend) ListQueues(ctx context.Context, tenant string) (api.QueueList, error) {
	if err := b.own(tenant); err != nil {
		return api.QueueList{}, err
	}
	return ask(b.client.ListQueues, wire.ReadQueueList).do(ctx, b, &pb.ListQueuesRequest{})
}

// Changes of settings have no request id. A repetition could undo what another operator has set in
// the meantime. So the client does not repeat a change that may have reached the server.

// Limits lists limits.
func (b *Backend) Limits(ctx context.Context, tenant string) ([]api.LimitStatus, error) {
	if err := b.own(tenant); err != nil {
		return nil, err
	}
	return ask(b.client.Limits, wire.ReadLimitList).do(ctx, b, &pb.LimitsRequest{})
}

// TryLimit says what a limit would do.
func (b *Backend) TryLimit(ctx context.Context, tenant string, l api.Limit) (api.LimitTrial, error) {
	if err := b.own(tenant); err != nil {
		return api.LimitTrial{}, err
	}
	return ask(b.client.TryLimit, wire.ReadLimitTrial).do(ctx, b, &pb.TryLimitRequest{Limit: wire.Limit(l)})
}

// SetLimit creates or changes a limit.
func (b *Backend) SetLimit(ctx context.Context, tenant string, l api.Limit, anyQueue bool) error {
	if err := b.own(tenant); err != nil {
		return err
	}
	return tellOnce(ctx, b, b.client.SetLimit, &pb.SetLimitRequest{Limit: wire.Limit(l), AnyQueue: anyQueue})
}

// DeleteLimit removes a limit.
func (b *Backend) DeleteLimit(ctx context.Context, tenant, name string) error {
	if err := b.own(tenant); err != nil {
		return err
	}
	return tellOnce(ctx, b, b.client.DeleteLimit, &pb.DeleteLimitRequest{Name: name})
}

// DisableLimit turns a limit off without removing it.
func (b *Backend) DisableLimit(ctx context.Context, tenant, name, why string) error {
	if err := b.own(tenant); err != nil {
		return err
	}
	return tellOnce(ctx, b, b.client.DisableLimit, &pb.DisableLimitRequest{Name: name, Reason: why})
}

// EnableLimit undoes DisableLimit.
func (b *Backend) EnableLimit(ctx context.Context, tenant, name string) error {
	if err := b.own(tenant); err != nil {
		return err
	}
	return tellOnce(ctx, b, b.client.EnableLimit, &pb.EnableLimitRequest{Name: name})
}

// Breakers lists breakers.
func (b *Backend) Breakers(ctx context.Context, tenant string) ([]api.BreakerStatus, error) {
	if err := b.own(tenant); err != nil {
		return nil, err
	}
	return ask(b.client.Breakers, wire.ReadBreakerList).do(ctx, b, &pb.BreakersRequest{})
}

// BreakerRules lists the rules of breakers.
func (b *Backend) BreakerRules(ctx context.Context, tenant string) ([]api.Breaker, error) {
	if err := b.own(tenant); err != nil {
		return nil, err
	}
	return ask(b.client.BreakerRules, wire.ReadBreakerRuleList).do(ctx, b, &pb.BreakersRequest{})
}

// SetBreaker creates or changes a rule.
func (b *Backend) SetBreaker(ctx context.Context, tenant string, rule api.Breaker) error {
	if err := b.own(tenant); err != nil {
		return err
	}
	return tellOnce(ctx, b, b.client.SetBreaker, wire.BreakerRule(rule))
}

// DeleteBreaker removes a rule.
func (b *Backend) DeleteBreaker(ctx context.Context, tenant, name string) error {
	if err := b.own(tenant); err != nil {
		return err
	}
	return tellOnce(ctx, b, b.client.DeleteBreaker, &pb.DeleteBreakerRequest{Name: name})
}

// TripBreaker opens a breaker.
func (b *Backend) TripBreaker(ctx context.Context, tenant, name, why string) error {
	if err := b.own(tenant); err != nil {
		return err
	}
	return tellOnce(ctx, b, b.client.TripBreaker, &pb.TripBreakerRequest{Name: name, Reason: why})
}

// ResetBreaker closes a breaker.
func (b *Backend) ResetBreaker(ctx context.Context, tenant, name string) error {
	if err := b.own(tenant); err != nil {
		return err
	}
	return tellOnce(ctx, b, b.client.ResetBreaker, &pb.ResetBreakerRequest{Name: name})
}

// PauseBreaker makes a breaker hold all tasks back until a time.
//
//arch:parameters given by api.Client
func (b *Backend) PauseBreaker(ctx context.Context, tenant, name string, until model.Time, why string) error {
	if err := b.own(tenant); err != nil {
		return err
	}
	return tellOnce(ctx, b, b.client.PauseBreaker, &pb.PauseBreakerRequest{Name: name, Until: int64(until), Reason: why})
}

// Queues lists the state of queues.
func (b *Backend) Queues(ctx context.Context, tenant string) ([]api.QueueStatus, error) {
	if err := b.own(tenant); err != nil {
		return nil, err
	}
	return ask(b.client.Queues, wire.ReadQueueStatusList).do(ctx, b, &pb.QueuesRequest{})
}

// Allowance returns how much of the system the tenant may use.
func (b *Backend) Allowance(ctx context.Context, tenant string) (api.Allowance, error) {
	if err := b.own(tenant); err != nil {
		return api.Allowance{}, err
	}
	return ask(b.client.Allowance, wire.ReadAllowanceValue).do(ctx, b, &pb.AllowanceRequest{})
}

// SetAllowance changes how much of the system the tenant may use.
func (b *Backend) SetAllowance(ctx context.Context, tenant string, a api.Allowance) error {
	if err := b.own(tenant); err != nil {
		return err
	}
	return tellOnce(ctx, b, b.client.SetAllowance, wire.AllowanceValue(a))
}

// PauseQueue pauses a queue.
func (b *Backend) PauseQueue(ctx context.Context, tenant, name, why string) error {
	if err := b.own(tenant); err != nil {
		return err
	}
	return tellOnce(ctx, b, b.client.PauseQueue, &pb.PauseQueueRequest{Name: name, Reason: why})
}

// ResumeQueue resumes a queue.
func (b *Backend) ResumeQueue(ctx context.Context, tenant, name string) error {
	if err := b.own(tenant); err != nil {
		return err
	}
	return tellOnce(ctx, b, b.client.ResumeQueue, &pb.ResumeQueueRequest{Name: name})
}
