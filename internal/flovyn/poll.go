package flovyn

import (
	"context"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	pb "github.com/perdure/perdure/api/flovyn/v1"
	"github.com/perdure/perdure/internal/api"
)

// Register adds the services of the protocol to a server.
//
// It registers the two polls as streams. Clients see no difference. But the server notices if a
// reply could not be sent, and can hand the work to another worker immediately.
func (d *Door) Register(to grpc.ServiceRegistrar) {
	flows := polled(pb.WorkflowDispatch_ServiceDesc, "PollWorkflow", d.pollWorkflow)
	to.RegisterService(&flows, &dispatch{d: d})
	tasksDesc := polled(pb.TaskExecution_ServiceDesc, "PollTask", d.pollTask)
	to.RegisterService(&tasksDesc, &tasks{d: d})
	pb.RegisterWorkflowQueryServer(to, query{})
	pb.RegisterWorkerLifecycleServer(to, &lifecycle{d: d})
}

// noAgents is the error text of calls about agents.
const noAgents = "agents are not served: only workflows and tasks of the Flovyn protocol are"

// Unserved answers calls of methods that the server does not have.
func Unserved(method string) error {
	if strings.HasPrefix(method, "/flovyn.v1.AgentDispatch/") {
		return grpcstatus.Error(codes.Unimplemented, noAgents)
	}
	return grpcstatus.Errorf(codes.Unimplemented, "the method %s is not known", method)
}

// Services are the names of the services that Register adds.
func Services() []string {
	return []string{
		pb.WorkflowDispatch_ServiceDesc.ServiceName, pb.TaskExecution_ServiceDesc.ServiceName, pb.WorkflowQuery_ServiceDesc.ServiceName,
		pb.WorkerLifecycle_ServiceDesc.ServiceName,
	}
}

// polled returns the description of a service with one method changed to a stream.
func polled(desc grpc.ServiceDesc, method string, serve func(grpc.ServerStream) error) grpc.ServiceDesc {
	desc.Methods = slices.DeleteFunc(slices.Clone(desc.Methods), func(m grpc.MethodDesc) bool { return m.MethodName == method })
	desc.Streams = append(slices.Clone(desc.Streams), grpc.StreamDesc{
		StreamName: method, ServerStreams: true, Handler: func(_ any, stream grpc.ServerStream) error { return serve(stream) },
	})
	return desc
}

// pollWorkflow serves PollWorkflow.
func (d *Door) pollWorkflow(stream grpc.ServerStream) error {
	var m pb.PollRequest
	if err := stream.RecvMsg(&m); err != nil {
		return err
	}
	ctx := stream.Context()
	tenant, err := d.tenant(ctx, m.GetOrgId())
	if err != nil {
		return err
	}
	if err := checkWorker(m.GetWorkerId()); err != nil {
		return err
	}
	q, err := d.queue(ctx, tenant, m.GetQueue())
	if err != nil {
		return err
	}
	d.workers.see(tenant, m.GetWorkerId(), time.Now())

	r, err := q.poll(ctx, m.GetWorkerId(), d.waitTime(tenant, m.GetWorkerId(), m.GetTimeoutSeconds()))
	if err != nil {
		return err
	}
	d.workers.see(tenant, m.GetWorkerId(), time.Now())
	if r == nil {
		return stream.SendMsg(&pb.PollResponse{})
	}
	h := q.handing(r)
	reply, err := d.pollResponse(ctx, &h)
	if err == nil {
		err = send(ctx, stream, reply)
	}
	if err != nil {
		q.returnRun(r, h.number)
	}
	return err
}

// waitTime is how long a poll waits for work. Native workers name themselves by the id that they
// got when they registered. Some of them have only one thread: while they poll for workflows, they
// do not execute tasks. So polls of native workers are short.
func (d *Door) waitTime(tenant, worker string, seconds int64) time.Duration {
	if seconds <= 0 {
		return 0
	}
	wait := min(time.Duration(min(seconds, 3600))*time.Second, longestPoll)
	if isWorkerID(tenant, worker) {
		wait = min(wait, d.cfg.ShortPoll)
	}
	return wait
}

// checkWorker checks the length of the id of a worker, because the door remembers it. Workers need
// not have an id.
func checkWorker(id string) error {
	if id == "" {
		return nil
	}
	return checkText("the id of the worker", id, maxKey)
}

// send sends the reply of a poll. It returns an error if the client has left.
func send(ctx context.Context, stream grpc.ServerStream, m any) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := stream.SendMsg(m); err != nil {
		return err
	}
	return ctx.Err()
}

// pollResponse returns a run in the form that workers read. If the door had no room for the input
// of the run, it reads the input from the store.
func (d *Door) pollResponse(ctx context.Context, h *handing) (*pb.PollResponse, error) {
	a := h.start.Address
	if h.shed {
		info, err := d.backend.Describe(ctx, api.Target{Address: a, Run: h.start.Run})
		if err != nil {
			return nil, err
		}
		h.start.Input = info.Start.Input
	}

	env := readEnvelope(h.start.Input)
	x := &pb.WorkflowExecution{
		Id: a.Key, Kind: env.Kind, OrgId: d.org(ctx, a.Tenant).ID, Input: env.Input, Queue: queueOf(a), PriorityMs: env.Priority * 1000,
		CreatedAtMs: h.start.At.Std().UnixMilli(), CurrentSequence: int32(h.claimed + 1), WorkflowTaskTimeMillis: time.Now().UnixMilli(),
	}
	if env.Version != "" {
		x.WorkflowVersion = &env.Version
	}
	return &pb.PollResponse{WorkflowExecution: x, Traceparent: h.start.Trace}, nil
}

// pollTask serves PollTask.
func (d *Door) pollTask(stream grpc.ServerStream) error {
	var m pb.PollTaskRequest
	if err := stream.RecvMsg(&m); err != nil {
		return err
	}
	ctx := stream.Context()
	tenant, err := d.tenant(ctx, m.GetOrgId())
	if err != nil {
		return err
	}
	if err := checkWorker(m.GetWorkerId()); err != nil {
		return err
	}
	name := m.GetQueue()
	if name == "" {
		name = defaultQueue
	}
	if err := checkText("the queue", name, maxText-len(Prefix)); err != nil {
		return err
	}
	q, err := d.task(ctx, site{tenant, name})
	if err != nil {
		return err
	}
	d.workers.see(tenant, m.GetWorkerId(), time.Now())

	t, err := q.poll(ctx, m.GetWorkerId(), d.waitTime(tenant, m.GetWorkerId(), m.GetTimeoutSeconds()))
	if err != nil {
		return err
	}
	d.workers.see(tenant, m.GetWorkerId(), time.Now())
	if t == nil {
		return stream.SendMsg(&pb.PollTaskResponse{})
	}
	if err := send(ctx, stream, taskResponse(t)); err != nil {
		q.giveBack(t)
		return err
	}
	return nil
}

// taskResponse is a task as a worker gets it.
func taskResponse(t *heldTask) *pb.PollTaskResponse {
	c := &t.claim
	out := &pb.TaskExecutionInfo{
		TaskExecutionId: t.id(), Kind: c.Spec.Kind, Input: readEnvelope(c.Input).Input, ExecutionCount: int32(c.Attempt), Queue: strings.TrimPrefix(c.Spec.Queue, Prefix),
		Traceparent: c.Trace,
	}
	if strings.HasPrefix(c.Parent.Address.Type, Prefix) {
		out.WorkflowExecutionId = c.Parent.Address.Key
	}
	return &pb.PollTaskResponse{Task: out}
}
