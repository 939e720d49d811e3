package flovyn_test

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "github.com/perdure/perdure/api/flovyn/v1"
)

func cmdResolve(promise, value string) *pb.WorkflowCommand {
	return &pb.WorkflowCommand{
		CommandType: pb.CommandType_COMMAND_TYPE_RESOLVE_PROMISE,
		CommandData: &pb.WorkflowCommand_ResolvePromise{ResolvePromise: &pb.ResolvePromiseCommand{PromiseId: promise, Value: []byte(value)}},
	}
}

func cmdCancel(reason string) *pb.WorkflowCommand {
	return &pb.WorkflowCommand{
		CommandType: pb.CommandType_COMMAND_TYPE_CANCEL_WORKFLOW,
		CommandData: &pb.WorkflowCommand_CancelWorkflow{CancelWorkflow: &pb.CancelWorkflowCommand{Reason: reason}},
	}
}

func cmdCancelChild(id, name, reason string) *pb.WorkflowCommand {
	return &pb.WorkflowCommand{
		CommandType: pb.CommandType_COMMAND_TYPE_REQUEST_CANCEL_CHILD_WORKFLOW,
		CommandData: &pb.WorkflowCommand_RequestCancelChildWorkflow{RequestCancelChildWorkflow: &pb.RequestCancelChildWorkflowCommand{
			ChildExecutionName: name, ChildWorkflowExecutionId: id, Reason: reason,
		}},
	}
}

// wake signals a run that waits, so that a worker gets it again.
func (r *rig) wake(id string) {
	r.t.Helper()
	_, err := r.flows.SignalWorkflow(r.ctx(), &pb.SignalWorkflowRequest{OrgId: orgID, WorkflowExecutionId: id, SignalName: "wake"})
	r.must(err)
	if x := r.poll(); x.GetId() != id {
		r.t.Fatalf("execution %s is handed out, want %s", x.GetId(), id)
	}
}

// The server accepts commands that today's SDKs do not send, or send in other ways.
func partCommands(r *rig) {
	// A workflow resolves its own promises, by id and by name. The server ignores the numbers of
	// commands.
	id := r.start("own promises", "null")
	r.poll()
	odd := cmdPromise("a", nil)
	odd.SequenceNumber = -7
	r.submit(id, pb.WorkflowStatus_WORKFLOW_STATUS_RUNNING, odd, cmdPromise("b", nil), &pb.WorkflowCommand{SequenceNumber: 1 << 30})
	first, _ := r.event(id, "PROMISE_CREATED")["promiseId"].(string) // the last one, which is b
	r.wake(id)
	r.submit(id, pb.WorkflowStatus_WORKFLOW_STATUS_UNSPECIFIED, cmdResolve(first, `{"v":2}`), cmdResolve("a", `{"v":1}`))
	log := strings.Join(r.events(id), "\n")
	for _, want := range []string{`"promiseName":"b","value":{"v":2}}`, `"promiseName":"a","value":{"v":1}}`} {
		if strings.Count(log, want) != 1 {
			r.t.Errorf("the log lacks %s:\n%s", want, log)
		}
	}
	r.wake(id)
	r.code(r.trySubmit(id, suspended, cmdSet("k", "1"), cmdResolve("c", "1")), codes.NotFound, "a promise that does not exist")
	if strings.Contains(r.types(id), "STATE_SET") {
		r.t.Error("half of a submission is in the log")
	}
	r.poll()

	// A child cancels itself. Its parent gets a failure, because clients understand failures.
	child := uuid.NewString()
	r.submit(id, suspended, cmdChild(child, "c", "gives up", "null"))
	for r.poll().GetId() != child {
		r.submit(id, suspended)
	}
	r.submit(child, pb.WorkflowStatus_WORKFLOW_STATUS_CANCELLED, cmdCancel("no <more>"))
	if got := r.event(child, "WORKFLOW_CANCELLED"); got["reason"] != "no <more>" {
		r.t.Errorf("the child: %v", got)
	}
	for !strings.Contains(r.types(id), "CHILD_WORKFLOW_FAILED") {
		r.poll()
		r.submit(id, suspended)
	}
	if got := r.event(id, "CHILD_WORKFLOW_FAILED"); got["childExecutionName"] != "c" || !strings.Contains(fmt.Sprint(got["error"]), "no <more>") {
		r.t.Errorf("the parent: %v", got)
	}

	// A workflow cancels a child by its name. A child that has ended does not change.
	gone := uuid.NewString()
	r.wake(id)
	r.submit(id, suspended, cmdChild(gone, "by name", "waits", "null"))
	r.poll()
	r.submit(gone, suspended)
	r.wake(id)
	r.submit(id, suspended, cmdCancelChild("", "by name", "enough"), cmdCancelChild(child, "c", "again"))
	for strings.Count(r.types(id), "CHILD_WORKFLOW_FAILED") < 2 {
		r.poll()
		r.submit(id, suspended)
	}
	if n := strings.Count(r.types(child), "WORKFLOW_CANCELLED"); n != 1 {
		r.t.Errorf("the first child ended %d times", n)
	}

	// A command may schedule a task under an id that another task has. The server ignores the
	// command if both tasks have the same kind, and refuses it otherwise.
	task := uuid.NewString()
	r.wake(id)
	r.submit(id, suspended, cmdTask(task, "t", "1", nil))
	r.pollTask()
	r.complete(task, "1")
	r.poll()
	r.submit(id, suspended, cmdTask(task, "t", "1", nil), cmdTask(task, "t", "1", nil))
	r.wake(id)
	r.code(r.trySubmit(id, suspended, cmdTask(task, "another kind", "1", nil)), codes.FailedPrecondition, "an id that another task has")
	r.poll()
	if n := strings.Count(r.types(id), "TASK_SCHEDULED"); n != 1 {
		r.t.Errorf("the task is scheduled %d times", n)
	}
	r.submit(id, completed)
}

// A workflow ends while its tasks and children are being created. The server still creates them,
// and their outcomes change nothing.
func partEnding(r *rig) {
	id, task, child := r.start("ends", "null"), uuid.NewString(), uuid.NewString()
	r.poll()
	r.submit(id, completed, cmdTask(task, "t", "1", nil), cmdTimer("sleep-1", 1), cmdPromise("p", nil), cmdChild(child, "c", "child", "1"), cmdComplete(`"early"`))
	want := r.types(id)
	if !strings.HasSuffix(want, "WORKFLOW_COMPLETED") {
		r.t.Errorf("the log is %s", want)
	}
	r.pollTask()
	r.complete(task, "1")
	if x := r.poll(); x.GetId() != child {
		r.t.Errorf("execution %s is handed out", x.GetId())
	}
	r.submit(child, completed)
	promise, _ := r.event(id, "PROMISE_CREATED")["promiseId"].(string)
	_, err := r.flows.ResolvePromise(r.ctx(), &pb.ResolvePromiseRequest{PromiseId: promise, Value: []byte("1")})
	r.must(err) // the call has no effect
	r.nothing()
	if got := r.types(id); got != want {
		r.t.Errorf("the log has changed after the end: %s, was %s", got, want)
	}

	// For its workflow, a cancelled task is a failed task.
	id = r.start("cancelled task", "null")
	pending, running := uuid.NewString(), uuid.NewString()
	r.poll()
	elsewhere := r.queue + "-nobody"
	r.submit(id, suspended, cmdTask(running, "t", "1", nil), cmdTask(pending, "t", "1", func(c *pb.ScheduleTaskCommand) { c.Queue = &elsewhere }))
	r.pollTask()
	for _, task := range []string{pending, running} {
		_, err := r.tasks.CancelTask(r.ctx(), &pb.CancelTaskRequest{TaskExecutionId: task})
		for status.Code(err) == codes.NotFound { // the start of the task is on its way
			_, err = r.tasks.CancelTask(r.ctx(), &pb.CancelTaskRequest{TaskExecutionId: task})
		}
		r.must(err)
	}
	_, err = r.tasks.Heartbeat(r.ctx(), &pb.HeartbeatRequest{TaskExecutionId: running})
	r.code(err, codes.FailedPrecondition, "the heartbeat of a cancelled task")
	for strings.Count(r.types(id), "TASK_FAILED") < 2 {
		r.poll()
		r.submit(id, suspended)
	}
	if got := r.event(id, "TASK_FAILED"); got["error"] != "Task cancelled" || got["retryable"] != false {
		r.t.Errorf("the cancelled task: %v", got)
	}

	// A task that takes too long fails, without another attempt.
	id, task = r.start("slow task", "null"), uuid.NewString()
	for x := r.poll(); x.GetId() != id; x = r.poll() {
		// This is the previous execution, whose last events a worker has not seen.
		r.submit(x.GetId(), suspended)
	}
	soon := int64(1)
	r.submit(id, suspended, cmdTask(task, "slow", "1", func(c *pb.ScheduleTaskCommand) { c.TimeoutMs, c.Queue = &soon, &elsewhere }))
	r.poll()
	if got := r.event(id, "TASK_FAILED"); !strings.Contains(fmt.Sprint(got["error"]), "timed out") {
		r.t.Errorf("the task that took too long: %v", got)
	}
	r.submit(id, completed)
}

// Traps of the contract that the other parts do not test.
func partTraps(r *rig) {
	// Polls are not filtered by what workers can do.
	id := r.start("any", "null")
	reply, err := r.flows.PollWorkflow(r.ctx(), &pb.PollRequest{OrgId: orgID, Queue: r.queue, TimeoutSeconds: 30, WorkflowCapabilities: []string{"another"}})
	if err != nil || reply.GetWorkflowExecution().GetId() != id {
		r.t.Errorf("a poll with capabilities: %v, %v", reply, err)
	}
	r.submit(id, completed)

	// The key of a user works on gRPC.
	u := r.as(userKey)
	started, err := u.flows.StartWorkflow(u.ctx(), &pb.StartWorkflowRequest{OrgId: orgID, WorkflowKind: "user", Queue: r.queue})
	r.must(err)
	id = started.GetWorkflowExecutionId()
	if started.GetIdempotencyKeyUsed() {
		r.t.Errorf("a start without a key: %v", started)
	}
	r.poll()
	r.submit(id, suspended, cmdPromise("a", nil), cmdPromise("b", nil))
	_, err = u.flows.SignalWorkflow(u.ctx(), &pb.SignalWorkflowRequest{OrgId: orgID, WorkflowExecutionId: id, SignalName: "s"})
	r.must(err)
	_, err = u.flows.ResolvePromise(u.ctx(), &pb.ResolvePromiseRequest{PromiseId: id + ":a", Value: []byte("1")})
	r.must(err)
	_, err = u.flows.RejectPromise(u.ctx(), &pb.RejectPromiseRequest{PromiseId: id + ":b", Error: "no"})
	r.must(err)
	with, err := u.flows.SignalWithStartWorkflow(u.ctx(), &pb.SignalWithStartWorkflowRequest{OrgId: orgID, WorkflowId: uuid.NewString(), WorkflowKind: "user", Queue: r.queue + "-2", SignalName: "s"})
	if err != nil || !with.GetWorkflowCreated() || with.GetSignalEventSequence() != 2 {
		r.t.Errorf("the user signals with a start: %v, %v", with, err)
	}
	if got := u.types(id); !strings.Contains(got, "SIGNAL_RECEIVED") || !strings.Contains(got, "PROMISE_RESOLVED") || !strings.Contains(got, "PROMISE_REJECTED") {
		r.t.Errorf("the log is %s", got)
	}
	r.poll()
	r.submit(id, completed)

	// Children and tasks have the trace of the workflow.
	const trace = "0af7651916cd43dd8448eb211c80319c"
	traced := metadata.AppendToOutgoingContext(r.ctx(), "traceparent", "00-"+trace+"-b7ad6b7169203331-01")
	started, err = r.flows.StartWorkflow(traced, &pb.StartWorkflowRequest{OrgId: orgID, WorkflowKind: "traced", Queue: r.queue})
	r.must(err)
	poll := func() *pb.PollResponse {
		reply, err := r.flows.PollWorkflow(r.ctx(), &pb.PollRequest{OrgId: orgID, Queue: r.queue, TimeoutSeconds: 30})
		r.must(err)
		return reply
	}
	parent := poll()
	child, task := uuid.NewString(), uuid.NewString()
	r.submit(started.GetWorkflowExecutionId(), suspended, cmdChild(child, "c", "traced", "1"), cmdTask(task, "t", "1", nil))
	if grown := poll(); !strings.Contains(parent.GetTraceparent(), trace) || !strings.Contains(grown.GetTraceparent(), trace) || grown.GetWorkflowExecution().GetId() != child {
		r.t.Errorf("the trace of the parent is %q, that of the child %q", parent.GetTraceparent(), grown.GetTraceparent())
	}
	if got := r.pollTask(); !strings.Contains(got.GetTraceparent(), trace) {
		r.t.Errorf("the trace of the task is %q", got.GetTraceparent())
	}

	// The server accepts unknown kinds and versions, because only workers know which code exists.
	version := "99.0.0-unknown"
	started, err = r.flows.StartWorkflow(r.ctx(), &pb.StartWorkflowRequest{
		OrgId: orgID, WorkflowKind: "nobody has this", WorkflowVersion: &version, Queue: r.queue, PrioritySeconds: 3600, Metadata: map[string]string{"team": "<a>"},
	})
	r.must(err)
	x := r.poll()
	if x.GetId() != started.GetWorkflowExecutionId() || x.GetWorkflowVersion() != version || x.GetPriorityMs() != 3_600_000 {
		r.t.Errorf("the activation is %v", x)
	}
	if got := r.event(x.GetId(), "WORKFLOW_STARTED"); fmt.Sprint(got["metadata"]) != "map[team:<a>]" {
		r.t.Errorf("the start is %v", got)
	}
	r.submit(x.GetId(), completed)
}

// The test makes the remaining requests of the HTTP contract, and uses tokens of the older dialect.
func partTokens(r *rig) {
	u := r.as(userKey)
	ok := func(method, path, body string, want int) map[string]any {
		r.t.Helper()
		code, got := u.request(method, path, body)
		if code != want {
			r.t.Errorf("%s %s: %d %v, want %d", method, path, code, got, want)
		}
		return got
	}
	const at = "/api/orgs/acme"
	got := ok("POST", at+"/workflow-executions/signal-with-start", `{"workflowId":"`+r.queue+`","workflowKind":"k","queue":"`+r.queue+`","signalName":"s","signalValue":[1]}`, http.StatusOK)
	if got["workflowCreated"] != true || got["signalDelivered"] != true || got["signalEventSequence"] != 2.0 {
		r.t.Errorf("signal with start: %v", got)
	}
	id, _ := got["workflowExecutionId"].(string)
	if triggered := ok("POST", at+"/workflows/triggered/trigger", `{"input":1,"taskQueue":"`+r.queue+`-2"}`, http.StatusCreated); triggered["kind"] != "triggered" {
		r.t.Errorf("trigger: %v", triggered)
	}

	task, child := uuid.NewString(), uuid.NewString()
	r.poll()
	r.submit(id, suspended, cmdTask(task, "t", "1", nil), cmdChild(child, "c", "child", "1"), cmdPromise("p", nil))
	r.pollTask()
	_, err := r.tasks.LogMessage(r.ctx(), &pb.LogMessageRequest{TaskExecutionId: task, Level: "ERROR", Message: "a line"})
	r.must(err)
	_, err = r.tasks.FailTask(r.ctx(), &pb.FailTaskRequest{TaskExecutionId: task, Error: "first"})
	r.must(err)
	r.pollTask()
	r.complete(task, "1")
	for _, path := range []string{at + "/workflow-executions/" + id + "/tasks/" + task, at + "/task-executions/" + task} {
		if got := fmt.Sprint(ok("GET", path+"/attempts", "", http.StatusOK)); !strings.Contains(got, "first") || !strings.Contains(got, "COMPLETED") {
			r.t.Errorf("the attempts: %s", got)
		}
		if got := fmt.Sprint(ok("GET", path+"/logs", "", http.StatusOK)); !strings.Contains(got, "a line") {
			r.t.Errorf("the logs: %s", got)
		}
	}
	if got := fmt.Sprint(ok("GET", at+"/task-executions?kind=t&status=completed", "", http.StatusOK)); !strings.Contains(got, task) {
		r.t.Errorf("the tasks: %s", got)
	}
	if got := fmt.Sprint(ok("GET", at+"/workflow-executions?status=running&limit=1000", "", http.StatusOK)); strings.Contains(got, "COMPLETED") {
		r.t.Errorf("the running executions: %s", got)
	}
	promise, _ := r.event(id, "PROMISE_CREATED")["promiseId"].(string)
	if got := ok("POST", at+"/promises/"+promise+"/reject", `{"error":"no"}`, http.StatusOK); got["resolved"] != true || got["promiseId"] != promise {
		r.t.Errorf("reject: %v", got)
	}
	ok("POST", at+"/promises/id:"+uuid.NewString()+"/resolve", `{}`, http.StatusNotFound)
	ok("POST", at+"/promises/key:nothing/resolve", `{}`, http.StatusNotFound)

	reply, err := r.life.RegisterWorker(r.ctx(), &pb.WorkerRegistrationRequest{
		OrgId: orgID, WorkerName: r.queue, Workflows: []*pb.WorkflowCapability{{Kind: "k", Version: "2"}}, Tasks: []*pb.TaskCapability{{Kind: "t"}},
	})
	r.must(err)
	ok("GET", at+"/workers", "", http.StatusOK)
	ok("GET", at+"/workers/"+reply.GetWorkerId(), "", http.StatusOK)
	ok("GET", at+"/task-definitions", "", http.StatusOK)
	ok("GET", at+"/task-definitions/t", "", http.StatusOK)

	// In a tenant of the older dialect, outcomes of promises have names instead of ids.
	admin := r.as(adminKey)
	slug := "u-" + strings.ToLower(r.queue)
	if code, body := admin.request("POST", "/api/tenants", `{"name":"U","slug":"`+slug+`"}`); code != http.StatusCreated {
		r.t.Fatalf("create: %d %v", code, body)
	}
	_, token := admin.request("POST", "/api/tenants/"+slug+"/worker-tokens", `{"displayName":"w"}`)
	w := r.as(fmt.Sprint(token["token"]))
	started, err := w.flows.StartWorkflow(w.ctx(), &pb.StartWorkflowRequest{WorkflowKind: "old"})
	r.must(err)
	id = started.GetWorkflowExecutionId()
	polled, err := w.flows.PollWorkflow(w.ctx(), &pb.PollRequest{Queue: "default", TimeoutSeconds: 30})
	r.must(err)
	if polled.GetWorkflowExecution().GetQueue() != "default" {
		r.t.Errorf("the default queue: %v", polled)
	}
	soon := int64(1)
	w.submit(id, suspended, cmdPromise("no", nil), cmdPromise("late", func(c *pb.CreatePromiseCommand) { c.TimeoutMs = &soon }))
	_, err = w.flows.RejectPromise(w.ctx(), &pb.RejectPromiseRequest{PromiseId: id + ":no", Error: "denied"})
	r.must(err)
	for !strings.Contains(w.types(id), "PROMISE_TIMEOUT") {
		_, err := w.flows.PollWorkflow(w.ctx(), &pb.PollRequest{Queue: "default", TimeoutSeconds: 30})
		r.must(err)
		_ = w.trySubmit(id, suspended)
	}
	if rejected, late := w.event(id, "PROMISE_REJECTED"), w.event(id, "PROMISE_TIMEOUT"); rejected["promiseId"] != "no" || late["promiseId"] != "late" {
		r.t.Errorf("the outcomes are %v, %v", rejected, late)
	}
	code, body := w.request("GET", "/api/tenants/"+slug+"/workflow-executions/"+id+"/events", "")
	if text := fmt.Sprint(body); code != http.StatusOK || !strings.Contains(text, "promiseId:late") {
		r.t.Errorf("the events: %d %s", code, text)
	}
}
