package grpcapi

import (
	"context"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/authz"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/wire"
)

// client implements the server side of ClientService with a backend.
type client struct {
	pb.UnimplementedClientServiceServer

	backend    api.Backend
	authorizer authz.Authorizer
	version    string
	maxMessage int
	maxPayload int
	receipts   *receipts
	bundles    *bundles
}

// ask reads a request, makes the call, and writes the reply.
//
//arch:parameters the five parts of a translated call
func ask[M, In, Out, R any](
	ctx context.Context, m *M, read func(string, *M) (In, error), call func(context.Context, In) (Out, error), write func(Out) *R,
) (*R, error) {
	in, err := read(tenantOf(ctx), m)
	if err != nil {
		return nil, err
	}
	out, err := call(ctx, in)
	if err != nil {
		return nil, err
	}
	return write(out), nil
}

// tell is like ask, for calls that return only an error.
func tell[M, In any](ctx context.Context, m *M, read func(string, *M) (In, error), call func(context.Context, In) error) (*pb.Done, error) {
	in, err := read(tenantOf(ctx), m)
	if err != nil {
		return nil, err
	}
	return done(call(ctx, in))
}

// list is like ask, for calls whose only argument is the tenant.
func list[Out, R any](ctx context.Context, call func(context.Context, string) (Out, error), write func(Out) *R) (*R, error) {
	out, err := call(ctx, tenantOf(ctx))
	if err != nil {
		return nil, err
	}
	return write(out), nil
}

// done is the reply of a call that returns only an error.
func done(err error) (*pb.Done, error) {
	if err != nil {
		return nil, err
	}
	return &pb.Done{}, nil
}

// Server returns the version and the limits of this server, and the tenant of the caller. It also
// removes the stored answers that the client reports as received. If the request asks for it,
// Server first checks that the backend can accept messages.
func (c *client) Server(ctx context.Context, m *pb.ServerRequest) (*pb.ServerReply, error) {
	if m.GetReach() {
		if err := c.backend.Reach(ctx); err != nil {
			return nil, err
		}
	}
	c.receipts.confirm(tenantOf(ctx), m.GetReceived())
	r := &pb.ServerReply{Protocol: wire.Protocol, Version: c.version, Tenant: tenantOf(ctx), MaxMessage: int64(c.maxMessage), MaxPayload: int64(c.maxPayload)}
	r.Cluster, r.Remembers = c.backend.Cluster(), int64(c.backend.RequestRetention())
	if who, ok := CallerOf(ctx); ok && m.GetCaller() {
		r.Caller = wire.CallerInfo(describeCaller(&who, c.authorizer))
	}
	return r, nil
}

// Start starts an execution.
func (c *client) Start(ctx context.Context, m *pb.StartRequest) (*pb.StartReply, error) {
	return ask(ctx, m, wire.ReadStartRequest, c.backend.Start, wire.StartReply)
}

// StartMany starts many executions.
func (c *client) StartMany(ctx context.Context, m *pb.StartManyRequest) (*pb.StartManyReply, error) {
	return ask(ctx, m, wire.ReadStartManyRequest, c.backend.StartMany, wire.StartManyReply)
}

// Run starts an execution and waits for its end.
func (c *client) Run(ctx context.Context, m *pb.StartRequest) (*pb.Result, error) {
	return ask(ctx, m, wire.ReadStartRequest, c.backend.Run, wire.Result)
}

// Await waits for the end of an execution.
func (c *client) Await(ctx context.Context, m *pb.AwaitRequest) (*pb.Result, error) {
	return ask(ctx, m.GetTarget(), wire.ReadTarget, c.backend.Await, wire.Result)
}

// Signal sends a signal.
func (c *client) Signal(ctx context.Context, m *pb.SignalRequest) (*pb.Done, error) {
	return withReceipt(ctx, c, m.GetRequestId(), func(ctx context.Context) (*pb.Done, error) {
		return tell(ctx, m, wire.ReadSignalRequest, c.backend.Signal)
	})
}

// Settle resolves or rejects a promise.
func (c *client) Settle(ctx context.Context, m *pb.SettleRequest) (*pb.Done, error) {
	return withReceipt(ctx, c, m.GetRequestId(), func(ctx context.Context) (*pb.Done, error) {
		return tell(ctx, m, wire.ReadSettleRequest, c.backend.Settle)
	})
}

// Cancel asks an execution to end.
func (c *client) Cancel(ctx context.Context, m *pb.OrderRequest) (*pb.Done, error) {
	return tell(ctx, m, wire.ReadOrderRequest, c.backend.Cancel)
}

// Terminate ends an execution.
func (c *client) Terminate(ctx context.Context, m *pb.OrderRequest) (*pb.Done, error) {
	return tell(ctx, m, wire.ReadOrderRequest, c.backend.Terminate)
}

// Pause pauses an execution.
func (c *client) Pause(ctx context.Context, m *pb.OrderRequest) (*pb.Done, error) {
	return tell(ctx, m, wire.ReadOrderRequest, c.backend.Pause)
}

// Resume resumes an execution.
func (c *client) Resume(ctx context.Context, m *pb.OrderRequest) (*pb.Done, error) {
	return tell(ctx, m, wire.ReadOrderRequest, c.backend.Resume)
}

// Signals lists, shows, skips or drops signals that the code has not taken.
func (c *client) Signals(ctx context.Context, m *pb.SignalsRequest) (*pb.MailboxReply, error) {
	return ask(ctx, m, wire.ReadSignalsRequest, c.backend.Signals, wire.MailboxReply)
}

// Update asks the code of an execution for a change.
func (c *client) Update(ctx context.Context, m *pb.UpdateRequest) (*pb.ValueReply, error) {
	return withReceipt(ctx, c, m.GetRequestId(), func(ctx context.Context) (*pb.ValueReply, error) {
		return ask(ctx, m, wire.ReadUpdateRequest, c.backend.Update, wire.ValueReply)
	})
}

// Query asks the code of an execution a question that changes nothing.
func (c *client) Query(ctx context.Context, m *pb.QueryRequest) (*pb.ValueReply, error) {
	return ask(ctx, m, wire.ReadQueryRequest, c.backend.Query, wire.ValueReply)
}

// State reads a state of an execution.
func (c *client) State(ctx context.Context, m *pb.StateRequest) (*pb.StateReply, error) {
	target, err := wire.ReadTarget(tenantOf(ctx), m.GetTarget())
	if err != nil {
		return nil, err
	}
	value, found, err := c.backend.State(ctx, target, m.GetName())
	if err != nil {
		return nil, err
	}
	return &pb.StateReply{Value: wire.Payload(value), Found: found}, nil
}

// Describe describes an execution.
func (c *client) Describe(ctx context.Context, m *pb.DescribeRequest) (*pb.Description, error) {
	return ask(ctx, m.GetTarget(), wire.ReadTarget, c.backend.Describe, wire.Description)
}

// Count counts executions.
func (c *client) Count(ctx context.Context, m *pb.ListRequest) (*pb.CountReply, error) {
	return ask(ctx, m, wire.ReadListRequest, c.backend.Count, wire.CountReply)
}

// Explain says why an execution makes no progress.
func (c *client) Explain(ctx context.Context, m *pb.ExplainRequest) (*pb.Explanation, error) {
	return ask(ctx, m, wire.ReadExplainRequest, c.backend.Explain, wire.Explanation)
}

// Series returns what happened in the last hour, as numbers per interval.
func (c *client) Series(ctx context.Context, m *pb.SeriesRequest) (*pb.SeriesReply, error) {
	return ask(ctx, m, wire.ReadSeriesRequest, c.backend.Series, wire.SeriesReply)
}

// Tally counts executions up to a bound.
func (c *client) Tally(ctx context.Context, m *pb.TallyRequest) (*pb.TallyReply, error) {
	return ask(ctx, m, wire.ReadTallyRequest, c.backend.Tally, wire.TallyReply)
}

// Stranded returns executions that cannot continue without a change by a person.
func (c *client) Stranded(ctx context.Context, m *pb.StrandedRequest) (*pb.ListPage, error) {
	page, err := c.backend.Stranded(ctx, tenantOf(ctx), m.GetCursor())
	if err != nil {
		return nil, err
	}
	return wire.ListPage(page), nil
}

// Missing says why no process would run an execution or a task.
func (c *client) Missing(ctx context.Context, m *pb.MissingRequest) (*pb.MissingReply, error) {
	tenant := tenantOf(ctx)
	task, err := wire.ReadTaskSpec(tenant, m.GetTask())
	if err != nil {
		return nil, err
	}
	reason, err := c.backend.Missing(ctx, wire.ReadAddress(tenant, m.GetAddress()), task)
	if err != nil || reason == nil {
		return &pb.MissingReply{}, err
	}
	return &pb.MissingReply{Reason: wire.Reason(*reason)}, nil
}

// Fork starts an execution with the past of another.
func (c *client) Fork(ctx context.Context, m *pb.PastRequest) (*pb.PastReply, error) {
	return ask(ctx, m, wire.ReadPastRequest, c.backend.Fork, wire.PastReply)
}

// Retry continues an execution that failed, was cancelled or was terminated.
func (c *client) Retry(ctx context.Context, m *pb.PastRequest) (*pb.PastReply, error) {
	return ask(ctx, m, wire.ReadPastRequest, c.backend.Retry, wire.PastReply)
}

// Reset starts the current run again from an earlier position.
func (c *client) Reset(ctx context.Context, m *pb.PastRequest) (*pb.PastReply, error) {
	return ask(ctx, m, wire.ReadPastRequest, c.backend.Reset, wire.PastReply)
}

// Call calls an operation.
func (c *client) Call(ctx context.Context, m *pb.CallRequest) (*pb.ValueReply, error) {
	return withReceipt(ctx, c, m.GetRequestId(), func(ctx context.Context) (*pb.ValueReply, error) {
		return ask(ctx, m, wire.ReadCallRequest, c.backend.Call, wire.ValueReply)
	})
}

// Entity describes an entity.
func (c *client) Entity(ctx context.Context, m *pb.EntityRequest) (*pb.EntityInfo, error) {
	read := func(tenant string, m *pb.EntityRequest) (model.Address, error) {
		return wire.ReadAddress(tenant, m.GetAddress()), nil
	}
	return ask(ctx, m, read, c.backend.Entity, wire.EntityInfo)
}

// ListEntities lists entities.
func (c *client) ListEntities(ctx context.Context, m *pb.ListEntitiesRequest) (*pb.EntityPage, error) {
	return ask(ctx, m, wire.ReadListEntitiesRequest, c.backend.ListEntities, wire.EntityPage)
}

// Unlock takes a lock from its holder.
func (c *client) Unlock(ctx context.Context, m *pb.UnlockRequest) (*pb.Done, error) {
	return tell(ctx, m, wire.ReadUnlockRequest, c.backend.Unlock)
}

// EditEntity replaces the state of an entity.
func (c *client) EditEntity(ctx context.Context, m *pb.EditEntityRequest) (*pb.EditEntityReply, error) {
	return ask(ctx, m, wire.ReadEditEntityRequest, c.backend.EditEntity, wire.EditEntityReply)
}

// TakeItems serves the reader of a stream.
func (c *client) TakeItems(ctx context.Context, m *pb.TakeItemsRequest) (*pb.ItemsPage, error) {
	return ask(ctx, m, wire.ReadTakeItemsRequest, c.backend.TakeItems, wire.ItemsPage)
}

// SendItems serves the worker that runs the code of a stream.
func (c *client) SendItems(ctx context.Context, m *pb.SendItemsRequest) (*pb.SendItemsReply, error) {
	return ask(ctx, m, wire.ReadSendItemsRequest, c.backend.SendItems, wire.SendItemsReply)
}

// Mailbox lists or changes the mailbox of an entity.
func (c *client) Mailbox(ctx context.Context, m *pb.MailboxRequest) (*pb.MailboxReply, error) {
	return ask(ctx, m, wire.ReadMailboxRequest, c.backend.Mailbox, wire.MailboxReply)
}
