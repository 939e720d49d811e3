package remote

import (
	"context"
	"errors"

	"google.golang.org/grpc"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/wire"
)

var _ api.Client = (*Backend)(nil)

// Start starts an execution.
func (b *Backend) Start(ctx context.Context, r api.StartRequest) (api.StartReply, error) {
	if err := b.own(r.Address.Tenant); err != nil {
		return api.StartReply{}, err
	}
	r.RequestID = requestID(r.RequestID)
	tries := 0
	start := func(ctx context.Context, m *pb.StartRequest, opts ...grpc.CallOption) (*pb.StartReply, error) {
		tries++
		return b.client.Start(ctx, m, opts...)
	}
	reply, err := ask(start, wire.ReadStartReply).do(ctx, b, wire.StartRequest(r))
	if err == nil && reply.Existing && tries > 1 {
		reply.Existing = !b.startedBy(ctx, &r, reply.Run)
	}
	return reply, err
}

// startedBy reports whether a request has started a run. If the client repeats a start, the
// repetition attaches to the execution that the first attempt has started. So the reply alone does
// not say which request started it.
func (b *Backend) startedBy(ctx context.Context, r *api.StartRequest, run model.RunID) bool {
	page, err := b.History(ctx, api.HistoryRequest{Target: api.Target{Address: r.Address, Run: run}, After: -1, Limit: 1})
	return err == nil && len(page.Events) == 1 && page.Events[0].RequestID == r.RequestID
}

// Run starts an execution and waits for its end.
func (b *Backend) Run(ctx context.Context, r api.StartRequest) (api.Result, error) {
	if err := b.own(r.Address.Tenant); err != nil {
		return api.Result{}, err
	}
	r.RequestID = requestID(r.RequestID)
	result, err := ask(b.client.Run, wire.ReadResult).do(ctx, b, wire.StartRequest(r))
	return result, waitingFor(r.Address, err)
}

// Await waits for the end of an execution.
func (b *Backend) Await(ctx context.Context, t api.Target) (api.Result, error) {
	if err := b.own(t.Address.Tenant); err != nil {
		return api.Result{}, err
	}
	result, err := ask(b.client.Await, wire.ReadResult).do(ctx, b, &pb.AwaitRequest{Target: wire.Target(t)})
	return result, waitingFor(t.Address, err)
}

// waitingFor says what a call was waiting for when the app was closed, as the engine does.
func waitingFor(a model.Address, err error) error {
	if errors.Is(err, errDisconnected) {
		return fault.New(fault.Unavailable, "await %s: %w", a, err)
	}
	return err
}

// Signal sends a signal.
func (b *Backend) Signal(ctx context.Context, r api.SignalRequest) error {
	if err := b.own(r.Target.Address.Tenant); err != nil {
		return err
	}
	_, err := askUnder(ctx, b, ask(b.client.Signal, done), r.RequestID, func(id string) *pb.SignalRequest {
		r.RequestID = id
		return wire.SignalRequest(r)
	})
	return err
}

// Settle resolves or rejects a promise.
func (b *Backend) Settle(ctx context.Context, r api.SettleRequest) error {
	if err := b.own(r.Target.Address.Tenant); err != nil {
		return err
	}
	_, err := askUnder(ctx, b, ask(b.client.Settle, done), r.RequestID, func(id string) *pb.SettleRequest {
		r.RequestID = id
		return wire.SettleRequest(r)
	})
	return err
}

// Cancel asks an execution to end.
func (b *Backend) Cancel(ctx context.Context, r api.CancelRequest) error {
	return b.order(ctx, b.client.Cancel, r)
}

// Terminate ends an execution.
func (b *Backend) Terminate(ctx context.Context, r api.CancelRequest) error {
	return b.order(ctx, b.client.Terminate, r)
}

// Pause pauses an execution.
func (b *Backend) Pause(ctx context.Context, r api.CancelRequest) error {
	return b.order(ctx, b.client.Pause, r)
}

// Resume resumes an execution.
func (b *Backend) Resume(ctx context.Context, r api.CancelRequest) error {
	return b.order(ctx, b.client.Resume, r)
}

// order sends an operator's order to an execution.
func (b *Backend) order(ctx context.Context, call doneFunc[pb.OrderRequest], r api.CancelRequest) error {
	if err := b.own(r.Target.Address.Tenant); err != nil {
		return err
	}
	r.RequestID = requestID(r.RequestID)
	return tell(ctx, b, call, wire.OrderRequest(r))
}

// Signals lists or changes signals that the code has not taken.
func (b *Backend) Signals(ctx context.Context, r api.SignalsRequest) (model.Calls, error) {
	if err := b.own(r.Target.Address.Tenant); err != nil {
		return model.Calls{}, err
	}
	r.RequestID = requestID(r.RequestID)
	return ask(b.client.Signals, wire.ReadMailboxReply).do(ctx, b, wire.SignalsRequest(r))
}

// Update asks the code of an execution for a change.
func (b *Backend) Update(ctx context.Context, r api.UpdateRequest) (model.Payload, error) {
	if err := b.own(r.Target.Address.Tenant); err != nil {
		return model.Payload{}, err
	}
	return askUnder(ctx, b, ask(b.client.Update, wire.ReadValueReply), r.RequestID, func(id string) *pb.UpdateRequest {
		r.RequestID = id
		return wire.UpdateRequest(r)
	})
}

// Query asks the code of an execution for information.
func (b *Backend) Query(ctx context.Context, r api.QueryRequest) (model.Payload, error) {
	if err := b.own(r.Target.Address.Tenant); err != nil {
		return model.Payload{}, err
	}
	return ask(b.client.Query, wire.ReadValueReply).do(ctx, b, wire.QueryRequest(r))
}

// State reads a state of an execution.
func (b *Backend) State(ctx context.Context, t api.Target, name string) (p model.Payload, ok bool, err error) {
	if err := b.own(t.Address.Tenant); err != nil {
		return p, false, err
	}
	read := func(_ string, r *pb.StateReply) (*pb.StateReply, error) { return r, nil }
	r, err := ask(b.client.State, read).do(ctx, b, &pb.StateRequest{Target: wire.Target(t), Name: name})
	return wire.ReadPayload(r.GetValue()), r.GetFound(), err
}

// Describe describes an execution.
func (b *Backend) Describe(ctx context.Context, t api.Target) (api.Description, error) {
	if err := b.own(t.Address.Tenant); err != nil {
		return api.Description{}, err
	}
	return ask(b.client.Describe, wire.ReadDescription).do(ctx, b, &pb.DescribeRequest{Target: wire.Target(t)})
}

// Count counts executions.
func (b *Backend) Count(ctx context.Context, r api.ListRequest) (int64, error) {
	if err := b.own(r.Tenant); err != nil {
		return 0, err
	}
	return ask(b.client.Count, wire.ReadCountReply).do(ctx, b, wire.ListRequest(r))
}

// Explain says why an execution makes no progress.
func (b *Backend) Explain(ctx context.Context, r api.ExplainRequest) (api.Explanation, error) {
	if err := b.own(r.Target.Address.Tenant); err != nil {
		return api.Explanation{}, err
	}
	return ask(b.client.Explain, wire.ReadExplanation).do(ctx, b, wire.ExplainRequest(r))
}

// Series counts what happened in the last hour.
func (b *Backend) Series(ctx context.Context, r api.SeriesRequest) (api.Series, error) {
	if err := b.own(r.Tenant); err != nil {
		return api.Series{}, err
	}
	return ask(b.client.Series, wire.ReadSeriesReply).do(ctx, b, wire.SeriesRequest(r))
}

// Tally counts executions up to a bound.
func (b *Backend) Tally(ctx context.Context, r api.TallyRequest) (api.Tally, error) {
	if err := b.own(r.Tenant); err != nil {
		return api.Tally{}, err
	}
	return ask(b.client.Tally, wire.ReadTallyReply).do(ctx, b, wire.TallyRequest(r))
}

// Stranded returns executions that cannot continue without a change by a person.
func (b *Backend) Stranded(ctx context.Context, tenant, cursor string) (api.ListPage, error) {
	if err := b.own(tenant); err != nil {
		return api.ListPage{}, err
	}
	return ask(b.client.Stranded, wire.ReadListPage).do(ctx, b, &pb.StrandedRequest{Cursor: cursor})
}

// Missing says why no process would run an execution or a task.
func (b *Backend) Missing(ctx context.Context, a model.Address, t *model.TaskSpec) (*model.Reason, error) {
	if err := b.own(a.Tenant); err != nil {
		return nil, err
	}
	read := func(tenant string, r *pb.MissingReply) (*model.Reason, error) {
		if r.GetReason() == nil {
			return nil, nil
		}
		reason, err := wire.ReadReason(tenant, r.GetReason())
		return &reason, err
	}
	return ask(b.client.Missing, read).do(ctx, b, &pb.MissingRequest{Address: wire.Address(a), Task: wire.TaskSpec(t)})
}

// Fork starts an execution with the past of another.
func (b *Backend) Fork(ctx context.Context, r api.PastRequest) (api.PastReply, error) {
	return b.past(ctx, b.client.Fork, r)
}

// Retry continues an execution that failed, was cancelled or was terminated.
func (b *Backend) Retry(ctx context.Context, r api.PastRequest) (api.PastReply, error) {
	return b.past(ctx, b.client.Retry, r)
}

// Reset starts the current run again from an earlier position.
func (b *Backend) Reset(ctx context.Context, r api.PastRequest) (api.PastReply, error) {
	return b.past(ctx, b.client.Reset, r)
}

func (b *Backend) past(ctx context.Context, call callFunc[pb.PastRequest, pb.PastReply], r api.PastRequest) (api.PastReply, error) {
	if err := b.own(r.Source.Address.Tenant); err != nil {
		return api.PastReply{}, err
	}
	r.RequestID = requestID(r.RequestID)
	return ask(call, wire.ReadPastReply).do(ctx, b, wire.PastRequest(r))
}

// Call calls an operation. A brief call must run at most once, so the client does not repeat it if
// it may have reached the server. A view changes nothing, so the client repeats it, unless its
// answer is a stream: two copies of the code would write to the same stream.
func (b *Backend) Call(ctx context.Context, r api.CallRequest) (model.Payload, error) {
	if err := b.own(r.Address.Tenant); err != nil {
		return model.Payload{}, err
	}
	if r.Brief {
		v := ask(b.client.Call, wire.ReadValueReply)
		_, _, streams := r.Input.CutStream()
		v.once = !r.View || streams
		return v.do(ctx, b, wire.CallRequest(r))
	}
	return askUnder(ctx, b, ask(b.client.Call, wire.ReadValueReply), r.RequestID, func(id string) *pb.CallRequest {
		r.RequestID = id
		return wire.CallRequest(r)
	})
}

// Entity describes an entity.
func (b *Backend) Entity(ctx context.Context, a model.Address) (api.EntityInfo, error) {
	if err := b.own(a.Tenant); err != nil {
		return api.EntityInfo{}, err
	}
	return ask(b.client.Entity, wire.ReadEntityInfo).do(ctx, b, &pb.EntityRequest{Address: wire.Address(a)})
}

// ListEntities lists entities.
func (b *Backend) ListEntities(ctx context.Context, r api.EntityListRequest) (api.EntityListPage, error) {
	if err := b.own(r.Tenant); err != nil {
		return api.EntityListPage{}, err
	}
	return ask(b.client.ListEntities, wire.ReadEntityPage).do(ctx, b, wire.ListEntitiesRequest(r))
}

// Unlock takes a lock from its holder.
func (b *Backend) Unlock(ctx context.Context, r api.UnlockRequest) error {
	if err := b.own(r.Address.Tenant); err != nil {
		return err
	}
	r.RequestID = requestID(r.RequestID)
	return tell(ctx, b, b.client.Unlock, wire.UnlockRequest(r))
}

// EditEntity replaces the state of an entity.
func (b *Backend) EditEntity(ctx context.Context, r api.EditRequest) (model.EntityVersion, error) {
	if err := b.own(r.Address.Tenant); err != nil {
		return model.EntityVersion{}, err
	}
	r.RequestID = requestID(r.RequestID)
	return ask(b.client.EditEntity, wire.ReadEditEntityReply).do(ctx, b, wire.EditEntityRequest(r))
}

// TakeItems reads the stream of a view.
func (b *Backend) TakeItems(ctx context.Context, r model.ItemsTake) (model.ItemsPage, error) {
	if err := b.own(r.Entity.Tenant); err != nil {
		return model.ItemsPage{}, err
	}
	return ask(b.client.TakeItems, wire.ReadItemsPage).do(ctx, b, wire.TakeItemsRequest(r))
}

// SendItems sends items of the stream of a view.
func (b *Backend) SendItems(ctx context.Context, r model.ItemsSend) (int64, error) {
	if err := b.own(r.Entity.Tenant); err != nil {
		return 0, err
	}
	return ask(b.client.SendItems, wire.ReadSendItemsReply).do(ctx, b, wire.SendItemsRequest(r))
}

// Mailbox lists or changes the mailbox of an entity. A change has no request id. So the client does
// not repeat a change that may have reached the server, except an interruption.
func (b *Backend) Mailbox(ctx context.Context, r api.MailboxRequest) (model.Calls, error) {
	if err := b.own(r.Address.Tenant); err != nil {
		return model.Calls{}, err
	}
	v := ask(b.client.Mailbox, wire.ReadMailboxReply)
	v.once = r.Do != model.MailboxList && r.Do != model.MailboxShow && r.Do != model.MailboxInterrupt
	return v.do(ctx, b, wire.MailboxRequest(r))
}
