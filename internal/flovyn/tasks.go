package flovyn

import (
	"context"
	"log/slog"
	"math"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/emptypb"

	pb "github.com/perdure/perdure/api/flovyn/v1"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// tasks serves TaskExecution. PollTask is in poll.go.
type tasks struct {
	pb.UnimplementedTaskExecutionServer
	d *Door
}

// nonRetryable is the prefix of an error after which the engine does not repeat the task. The
// protocol has no field for this.
const nonRetryable = "Non-retryable error: "

// SubmitTask creates a task. If the task belongs to a workflow, a later command of the workflow
// adds the event of the task to the history.
func (s *tasks) SubmitTask(ctx context.Context, m *pb.SubmitTaskRequest) (*pb.SubmitTaskResponse, error) {
	tenant, err := s.d.tenant(ctx, m.GetOrgId())
	if err != nil {
		return nil, err
	}
	var key *string
	if m.IdempotencyKey != nil && m.GetIdempotencyKey() != "" {
		key = m.IdempotencyKey
	}

	id, isNew, err := s.d.submitTask(ctx, tenant, taskRequest{
		kind: m.GetKind(), queue: m.GetQueue(), input: m.GetInput(), metadata: m.GetMetadata(), retries: m.GetMaxRetries(), timeoutMs: m.GetTimeoutMs(),
		key: key, ttl: m.IdempotencyKeyTtlSeconds,
	})
	if err != nil {
		return nil, err
	}

	return &pb.SubmitTaskResponse{TaskExecutionId: id, IdempotencyKeyUsed: key != nil, IdempotencyKeyNew: isNew}, nil
}

// taskRequest asks for a task without a workflow.
type taskRequest struct {
	kind, queue string
	input       []byte
	metadata    map[string]string
	retries     int32
	timeoutMs   int64
	delay       time.Duration
	key         *string
	ttl         *int64
}

// submitTask creates a task, or returns the one that has the key.
func (d *Door) submitTask(ctx context.Context, tenant string, r taskRequest) (id string, isNew bool, err error) {
	if r.queue == "" {
		r.queue = defaultQueue
	}
	spec, err := taskSpec(r.kind, r.queue, r.retries, r.timeoutMs)
	if err != nil {
		return "", false, err
	}
	spec.Delay = r.delay
	input := taskInput(r.kind, r.metadata, r.input)

	a := taskAddress(tenant, r.kind, newID())
	if r.key != nil {
		bound, err := d.bindStart(ctx, tenant, *r.key, r.ttl, a)
		if err != nil {
			return "", false, err
		}
		a = bound
	}
	reply, err := d.backend.Start(ctx, api.StartRequest{Address: a, Input: input, Task: spec})
	if r.key != nil && fault.Is(err, fault.Conflict) {
		return a.Key, false, nil // the same key with another input
	}
	if err != nil {
		return "", false, err
	}
	d.places.put(a.Key, a)
	return a.Key, !reply.Existing, nil
}

// running returns a task that a client executes, and its queue. If no client executes the task, it
// returns nil, and an error if the task does not exist.
func (s *tasks) running(ctx context.Context, id string) (*taskQueue, *heldTask, error) {
	tenant, err := s.d.tenant(ctx, "")
	if err != nil {
		return nil, nil, err
	}
	if id, err = parseID("task", id); err != nil {
		return nil, nil, err
	}
	for _, q := range s.d.queuesOf(tenant) {
		if t, worker := q.has(id); t != nil {
			s.d.workers.see(tenant, worker, time.Now())
			return q, t, nil
		}
	}
	_, err = s.d.findTask(ctx, tenant, id)
	return nil, nil, err
}

// finish reports how a task ended. A report of a task that no client executes changes nothing.
func (s *tasks) finish(ctx context.Context, id string, fill func(*model.TaskReport)) (*emptypb.Empty, error) {
	q, t, err := s.running(ctx, id)
	if err != nil {
		return nil, err
	}
	if t == nil {
		return nil, fault.New(fault.Conflict, "task %s is not running", id)
	}
	// The report continues if the client leaves.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	err = q.report(ctx, t, fill)
	if fault.Is(err, fault.NotOwned) {
		err = fault.New(fault.Conflict, "task %s is not running", id)
	}
	return &emptypb.Empty{}, err
}

// CompleteTask stores the result of a task.
func (s *tasks) CompleteTask(ctx context.Context, m *pb.CompleteTaskRequest) (*emptypb.Empty, error) {
	if len(m.GetOutput()) > s.d.cfg.MaxPayload {
		return nil, fault.New(fault.Invalid, "the output of task %s has %d bytes, at most %d are allowed", m.GetTaskExecutionId(), len(m.GetOutput()), s.d.cfg.MaxPayload)
	}
	return s.finish(ctx, m.GetTaskExecutionId(), func(r *model.TaskReport) { r.Output = jsonPayload(m.GetOutput()) })
}

// FailTask stores the error of an attempt. The engine repeats the task as its spec says, unless the
// error begins with nonRetryable.
func (s *tasks) FailTask(ctx context.Context, m *pb.FailTaskRequest) (*emptypb.Empty, error) {
	return s.finish(ctx, m.GetTaskExecutionId(), func(r *model.TaskReport) {
		r.Failure = (&model.Failure{Message: m.GetError(), Permanent: strings.HasPrefix(m.GetError(), nonRetryable)}).Bounded()
	})
}

// CancelTask ends a task that has not ended.
func (s *tasks) CancelTask(ctx context.Context, m *pb.CancelTaskRequest) (*emptypb.Empty, error) {
	tenant, err := s.d.tenant(ctx, "")
	if err != nil {
		return nil, err
	}
	a, err := s.d.findTask(ctx, tenant, m.GetTaskExecutionId())
	if err != nil {
		return nil, err
	}
	err = s.d.backend.Terminate(ctx, api.CancelRequest{Target: api.Target{Address: a}, Reason: "Task cancelled"})
	return &emptypb.Empty{}, err
}

// Heartbeat says that a worker still executes a task. The error of the call tells the worker that
// the task was cancelled, or that another worker may have it.
func (s *tasks) Heartbeat(ctx context.Context, m *pb.HeartbeatRequest) (*emptypb.Empty, error) {
	q, t, err := s.running(ctx, m.GetTaskExecutionId())
	if err != nil {
		return nil, err
	}
	if t == nil || q.isCanceled(t) {
		return nil, fault.New(fault.Conflict, "task %s is not running", m.GetTaskExecutionId())
	}
	_, err = q.session.Beat(ctx, []api.Beat{{Claim: t.claim.Ref}})
	return &emptypb.Empty{}, err
}

// ReportProgress keeps the latest progress of a task. Progress of a task that has ended is dropped.
func (s *tasks) ReportProgress(ctx context.Context, m *pb.ReportProgressRequest) (*emptypb.Empty, error) {
	if math.IsNaN(m.GetProgress()) {
		return nil, fault.New(fault.Invalid, "the progress of task %.80q is not a number", m.GetTaskExecutionId())
	}
	q, t, err := s.running(ctx, m.GetTaskExecutionId())
	if err != nil || t == nil {
		return &emptypb.Empty{}, err
	}
	p := mustJSON(map[string]any{"progress": min(max(m.GetProgress(), 0), 1), "details": model.Cut(m.GetDetails(), model.MaxReasonText)})
	_, err = q.session.Beat(ctx, []api.Beat{{Claim: t.claim.Ref, Progress: &p}})
	return &emptypb.Empty{}, err
}

// write stores items of a task, one call after the other.
func (q *taskQueue) write(ctx context.Context, t *heldTask, items ...model.TaskItem) error {
	t.write.Lock()
	defer t.write.Unlock()
	err := q.session.Write(ctx, model.TaskWrite{Ref: t.claim.Ref, First: t.items + 1, Items: items})
	if err == nil {
		t.items += int64(len(items))
	}
	return err
}

// LogMessage keeps a line. Lines of a task that has ended are dropped.
func (s *tasks) LogMessage(ctx context.Context, m *pb.LogMessageRequest) (*emptypb.Empty, error) {
	q, t, err := s.running(ctx, m.GetTaskExecutionId())
	if err != nil || t == nil {
		return &emptypb.Empty{}, err
	}
	level := slog.LevelInfo
	_ = level.UnmarshalText([]byte(m.GetLevel())) // an unknown level is Info
	err = q.write(ctx, t, model.TaskItem{Kind: model.ItemLog, Level: int16(level), Text: model.Cut(m.GetMessage(), model.MaxLogLine)})
	if err != nil {
		s.d.log.Debug("a line of a task is lost", "task", t.id(), "error", err)
	}
	return &emptypb.Empty{}, nil
}

// streamKinds are the kinds of stream events.
var streamKinds = map[pb.StreamEventType]model.ItemKind{
	pb.StreamEventType_STREAM_EVENT_TYPE_TOKEN: model.ItemToken, pb.StreamEventType_STREAM_EVENT_TYPE_PROGRESS: model.ItemProgress,
	pb.StreamEventType_STREAM_EVENT_TYPE_DATA: model.ItemData, pb.StreamEventType_STREAM_EVENT_TYPE_ERROR: model.ItemError,
}

// StreamTaskData keeps an item for listeners. It drops the item if no client executes the task, or
// if the item cannot be stored. It acknowledges a dropped item too.
func (s *tasks) StreamTaskData(ctx context.Context, m *pb.StreamTaskDataRequest) (*pb.StreamTaskDataResponse, error) {
	kind, known := streamKinds[m.GetType()]
	if !known {
		return nil, fault.New(fault.Invalid, "the type of the stream event is %d, must be 1 to 4", m.GetType())
	}
	q, t, err := s.running(ctx, m.GetTaskExecutionId())
	if err != nil {
		return nil, err
	}
	if t != nil {
		if err := q.write(ctx, t, model.TaskItem{Kind: kind, Value: jsonPayload([]byte(m.GetPayload()))}); err != nil {
			s.d.log.Debug("a stream event of a task is lost", "task", t.id(), "error", err)
		}
	}
	return &pb.StreamTaskDataResponse{Acknowledged: true}, nil
}

// states returns the states of a task, whether a client executes it or not.
func (s *tasks) states(ctx context.Context, id string) ([]api.TaskState, error) {
	q, t, err := s.running(ctx, id)
	if err != nil {
		return nil, err
	}
	if t != nil {
		return q.session.States(ctx, t.claim.Ref)
	}

	tenant, err := s.d.tenant(ctx, "")
	if err != nil {
		return nil, err
	}
	a, err := s.d.findTask(ctx, tenant, id)
	if err != nil {
		return nil, err
	}

	reply, err := s.d.backend.TaskStates(ctx, api.TaskTarget{Target: api.Target{Address: a}})
	return reply.States, err
}

// GetState returns one state of a task.
func (s *tasks) GetState(ctx context.Context, m *pb.GetStateRequest) (*pb.GetStateResponse, error) {
	states, err := s.states(ctx, m.GetTaskExecutionId())
	if err != nil {
		return nil, err
	}
	for _, st := range states {
		if st.Name == m.GetKey() {
			return &pb.GetStateResponse{Value: st.Value.Data, Found: true}, nil
		}
	}
	return &pb.GetStateResponse{}, nil
}

// GetStateKeys returns the names of the states of a task.
func (s *tasks) GetStateKeys(ctx context.Context, m *pb.GetStateKeysRequest) (*pb.GetStateKeysResponse, error) {
	states, err := s.states(ctx, m.GetTaskExecutionId())
	out := &pb.GetStateKeysResponse{}
	for _, st := range states {
		out.Keys = append(out.Keys, st.Name)
	}
	return out, err
}

// change changes states of a task that a client executes.
func (s *tasks) change(ctx context.Context, id string, item model.TaskItem) (*emptypb.Empty, error) {
	q, t, err := s.running(ctx, id)
	if err != nil {
		return nil, err
	}
	if t == nil {
		return nil, fault.New(fault.Conflict, "task %s is not running", id)
	}
	return &emptypb.Empty{}, q.write(ctx, t, item)
}

// SetState sets a state of a task.
func (s *tasks) SetState(ctx context.Context, m *pb.SetStateRequest) (*emptypb.Empty, error) {
	return s.change(ctx, m.GetTaskExecutionId(), model.TaskItem{Kind: model.ItemSet, Name: m.GetKey(), Value: jsonPayload(m.GetValue())})
}

// ClearState removes a state of a task.
func (s *tasks) ClearState(ctx context.Context, m *pb.ClearStateRequest) (*emptypb.Empty, error) {
	return s.change(ctx, m.GetTaskExecutionId(), model.TaskItem{Kind: model.ItemRemove, Name: m.GetKey()})
}

// ClearAllState removes all states of a task.
func (s *tasks) ClearAllState(ctx context.Context, m *pb.ClearAllStateRequest) (*emptypb.Empty, error) {
	return s.change(ctx, m.GetTaskExecutionId(), model.TaskItem{Kind: model.ItemClear})
}
