package flovyn_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "github.com/perdure/perdure/api/flovyn/v1"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/authz"
	"github.com/perdure/perdure/internal/authz/policy"
	"github.com/perdure/perdure/internal/flovyn"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/node"
)

// Keys and organizations of the tests.
const (
	adminKey  = "an admin key that is long enough"
	workerKey = "flovyn_wk_test_0123456789abcdef"
	userKey   = "flovyn_sk_test_0123456789abcdef"
	otherKey  = "flovyn_wk_test_of_another_org_00"
	orgID     = "0f7c1c1e-5b5a-4c3e-9a35-2f6a52f7a111"
	otherOrg  = "0f7c1c1e-5b5a-4c3e-9a35-2f6a52f7a222"
)

// rig is a server, and a client of the protocol.
type rig struct {
	t      *testing.T
	url    string
	server *node.Server
	addr   string
	conn   *grpc.ClientConn
	flows  pb.WorkflowDispatchClient
	tasks  pb.TaskExecutionClient
	life   pb.WorkerLifecycleClient
	query  pb.WorkflowQueryClient
	queue  string
	key    string
	cover  *coverage
}

var queues atomic.Int64

// serve starts a server on a store.
func serve(t *testing.T, url string) *rig {
	t.Helper()
	r := &rig{t: t, url: url, queue: fmt.Sprintf("queue-%d", queues.Add(1)), key: workerKey, cover: newCoverage()}
	r.open()
	t.Cleanup(r.close)
	return r
}

// startServer starts a server with the keys and organizations of the tests.
func startServer(ctx context.Context, url, listen string, lease time.Duration) (*node.Server, error) {
	orgs := flovyn.NewOrgs()
	admin, err := authn.NewAdminKey(adminKey, model.DefaultTenant)
	if err != nil {
		return nil, err
	}
	ring := authn.NewKeyring(admin)
	for id, slug := range map[string]string{orgID: "acme", otherOrg: "other"} {
		if err := orgs.Put(flovyn.Org{ID: id, Slug: slug, Name: slug, Tier: "FREE"}); err != nil {
			return nil, err
		}
	}
	both := []string{authz.RoleClient, authz.RoleWorker}
	for key, who := range map[string]authn.Identity{
		workerKey: {Tenant: "acme", Name: workerKey[:9], Roles: both}, otherKey: {Tenant: "other", Name: otherKey[:9], Roles: both},
		userKey: {Tenant: "acme", Name: userKey[:9]},
	} {
		if err := ring.Trust(key, who); err != nil {
			return nil, err
		}
	}
	policies, err := policy.Default()
	if err != nil {
		return nil, err
	}

	return node.Serve(ctx, node.ServerConfig{
		Node: node.Config{URL: url, AllowUnsafe: true, LeaseTTL: lease}, Listen: listen, Authenticator: ring, Authorizer: policies, Tenant: model.DefaultTenant, Orgs: orgs,
		Reunion: time.Millisecond, // no native worker comes back
	})
}

func (r *rig) open() {
	r.t.Helper()
	var err error
	r.server, err = startServer(context.WithoutCancel(r.t.Context()), r.url, "127.0.0.1:0", 0)
	r.must(err)
	r.addr = r.server.Addr().String()
	r.conn, err = grpc.NewClient(r.addr, append(r.cover.options(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	r.must(err)
	r.flows, r.tasks = pb.NewWorkflowDispatchClient(r.conn), pb.NewTaskExecutionClient(r.conn)
	r.life, r.query = pb.NewWorkerLifecycleClient(r.conn), pb.NewWorkflowQueryClient(r.conn)
}

func (r *rig) close() {
	_ = r.conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := r.server.Close(ctx); err != nil {
		r.t.Error(err)
	}
}

// restart stops the server and starts another one on the same store.
func (r *rig) restart() {
	r.t.Helper()
	r.close()
	r.open()
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// ctx is the context of a call with the key of the rig.
func (r *rig) ctx() context.Context {
	return metadata.AppendToOutgoingContext(r.t.Context(), "authorization", "Bearer "+r.key)
}

// until waits until a condition holds.
func (r *rig) until(what string, fact func() bool) {
	r.t.Helper()
	pause := 5 * time.Millisecond
	for end := time.Now().Add(2 * time.Minute); !fact(); time.Sleep(pause) {
		if time.Now().After(end) {
			r.t.Fatalf("%s: it did not happen", what)
		}
		pause = min(pause*5/4, 100*time.Millisecond) // checks cost processor time
	}
}

// as returns a rig whose calls carry another key.
func (r *rig) as(key string) *rig {
	other := *r
	other.key = key
	return &other
}

// code checks the status of a call.
func (r *rig) code(err error, want codes.Code, what string) {
	r.t.Helper()
	if got := status.Code(err); got != want {
		r.t.Errorf("%s: %v, want the status %v", what, err, want)
	}
}

func (r *rig) start(kind, input string) string {
	r.t.Helper()
	reply, err := r.flows.StartWorkflow(r.ctx(), &pb.StartWorkflowRequest{OrgId: orgID, WorkflowKind: kind, Input: []byte(input), Queue: r.queue})
	r.must(err)
	return reply.GetWorkflowExecutionId()
}

// poll takes the next activation.
func (r *rig) poll() *pb.WorkflowExecution {
	r.t.Helper()
	reply, err := r.flows.PollWorkflow(r.ctx(), &pb.PollRequest{WorkerId: "w", OrgId: orgID, Queue: r.queue, TimeoutSeconds: 30})
	r.must(err)
	if reply.GetWorkflowExecution() == nil {
		r.t.Fatal("there is no activation")
	}
	return reply.GetWorkflowExecution()
}

// nothing checks that no activation waits.
func (r *rig) nothing() {
	r.t.Helper()
	reply, err := r.flows.PollWorkflow(r.ctx(), &pb.PollRequest{WorkerId: "w", OrgId: orgID, Queue: r.queue})
	r.must(err)
	if x := reply.GetWorkflowExecution(); x != nil {
		r.t.Errorf("execution %s (%s) is handed out although nothing happened", x.GetId(), x.GetKind())
	}
}

func (r *rig) pollTask() *pb.TaskExecutionInfo {
	r.t.Helper()
	reply, err := r.tasks.PollTask(r.ctx(), &pb.PollTaskRequest{WorkerId: "w", OrgId: orgID, Queue: r.queue, TimeoutSeconds: 30})
	r.must(err)
	if reply.GetTask() == nil {
		r.t.Fatal("there is no task")
	}
	return reply.GetTask()
}

func (r *rig) complete(task, output string) {
	r.t.Helper()
	_, err := r.tasks.CompleteTask(r.ctx(), &pb.CompleteTaskRequest{TaskExecutionId: task, Output: []byte(output)})
	r.must(err)
}

func (r *rig) trySubmit(id string, s pb.WorkflowStatus, commands ...*pb.WorkflowCommand) error {
	_, err := r.flows.SubmitWorkflowCommands(r.ctx(), &pb.SubmitWorkflowCommandsRequest{WorkflowExecutionId: id, Status: s, Commands: commands})
	return err
}

const (
	suspended = pb.WorkflowStatus_WORKFLOW_STATUS_SUSPENDED
	completed = pb.WorkflowStatus_WORKFLOW_STATUS_COMPLETED
	failed    = pb.WorkflowStatus_WORKFLOW_STATUS_FAILED
)

func (r *rig) submit(id string, s pb.WorkflowStatus, commands ...*pb.WorkflowCommand) {
	r.t.Helper()
	r.must(r.trySubmit(id, s, commands...))
}

// events returns the event log, one line per event.
func (r *rig) events(id string) []string {
	r.t.Helper()
	reply, err := r.flows.GetEvents(r.ctx(), &pb.GetEventsRequest{WorkflowExecutionId: id})
	r.must(err)
	var lines []string
	for i, e := range reply.GetEvents() {
		if e.GetSequenceNumber() != int32(i+1) {
			r.t.Errorf("event %d has the number %d", i+1, e.GetSequenceNumber())
		}
		if !json.Valid(e.GetEventData()) {
			r.t.Errorf("event %d is not JSON: %s", i+1, e.GetEventData())
		}
		lines = append(lines, e.GetEventType()+" "+string(e.GetEventData()))
	}
	return lines
}

// types returns the types of the events.
func (r *rig) types(id string) string {
	r.t.Helper()
	var types []string
	for _, line := range r.events(id) {
		word, _, _ := strings.Cut(line, " ")
		types = append(types, word)
	}
	return strings.Join(types, " ")
}

// event returns the data of the last event of a type.
func (r *rig) event(id, kind string) map[string]any {
	r.t.Helper()
	var data map[string]any
	for _, line := range r.events(id) {
		if rest, ok := strings.CutPrefix(line, kind+" "); ok {
			data = nil
			r.must(json.Unmarshal([]byte(rest), &data))
		}
	}
	if data == nil {
		r.t.Fatalf("%s has no event %s: %q", id, kind, r.types(id))
	}
	return data
}

// request makes an HTTP request and returns the status and the body.
func (r *rig) request(method, path, body string) (int, map[string]any) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, "http://"+r.addr+path, bytes.NewBufferString(body))
	r.must(err)
	if r.key != "" {
		req.Header.Set("Authorization", "Bearer "+r.key)
	}
	reply, err := http.DefaultClient.Do(req)
	r.must(err)
	if r.cover != nil {
		r.cover.noteRequest(method, path, reply.StatusCode)
	}
	defer reply.Body.Close()
	raw, err := io.ReadAll(reply.Body)
	r.must(err)
	var m map[string]any
	if len(raw) > 0 {
		r.must(json.Unmarshal(raw, &m))
	}

	return reply.StatusCode, m
}

// Commands of the tests.
func cmdOperation(name, result string) *pb.WorkflowCommand {
	return &pb.WorkflowCommand{
		CommandType: pb.CommandType_COMMAND_TYPE_RECORD_OPERATION,
		CommandData: &pb.WorkflowCommand_RecordOperation{RecordOperation: &pb.RecordOperationCommand{OperationName: name, Result: []byte(result)}},
	}
}

func cmdSet(key, value string) *pb.WorkflowCommand {
	return &pb.WorkflowCommand{
		CommandType: pb.CommandType_COMMAND_TYPE_SET_STATE, CommandData: &pb.WorkflowCommand_SetState{SetState: &pb.SetStateCommand{Key: key, Value: []byte(value)}},
	}
}

func cmdClear(key string) *pb.WorkflowCommand {
	return &pb.WorkflowCommand{
		CommandType: pb.CommandType_COMMAND_TYPE_CLEAR_STATE, CommandData: &pb.WorkflowCommand_ClearState{ClearState: &pb.ClearStateCommand{Key: key}},
	}
}

func cmdTask(id, kind, input string, change func(*pb.ScheduleTaskCommand)) *pb.WorkflowCommand {
	c := &pb.ScheduleTaskCommand{TaskExecutionId: id, Kind: kind, Input: []byte(input)}
	if change != nil {
		change(c)
	}
	return &pb.WorkflowCommand{CommandType: pb.CommandType_COMMAND_TYPE_SCHEDULE_TASK, CommandData: &pb.WorkflowCommand_ScheduleTask{ScheduleTask: c}}
}

func cmdComplete(output string) *pb.WorkflowCommand {
	return &pb.WorkflowCommand{
		CommandType: pb.CommandType_COMMAND_TYPE_COMPLETE_WORKFLOW,
		CommandData: &pb.WorkflowCommand_CompleteWorkflow{CompleteWorkflow: &pb.CompleteWorkflowCommand{Output: []byte(output)}},
	}
}

func cmdFail(text string) *pb.WorkflowCommand {
	return &pb.WorkflowCommand{
		CommandType: pb.CommandType_COMMAND_TYPE_FAIL_WORKFLOW,
		CommandData: &pb.WorkflowCommand_FailWorkflow{FailWorkflow: &pb.FailWorkflowCommand{Error: text, FailureType: "ERROR"}},
	}
}

func cmdSuspend(reason string) *pb.WorkflowCommand {
	return &pb.WorkflowCommand{
		CommandType: pb.CommandType_COMMAND_TYPE_SUSPEND_WORKFLOW,
		CommandData: &pb.WorkflowCommand_SuspendWorkflow{SuspendWorkflow: &pb.SuspendWorkflowCommand{Reason: reason}},
	}
}

func cmdTimer(id string, ms int64) *pb.WorkflowCommand {
	return &pb.WorkflowCommand{
		CommandType: pb.CommandType_COMMAND_TYPE_START_TIMER, CommandData: &pb.WorkflowCommand_StartTimer{StartTimer: &pb.StartTimerCommand{TimerId: id, DurationMs: ms}},
	}
}

func cmdCancelTimer(id string) *pb.WorkflowCommand {
	return &pb.WorkflowCommand{
		CommandType: pb.CommandType_COMMAND_TYPE_CANCEL_TIMER, CommandData: &pb.WorkflowCommand_CancelTimer{CancelTimer: &pb.CancelTimerCommand{TimerId: id}},
	}
}

func cmdPromise(name string, change func(*pb.CreatePromiseCommand)) *pb.WorkflowCommand {
	c := &pb.CreatePromiseCommand{PromiseId: name}
	if change != nil {
		change(c)
	}
	return &pb.WorkflowCommand{CommandType: pb.CommandType_COMMAND_TYPE_CREATE_PROMISE, CommandData: &pb.WorkflowCommand_CreatePromise{CreatePromise: c}}
}

func cmdChild(id, name, kind, input string) *pb.WorkflowCommand {
	return &pb.WorkflowCommand{
		CommandType: pb.CommandType_COMMAND_TYPE_SCHEDULE_CHILD_WORKFLOW,
		CommandData: &pb.WorkflowCommand_ScheduleChildWorkflow{ScheduleChildWorkflow: &pb.ScheduleChildWorkflowCommand{
			ChildExecutionName: name, WorkflowKind: &kind, ChildWorkflowExecutionId: id, Input: []byte(input),
		}},
	}
}
