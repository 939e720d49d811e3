package flovyn

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	pb "github.com/perdure/perdure/api/flovyn/v1"
	"github.com/perdure/perdure/internal/model"
)

// dispatch serves WorkflowDispatch. PollWorkflow is in poll.go.
type dispatch struct {
	pb.UnimplementedWorkflowDispatchServer
	d *Door
}

// now is the time of this process.
func now() model.Time { return model.TimeOf(time.Now()) }

// StartWorkflow starts a workflow.
func (s *dispatch) StartWorkflow(ctx context.Context, m *pb.StartWorkflowRequest) (*pb.StartWorkflowResponse, error) {
	tenant, err := s.d.tenant(ctx, m.GetOrgId())
	if err != nil {
		return nil, err
	}

	r := startRequest{
		env:   envelope{Kind: m.GetWorkflowKind(), Version: m.GetWorkflowVersion(), Priority: int64(m.GetPrioritySeconds()), Metadata: m.GetMetadata(), Input: m.GetInput()},
		queue: m.GetQueue(), ttl: m.IdempotencyKeyTtlSeconds,
	}

	if m.GetIdempotencyKey() != "" {
		r.key = m.IdempotencyKey
	}
	a, isNew, err := s.d.start(ctx, tenant, r)
	if err != nil {
		return nil, err
	}

	return &pb.StartWorkflowResponse{WorkflowExecutionId: a.Key, IdempotencyKeyUsed: r.key != nil, IdempotencyKeyNew: isNew}, nil
}

// StartChildWorkflow is not served, because a workflow starts its children by commands.
func (s *dispatch) StartChildWorkflow(context.Context, *pb.StartChildWorkflowRequest) (*pb.StartChildWorkflowResponse, error) {
	return nil, grpcstatus.Error(codes.Unimplemented, "a workflow starts its children by commands; StartChildWorkflow is not served")
}

// GetVisualWorkflowDefinitionById is not served.
func (s *dispatch) GetVisualWorkflowDefinitionById(context.Context, *pb.GetVisualWorkflowDefinitionByIdRequest) (*pb.GetVisualWorkflowDefinitionByIdResponse, error) {
	return nil, grpcstatus.Error(codes.Unimplemented, "visual workflow definitions are not served")
}

// ResolvePromise resolves a promise. A promise that has an outcome keeps it.
func (s *dispatch) ResolvePromise(ctx context.Context, m *pb.ResolvePromiseRequest) (*emptypb.Empty, error) {
	return s.settle(ctx, m.GetPromiseId(), m.GetValue(), nil)
}

// RejectPromise rejects a promise. A promise that has an outcome keeps it.
func (s *dispatch) RejectPromise(ctx context.Context, m *pb.RejectPromiseRequest) (*emptypb.Empty, error) {
	return s.settle(ctx, m.GetPromiseId(), nil, (&model.Failure{Message: m.GetError()}).Bounded())
}

func (s *dispatch) settle(ctx context.Context, id string, value []byte, f *model.Failure) (*emptypb.Empty, error) {
	err := s.d.inTenant(ctx, func(tenant string) error {
		_, _, err := s.d.settlePromise(ctx, tenant, id, value, f)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &emptypb.Empty{}, nil
}

// SignalWithStartWorkflow signals a workflow, and starts the workflow if it does not exist.
func (s *dispatch) SignalWithStartWorkflow(ctx context.Context, m *pb.SignalWithStartWorkflowRequest) (*pb.SignalWithStartWorkflowResponse, error) {
	tenant, err := s.d.tenant(ctx, m.GetOrgId())
	if err != nil {
		return nil, err
	}
	key := m.GetWorkflowId()
	r := startRequest{
		env: envelope{Kind: m.GetWorkflowKind(), Version: m.GetWorkflowVersion(), Priority: int64(m.GetPrioritySeconds()), Metadata: m.GetMetadata(), Input: m.GetWorkflowInput()}, //nolint:lll // one value
		key: &key, queue: m.GetQueue(), ttl: m.IdempotencyKeyTtlSeconds,
	}
	a, created, sequence, err := s.d.signalWithStart(ctx, tenant, r, m.GetSignalName(), m.GetSignalValue())
	if err != nil {
		return nil, err
	}
	return &pb.SignalWithStartWorkflowResponse{WorkflowExecutionId: a.Key, WorkflowCreated: created, SignalEventSequence: sequence}, nil
}

// SignalWorkflow signals a workflow.
func (s *dispatch) SignalWorkflow(ctx context.Context, m *pb.SignalWorkflowRequest) (*pb.SignalWorkflowResponse, error) {
	tenant, err := s.d.tenant(ctx, m.GetOrgId())
	if err != nil {
		return nil, err
	}
	a, err := s.d.findFlow(ctx, tenant, m.GetWorkflowExecutionId())
	if err != nil {
		return nil, err
	}
	n, err := s.d.signal(ctx, a, m.GetSignalName(), m.GetSignalValue())
	if err != nil {
		return nil, err
	}
	return &pb.SignalWorkflowResponse{SignalEventSequence: n}, nil
}

// GetEvents returns the whole event log.
func (s *dispatch) GetEvents(ctx context.Context, m *pb.GetEventsRequest) (*pb.GetEventsResponse, error) {
	var j *journal
	err := s.d.inTenant(ctx, func(tenant string) error {
		a, err := s.d.findFlow(ctx, tenant, m.GetWorkflowExecutionId())
		if err == nil {
			j, err = s.d.events(ctx, a)
		}
		return err
	})
	if err != nil {
		return nil, err
	}

	out := &pb.GetEventsResponse{Events: make([]*pb.WorkflowEvent, len(j.records))}
	for i := range j.records {
		out.Events[i] = &pb.WorkflowEvent{SequenceNumber: int32(i + 1), EventType: j.records[i].kind, EventData: j.records[i].data}
	}

	return out, nil
}

// events returns the event log. It comes from memory if a worker has the run, and from the store
// otherwise.
func (d *Door) events(ctx context.Context, a model.Address) (*journal, error) {
	older := d.older(ctx, a.Tenant)
	if q := d.held(a); q != nil {
		if j, ok := q.events(ctx, a.Key, older); ok {
			return j, nil
		}
	}
	return d.journal(ctx, a, older)
}

// SubmitWorkflowCommands stores what a worker did with an activation.
func (s *dispatch) SubmitWorkflowCommands(ctx context.Context, m *pb.SubmitWorkflowCommandsRequest) (*emptypb.Empty, error) {
	tenant, err := s.d.tenant(ctx, "")
	if err != nil {
		return nil, err
	}
	a, err := s.d.findFlow(ctx, tenant, m.GetWorkflowExecutionId())
	if err != nil {
		return nil, err
	}

	q := s.d.held(a)
	if q == nil {
		return nil, notRunning(a.Key)
	}
	if err := q.submit(ctx, a.Key, m); err != nil {
		return nil, err
	}

	return &emptypb.Empty{}, nil
}

// SubscribeToNotifications tells a worker when its queue has work.
func (s *dispatch) SubscribeToNotifications(m *pb.SubscriptionRequest, stream grpc.ServerStreamingServer[pb.WorkAvailableEvent]) error {
	ctx := stream.Context()
	tenant, err := s.d.tenant(ctx, m.GetOrgId())
	if err != nil {
		return err
	}
	q, err := s.d.queue(ctx, tenant, m.GetQueue())
	if err != nil {
		return err
	}

	work, stop := q.listen()
	defer stop()
	// The headers tell the worker that it will be notified of all work from now on.
	if err := stream.SendHeader(nil); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.d.open.Done():
			return nil
		case <-work:
			if err := stream.Send(&pb.WorkAvailableEvent{OrgId: m.GetOrgId(), Queue: q.at.queue, TimestampMs: time.Now().UnixMilli()}); err != nil {
				return err
			}
		}
	}
}

// ReportExecutionSpans logs the spans of a worker. The server does not store them.
func (s *dispatch) ReportExecutionSpans(ctx context.Context, m *pb.ReportExecutionSpansRequest) (*pb.ReportExecutionSpansResponse, error) {
	tenant, err := s.d.tenant(ctx, "")
	if err != nil {
		return nil, err
	}
	for _, span := range m.GetSpans() {
		s.d.log.DebugContext(ctx, "span of a worker", "tenant", tenant, "type", span.GetSpanType(), "workflow", span.GetWorkflowId(), "task", span.GetTaskId(),
			"duration", time.Duration(span.GetEndTimeUnixNs()-span.GetStartTimeUnixNs()), "error", span.GetErrorType())
	}
	return &pb.ReportExecutionSpansResponse{AcceptedCount: int32(len(m.GetSpans()))}, nil
}

// query serves WorkflowQuery.
type query struct {
	pb.UnimplementedWorkflowQueryServer
}

// QueryWorkflow is not served, because no worker of the protocol answers queries.
func (query) QueryWorkflow(context.Context, *pb.QueryWorkflowRequest) (*pb.QueryWorkflowResponse, error) {
	return nil, grpcstatus.Error(codes.Unimplemented, "no worker of this protocol answers queries")
}

// queue returns the queue of workflows that a client polls.
func (d *Door) queue(ctx context.Context, tenant, name string) (*flowQueue, error) {
	if name == "" {
		name = defaultQueue
	}
	if err := checkText("the queue", name, maxText-len(Prefix)); err != nil {
		return nil, err
	}
	return d.flow(ctx, site{tenant, name})
}
