package flovyn_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/perdure/perdure/api/flovyn/v1"
)

// coverage records which parts of the contract the tests have used.
type coverage struct {
	mu       sync.Mutex
	methods  map[string]bool // full names
	commands map[string]bool // types of commands that were applied
	events   map[string]bool // types of events that were read
	requests map[string]bool // method and path of requests that succeeded
}

func newCoverage() *coverage {
	return &coverage{methods: map[string]bool{}, commands: map[string]bool{}, events: map[string]bool{}, requests: map[string]bool{}}
}

// options returns the options with which a connection records its calls here.
func (c *coverage) options() []grpc.DialOption {
	unary := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		err := invoke(ctx, method, req, reply, cc, opts...)
		c.note(method, req, reply, err)
		return err
	}
	stream := func(ctx context.Context, d *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		s, err := open(ctx, d, cc, method, opts...)
		c.note(method, nil, nil, err)
		return s, err
	}
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(unary), grpc.WithChainStreamInterceptor(stream)}
}

// note records a call. A method counts as used even if the server answers UNIMPLEMENTED, because
// the contract has methods that no server implements.
func (c *coverage) note(method string, req, reply any, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil || status.Code(err) == codes.Unimplemented {
		c.methods[method] = true
	}
	if err != nil {
		return
	}
	if m, ok := req.(*pb.SubmitWorkflowCommandsRequest); ok {
		for _, one := range m.GetCommands() {
			c.commands[one.GetCommandType().String()] = true
		}
	}
	if m, ok := reply.(*pb.GetEventsResponse); ok {
		for _, e := range m.GetEvents() {
			c.events[e.GetEventType()] = true
		}
	}
}

func (c *coverage) noteRequest(method, path string, code int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if code < http.StatusBadRequest {
		path, _, _ = strings.Cut(path, "?")
		c.requests[method+" "+path] = true
	}
}

// written are the event types that the server writes. It never writes TASK_CANCELLED,
// CHILD_WORKFLOW_CANCELLED and CHILD_WORKFLOW_STARTED: clients that wait for an outcome do not know
// the first two, and no client needs the third.
var written = []string{
	"WORKFLOW_STARTED", "WORKFLOW_COMPLETED", "WORKFLOW_EXECUTION_FAILED", "WORKFLOW_SUSPENDED", "WORKFLOW_CANCELLED", "CANCELLATION_REQUESTED",
	"OPERATION_COMPLETED", "STATE_SET", "STATE_CLEARED", "TASK_SCHEDULED", "TASK_COMPLETED", "TASK_FAILED", "PROMISE_CREATED", "PROMISE_RESOLVED", "PROMISE_REJECTED",
	"PROMISE_TIMEOUT", "CHILD_WORKFLOW_INITIATED", "CHILD_WORKFLOW_COMPLETED", "CHILD_WORKFLOW_FAILED", "TIMER_STARTED", "TIMER_FIRED", "TIMER_CANCELLED", "SIGNAL_RECEIVED",
}

// checkCoverage checks that the suite has used every method, every type of command and every
// request of the OpenAPI document with success, and has read every type of event and no other.
func checkCoverage(r *rig) {
	c := r.cover
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.requests) < 10 {
		r.t.Skip("only a part of the suite has run")
	}

	for _, desc := range []grpc.ServiceDesc{pb.WorkflowDispatch_ServiceDesc, pb.WorkflowQuery_ServiceDesc, pb.TaskExecution_ServiceDesc, pb.WorkerLifecycle_ServiceDesc} {
		var names []string
		for _, m := range desc.Methods {
			names = append(names, m.MethodName)
		}
		for _, s := range desc.Streams {
			names = append(names, s.StreamName)
		}
		for _, name := range names {
			if !c.methods["/"+desc.ServiceName+"/"+name] {
				r.t.Errorf("the suite does not call %s.%s with success", desc.ServiceName, name)
			}
		}
	}
	for _, name := range pb.CommandType_name {
		if !c.commands[name] {
			r.t.Errorf("the suite does not submit %s", name)
		}
	}
	for _, name := range written {
		if !c.events[name] {
			r.t.Errorf("the suite does not read %s", name)
		}
	}
	for name := range c.events {
		if !slices.Contains(written, name) {
			r.t.Errorf("the server writes %s, which clients do not expect", name)
		}
	}
	r.checkRequests()
}

var parameter = regexp.MustCompile(`\\\{\w+\\\}`)

// checkRequests checks that the suite has made every request of the document with success.
func (r *rig) checkRequests() {
	reply, err := http.Get("http://" + r.server.Addr().String() + "/api/docs/openapi.json") //nolint:noctx // the test ends with it
	r.must(err)
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	r.must(err)
	var doc struct {
		Paths map[string]map[string]any `json:"paths"`
	}
	r.must(json.Unmarshal(text, &doc))
	for path, methods := range doc.Paths {
		form := parameter.ReplaceAllString(regexp.QuoteMeta(path), "[^/]+")
		form = strings.Replace(form, "/api/orgs", "/api/(orgs|tenants)", 1)
		for method := range methods {
			match := regexp.MustCompile("^" + strings.ToUpper(method) + " " + form + "$")
			found := false
			for made := range r.cover.requests {
				found = found || match.MatchString(made)
			}
			if !found {
				r.t.Errorf("the suite does not make %s %s with success", strings.ToUpper(method), path)
			}
		}
	}
}

// The methods for agents are not served, and each of them says so.
func partAgents(r *rig) {
	for name := range strings.FieldsSeq(`PollAgent GetEntries AppendEntry GetLatestCheckpoint SubmitCheckpoint ScheduleAgentTask CompleteAgent FailAgent SuspendAgent
		ResumeAgent SignalAgent ConsumeSignals HasSignal GetAgentTaskResult GetAgentTaskResults GetAgentTaskCount CancelAgentTask StreamAgentData SpawnChildAgent
		SendParentSignal SendChildSignal PollChildEvents`) {
		err := r.conn.Invoke(r.ctx(), "/flovyn.v1.AgentDispatch/"+name, &pb.PollRequest{}, &pb.PollResponse{})
		r.code(err, codes.Unimplemented, name)
		if !strings.Contains(status.Convert(err).Message(), "agents are not served") {
			r.t.Errorf("%s: %v", name, err)
		}
	}
	for _, request := range []string{"POST ", "GET /" + uuid.NewString(), "POST /" + uuid.NewString() + "/signal", "GET /" + uuid.NewString() + "/checkpoints"} {
		method, path, _ := strings.Cut(request, " ")
		code, body := r.as(userKey).request(method, "/api/orgs/acme/agent-executions"+path, "{}")
		if why, _ := body["error"].(string); code != http.StatusNotImplemented || !strings.Contains(why, "agents are not served") {
			r.t.Errorf("%s of agents: %d %v", request, code, body)
		}
	}
}
