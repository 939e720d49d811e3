package flovyn_test

import (
	"fmt"
	"net/http"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/perdure/perdure/api/flovyn/v1"
)

// runTask makes every call about a task without a workflow. Its first attempt fails and its second
// one completes. If the server ends in between, an attempt starts again.
func (d *driver) runTask() {
	d.t.Helper()
	d.before()
	worker, err := d.life.RegisterWorker(d.ctx(), &pb.WorkerRegistrationRequest{OrgId: orgID, WorkerName: "walker"})
	d.must(err)
	d.before()
	_, err = d.life.SendHeartbeat(d.ctx(), &pb.WorkerHeartbeatRequest{WorkerId: worker.GetWorkerId()})
	d.must(err)

	key, id := "once", ""
	for range 2 {
		d.before()
		reply, err := d.rig.tasks.SubmitTask(d.ctx(), &pb.SubmitTaskRequest{OrgId: orgID, Kind: "walk", Queue: d.queue, MaxRetries: 9, IdempotencyKey: &key})
		d.must(err)
		if id != "" && reply.GetTaskExecutionId() != id {
			d.t.Fatalf("the key has the task %s, and had %s", reply.GetTaskExecutionId(), id)
		}
		id = reply.GetTaskExecutionId()
	}
	w := &taskWalk{driver: d, id: id}
	for !w.attempt() {
	}

	d.before()
	code, task := d.request("GET", "/api/orgs/acme/task-executions/"+id, "")
	if code != http.StatusOK || task["status"] != "COMPLETED" || fmt.Sprint(task["output"]) != "7" {
		d.t.Errorf("the task is %d %v", code, task)
	}
	code, logs := d.request("GET", "/api/orgs/acme/task-executions/"+id+"/logs", "")
	if code != http.StatusOK || !strings.Contains(fmt.Sprint(logs), "careful") {
		d.t.Errorf("the logs are %d %v", code, logs)
	}
	_, err = d.rig.tasks.CompleteTask(d.ctx(), &pb.CompleteTaskRequest{TaskExecutionId: id, Output: []byte("8")})
	d.code(err, codes.FailedPrecondition, "a second completion")
}

// taskWalk is a task for which the test makes all calls.
type taskWalk struct {
	*driver

	id          string
	set, failed bool // the server has stored the state (set) and the failure (failed)
}

// attempt executes the task once. It reports whether the task has completed.
func (w *taskWalk) attempt() bool {
	w.t.Helper()
	w.before()
	if got := w.pollTask(); got.GetTaskExecutionId() != w.id {
		w.t.Fatalf("task %s is handed out", got.GetTaskExecutionId())
	}

	ctx := w.ctx()
	calls := []func() error{
		func() error {
			got, err := w.rig.tasks.GetState(ctx, &pb.GetStateRequest{TaskExecutionId: w.id, Key: "k"})
			if err == nil && got.GetFound() != w.set {
				w.t.Errorf("the state is %v, and was stored: %v", got, w.set)
			}
			return err
		},
		func() error {
			_, err := w.rig.tasks.SetState(ctx, &pb.SetStateRequest{TaskExecutionId: w.id, Key: "k", Value: []byte("1")})
			w.set = w.set || err == nil
			return err
		},
		func() error {
			_, err := w.rig.tasks.LogMessage(ctx, &pb.LogMessageRequest{TaskExecutionId: w.id, Level: "INFO", Message: "careful"})
			return err
		},
		func() error {
			_, err := w.rig.tasks.ReportProgress(ctx, &pb.ReportProgressRequest{TaskExecutionId: w.id, Progress: 0.5})
			return err
		},
		func() error {
			_, err := w.rig.tasks.StreamTaskData(ctx, &pb.StreamTaskDataRequest{TaskExecutionId: w.id, Type: 1, Payload: `{"type":"token","text":"a"}`})
			return err
		},
		func() error {
			_, err := w.rig.tasks.Heartbeat(ctx, &pb.HeartbeatRequest{TaskExecutionId: w.id})
			return err
		},
	}
	for _, call := range calls {
		w.before()
		if err := call(); status.Code(err) == codes.FailedPrecondition {
			return false // the worker has lost the task
		} else if err != nil {
			w.t.Fatal(err)
		}
	}
	return w.end()
}

// end reports how the attempt ended. It reports whether the task has completed.
func (w *taskWalk) end() bool {
	w.t.Helper()
	w.before()
	var err error
	if !w.failed {
		_, err = w.rig.tasks.FailTask(w.ctx(), &pb.FailTaskRequest{TaskExecutionId: w.id, Error: "once"})
		w.failed = err == nil
	} else {
		_, err = w.rig.tasks.CompleteTask(w.ctx(), &pb.CompleteTaskRequest{TaskExecutionId: w.id, Output: []byte("7")})
		if err == nil {
			return true
		}
	}
	w.tolerate(err)
	return false
}

// runClient makes the calls of a client, over gRPC and over HTTP: each of them takes effect once.
func (d *driver) runClient() {
	d.t.Helper()
	with := func() *pb.SignalWithStartWorkflowResponse {
		d.before()
		reply, err := d.flows.SignalWithStartWorkflow(d.ctx(), &pb.SignalWithStartWorkflowRequest{
			OrgId: orgID, WorkflowId: "walk", WorkflowKind: "walk", Queue: d.queue, SignalName: "s", SignalValue: []byte("1"),
		})
		d.must(err)
		return reply
	}
	first, second := with(), with()
	d.flow = first.GetWorkflowExecutionId()
	if !first.GetWorkflowCreated() || second.GetWorkflowCreated() || second.GetWorkflowExecutionId() != d.flow || second.GetSignalEventSequence() != 3 {
		d.t.Fatalf("the first signal is answered with %v, the second with %v", first, second)
	}
	d.until(func(log string) bool { return strings.Contains(log, "PROMISE_CREATED") },
		cmdPromise("p", nil), cmdTask(d.tasks[0], "walk", "1", nil), cmdChild(d.child, "c", "walk", "1"), cmdSuspend("a client"))

	promise, _ := d.event(d.flow, "PROMISE_CREATED")["promiseId"].(string)
	d.before()
	_, err := d.flows.RejectPromise(d.ctx(), &pb.RejectPromiseRequest{PromiseId: promise, Error: "no"})
	d.must(err)
	d.before()
	_, err = d.flows.ResolvePromise(d.ctx(), &pb.ResolvePromiseRequest{PromiseId: promise, Value: []byte("1")})
	d.must(err) // no error, although the promise already has an outcome

	// The task and the child exist a moment after their workflow has asked for them.
	err = status.Error(codes.NotFound, "")
	for d.before(); status.Code(err) == codes.NotFound; {
		_, err = d.rig.tasks.CancelTask(d.ctx(), &pb.CancelTaskRequest{TaskExecutionId: d.tasks[0]})
	}
	d.must(err)
	code, body := http.StatusNotFound, map[string]any(nil)
	for d.before(); code == http.StatusNotFound; {
		code, body = d.as(userKey).request("POST", "/api/orgs/acme/workflow-executions/"+d.child+"/cancel", `{"reason":"enough"}`)
	}
	if code != http.StatusOK {
		d.t.Errorf("cancel the child: %d %v", code, body)
	}
	d.until(func(log string) bool {
		return strings.Contains(log, "TASK_FAILED") && strings.Contains(log, "CHILD_WORKFLOW_FAILED")
	})
	d.finishClient()
}

// finishClient cancels the workflow over HTTP and looks at its log.
func (d *driver) finishClient() {
	d.t.Helper()
	at := "/api/orgs/acme/workflow-executions/" + d.flow
	d.before()
	if code, body := d.as(userKey).request("POST", at+"/signal", `{"signalName":"s","signalValue":2}`); code != http.StatusOK && code != http.StatusCreated {
		d.t.Errorf("signal: %d %v", code, body)
	}
	for _, want := range []string{"CANCELLED", "ALREADY_TERMINAL"} {
		d.before()
		if code, body := d.as(userKey).request("POST", at+"/cancel", `{"reason":"enough"}`); code != http.StatusOK || body["status"] != want {
			d.t.Errorf("cancel: %d %v, want the status %s", code, body, want)
		}
	}

	d.before()
	log := strings.Join(d.events(d.flow), "\n")
	for event, want := range map[string]int{
		"WORKFLOW_STARTED": 1, "SIGNAL_RECEIVED": 3, "PROMISE_CREATED": 1, "PROMISE_REJECTED": 1, "PROMISE_RESOLVED": 0, "TASK_SCHEDULED": 1, "TASK_FAILED": 1,
		"CHILD_WORKFLOW_INITIATED": 1, "CHILD_WORKFLOW_FAILED": 1, "WORKFLOW_CANCELLED": 1,
	} {
		if n := strings.Count("\n"+log, "\n"+event+" "); n != want {
			d.t.Errorf("the log has %d events %s, want %d:\n%s", n, event, want, log)
		}
	}
}

// until takes activations of the workflow until done accepts its log. The worker submits the
// commands until the log has them.
func (d *driver) until(done func(log string) bool, commands ...*pb.WorkflowCommand) {
	d.t.Helper()
	for {
		d.before()
		log := d.types(d.flow)
		if done(log) {
			return
		}
		d.before()
		reply, err := d.flows.PollWorkflow(d.ctx(), &pb.PollRequest{OrgId: orgID, Queue: d.queue, TimeoutSeconds: 1})
		d.must(err)
		x := reply.GetWorkflowExecution()
		if x == nil {
			continue
		}
		d.before()
		if x.GetId() == d.child {
			d.tolerate(d.trySubmit(d.child, suspended, cmdSuspend("waits")))
			continue
		}
		d.tolerate(d.trySubmit(d.flow, suspended, commands...))
	}
}
