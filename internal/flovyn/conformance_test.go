package flovyn_test

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	pb "github.com/perdure/perdure/api/flovyn/v1"
	"github.com/perdure/perdure/internal/pgtest"
)

// stores are the stores that a suite runs on: all, or one in short mode.
func stores(inShort string) map[string]func(*testing.T) string {
	all := map[string]func(*testing.T) string{
		"sqlite":   func(t *testing.T) string { return "file:" + filepath.Join(t.TempDir(), "flovyn.db") },
		"postgres": func(t *testing.T) string { return pgtest.URL(t) },
	}
	if testing.Short() {
		return map[string]func(*testing.T) string{inShort: all[inShort]}
	}
	return all
}

// TestConformance runs every part of the protocol on one server per store.
func TestConformance(t *testing.T) {
	t.Parallel()
	for name, url := range stores("postgres") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := serve(t, url(t))
			for name, part := range map[string]func(*rig){
				"log": partLog, "retries": partRetries, "promises": partPromises, "children": partChildren, "signals": partSignals, "timers": partTimers,
				"keys": partKeys, "taskdata": partTaskData, "news": partNews, "refusals": partRefusals, "workers": partWorkers, "rest": partREST, "older": partOlder,
				"streams": partStreams, "others": partOthers, "dropped": partDropped, "commands": partCommands, "traps": partTraps, "agents": partAgents,
				"hostile": partHostile, "ending": partEnding, "verbs": partVerbs, "tokens": partTokens,
			} {
				t.Run(name, func(t *testing.T) {
					own := *r
					own.t, own.queue = t, r.queue+"-"+name
					part(&own)
				})
			}
			t.Run("coverage", func(t *testing.T) {
				own := *r
				own.t = t
				checkCoverage(&own)
			})
		})
	}
}

// The event log of a run has exactly the expected bytes.
func partLog(r *rig) {
	const input = `{"n":12345678901234567890,"f":1.10,"s":"<&>"}`
	id, task := r.start("demo", input), uuid.NewString()
	x := r.poll()
	if x.GetId() != id || x.GetKind() != "demo" || x.GetOrgId() != orgID || string(x.GetInput()) != input || x.GetQueue() != r.queue || x.GetWorkflowTaskTimeMillis() <= 0 {
		r.t.Errorf("the activation is %v", x)
	}
	r.submit(id, suspended, cmdSet("phase", `{"step":1}`), cmdOperation("compute", "100"), cmdTask(task, "echo", `{"n":1.0}`, nil), cmdClear("phase"),
		&pb.WorkflowCommand{}, cmdSuspend("waits"))
	got := r.pollTask()
	if got.GetTaskExecutionId() != task || got.GetWorkflowExecutionId() != id || string(got.GetInput()) != `{"n":1.0}` || got.GetExecutionCount() != 1 {
		r.t.Errorf("the task is %v", got)
	}
	r.nothing()
	r.complete(task, `{"n":1.0}`)
	r.poll()
	r.submit(id, completed, cmdComplete(`{"ok":true}`))

	want := []string{
		`WORKFLOW_STARTED {"input":` + input + `,"kind":"demo"}`,
		`STATE_SET {"key":"phase","value":{"step":1}}`,
		`OPERATION_COMPLETED {"operationName":"compute","result":100}`,
		`TASK_SCHEDULED {"taskExecutionId":"` + task + `","kind":"echo","taskType":"echo","input":{"n":1.0},"queue":"` + r.queue + `","maxRetries":3}`,
		`STATE_CLEARED {"key":"phase"}`,
		`WORKFLOW_SUSPENDED {"reason":"waits"}`,
		`TASK_COMPLETED {"taskExecutionId":"` + task + `","output":{"n":1.0}}`,
		`WORKFLOW_COMPLETED {"output":{"ok":true}}`,
	}
	if got := r.events(id); strings.Join(got, "\n") != strings.Join(want, "\n") {
		r.t.Errorf("the log is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}

	// Late calls change nothing.
	_, err := r.tasks.CompleteTask(r.ctx(), &pb.CompleteTaskRequest{TaskExecutionId: task, Output: []byte("2")})
	r.code(err, codes.FailedPrecondition, "a second completion")
	r.code(r.trySubmit(id, completed, cmdComplete("2")), codes.FailedPrecondition, "a second end")
	if got := r.types(id); strings.Count(got, "TASK_COMPLETED") != 1 || strings.Count(got, "WORKFLOW_COMPLETED") != 1 {
		r.t.Errorf("late calls changed the log: %s", got)
	}
}

// A task fails on every allowed attempt, and its workflow gets one failure.
func partRetries(r *rig) {
	id := r.start("demo", "null")
	r.poll()
	one, final := int32(1), uuid.NewString()
	task := uuid.NewString()
	r.submit(id, suspended, cmdTask(task, "bad", "null", func(c *pb.ScheduleTaskCommand) { c.MaxRetries = &one }), cmdTask(final, "final", "null", nil))

	for range 3 {
		got := r.pollTask()
		text := fmt.Sprintf("boom %d", got.GetExecutionCount())
		if got.GetKind() == "final" {
			text = "Non-retryable error: never"
		}
		_, err := r.tasks.FailTask(r.ctx(), &pb.FailTaskRequest{TaskExecutionId: got.GetTaskExecutionId(), Error: text})
		r.must(err)
	}

	r.poll()
	if n := strings.Count(r.types(id), "TASK_FAILED"); n < 1 {
		r.t.Errorf("%d failures in %s", n, r.types(id))
	}
	r.submit(id, failed, cmdFail("XYZ-123: <gone>"))

	log := strings.Join(r.events(id), "\n")
	for _, want := range []string{
		`TASK_FAILED {"taskExecutionId":"` + task + `","error":"boom 2","retryable":false}`,
		`"error":"Non-retryable error: never"`,
		`WORKFLOW_EXECUTION_FAILED {"error":"XYZ-123: <gone>","stackTrace":"","failureType":"ERROR"}`,
	} {
		if !strings.Contains(log, want) {
			r.t.Errorf("the log lacks %s:\n%s", want, log)
		}
	}
}

// Promises are resolved and rejected by their ids, or time out. The first outcome wins.
func partPromises(r *rig) {
	id := r.start("demo", "null")
	r.poll()
	soon := int64(1)
	r.submit(id, suspended, cmdPromise("a", nil), cmdPromise("b", nil), cmdPromise("c", func(c *pb.CreatePromiseCommand) { c.TimeoutMs = &soon }), cmdPromise("a", nil))
	ids := map[string]string{}
	for _, line := range r.events(id) {
		if strings.HasPrefix(line, "PROMISE_CREATED") {
			name := strings.Split(line, `"promiseName":"`)[1][:1]
			if ids[name] == "" {
				ids[name] = strings.Split(line, `"promiseId":"`)[1][:36]
			}
		}
	}

	_, err := r.flows.ResolvePromise(r.ctx(), &pb.ResolvePromiseRequest{PromiseId: ids["a"], Value: []byte(`{"v":1}`)})
	r.must(err)
	_, err = r.flows.RejectPromise(r.ctx(), &pb.RejectPromiseRequest{PromiseId: ids["a"], Error: "too late"})
	r.must(err)
	_, err = r.flows.RejectPromise(r.ctx(), &pb.RejectPromiseRequest{PromiseId: ids["b"], Error: "no <b>"})
	r.must(err)
	_, err = r.flows.ResolvePromise(r.ctx(), &pb.ResolvePromiseRequest{PromiseId: uuid.NewString()})
	r.code(err, codes.NotFound, "an unknown promise")
	_, err = r.as(otherKey).flows.ResolvePromise(r.as(otherKey).ctx(), &pb.ResolvePromiseRequest{PromiseId: ids["c"]})
	r.code(err, codes.NotFound, "a promise of another organization")

	for n := 0; !strings.Contains(r.types(id), "PROMISE_TIMEOUT"); n++ {
		r.poll()
		r.submit(id, suspended)
	}
	log := strings.Join(r.events(id), "\n")
	for _, want := range []string{
		`PROMISE_RESOLVED {"promiseId":"` + ids["a"] + `","promiseName":"a","value":{"v":1}}`,
		`PROMISE_REJECTED {"promiseId":"` + ids["b"] + `","promiseName":"b","error":"no <b>"}`,
		`PROMISE_TIMEOUT {"promiseId":"` + ids["c"] + `","promiseName":"c"}`,
	} {
		if strings.Count(log, want) != 1 {
			r.t.Errorf("the log lacks %s:\n%s", want, log)
		}
	}
	if strings.Contains(log, "too late") {
		r.t.Error("the second outcome of a promise is in the log")
	}
}

// A child has the queue of its parent. The parent gets the outcome under the name of the child.
func partChildren(r *rig) {
	id, good, bad, gone := r.start("parent", "null"), uuid.NewString(), uuid.NewString(), uuid.NewString()
	r.poll()
	r.submit(id, suspended, cmdChild(good, "good", "child", `{"n":1}`), cmdChild(bad, "bad", "child", "null"), cmdChild(gone, "gone", "child", "null"))

	for left := 3; left > 0; {
		switch x := r.poll(); x.GetId() {
		case good:
			r.submit(good, completed, cmdComplete("42"))
			left--
		case bad:
			r.submit(bad, failed, cmdFail("no"))
			left--
		case gone:
			r.submit(gone, suspended)
			left--
		case id: // the outcome of a child has arrived
			r.submit(id, suspended)
		}
	}

	for !strings.Contains(r.types(id), "CHILD_WORKFLOW_COMPLETED") || !strings.Contains(r.types(id), "CHILD_WORKFLOW_FAILED") {
		r.poll()
		r.submit(id, suspended)
	}

	_, err := r.flows.SignalWorkflow(r.ctx(), &pb.SignalWorkflowRequest{OrgId: orgID, WorkflowExecutionId: id, SignalName: "s"})
	r.must(err)
	r.poll()
	r.submit(id, suspended, &pb.WorkflowCommand{CommandData: &pb.WorkflowCommand_RequestCancelChildWorkflow{
		RequestCancelChildWorkflow: &pb.RequestCancelChildWorkflowCommand{ChildWorkflowExecutionId: gone, Reason: "enough"},
	}})

	for strings.Count(r.types(id), "CHILD_WORKFLOW_FAILED") < 2 {
		r.poll()
		r.submit(id, suspended)
	}

	log := strings.Join(r.events(id), "\n")
	for _, want := range []string{
		`CHILD_WORKFLOW_INITIATED {"childExecutionName":"good","childExecutionId":"` + good + `","childWorkflowKind":"child","workflowKind":"child","input":{"n":1}}`,
		`CHILD_WORKFLOW_COMPLETED {"childExecutionName":"good","childExecutionId":"` + good + `","output":42}`,
		`CHILD_WORKFLOW_FAILED {"childExecutionName":"bad","childExecutionId":"` + bad + `","childworkflowExecutionId":"` + bad + `","error":"no"}`,
		`CHILD_WORKFLOW_FAILED {"childExecutionName":"gone"`,
	} {
		if !strings.Contains(log, want) {
			r.t.Errorf("the log lacks %s:\n%s", want, log)
		}
	}

	if !strings.HasSuffix(r.types(gone), "WORKFLOW_CANCELLED") {
		r.t.Errorf("the cancelled child: %s", r.types(gone))
	}
}

// Signals come in order, wake the run, and can start it.
func partSignals(r *rig) {
	signal := func(id, name, value string) (int64, error) {
		reply, err := r.flows.SignalWorkflow(r.ctx(), &pb.SignalWorkflowRequest{OrgId: orgID, WorkflowExecutionId: id, SignalName: name, SignalValue: []byte(value)})
		return reply.GetSignalEventSequence(), err
	}
	key := "order " + uuid.NewString()
	with := func(value string) *pb.SignalWithStartWorkflowResponse {
		reply, err := r.flows.SignalWithStartWorkflow(r.ctx(), &pb.SignalWithStartWorkflowRequest{
			OrgId: orgID, WorkflowId: key, WorkflowKind: "demo", WorkflowInput: []byte(value), Queue: r.queue, SignalName: "go", SignalValue: []byte(value),
		})
		r.must(err)
		return reply
	}

	// Concurrent calls create one execution, and every signal arrives.
	var wg sync.WaitGroup
	replies := make([]*pb.SignalWithStartWorkflowResponse, 8)
	for i := range replies {
		wg.Go(func() { replies[i] = with(fmt.Sprint(i)) })
	}
	wg.Wait()
	created := 0
	id := replies[0].GetWorkflowExecutionId()
	for _, reply := range replies {
		if reply.GetWorkflowCreated() {
			created++
		}
		if reply.GetWorkflowExecutionId() != id || reply.GetSignalEventSequence() <= 1 {
			r.t.Errorf("a call answers %v", reply)
		}
	}
	if got := r.types(id); created != 1 || got != "WORKFLOW_STARTED"+strings.Repeat(" SIGNAL_RECEIVED", len(replies)) {
		r.t.Errorf("%d calls created %d executions: %s", len(replies), created, got)
	}

	r.poll()
	n, err := signal(id, "more", `{"a":[1]}`) // while a worker has the run
	if err != nil || n != int64(len(replies)+2) {
		r.t.Errorf("the signal has the number %d, %v", n, err)
	}
	r.submit(id, suspended, cmdSuspend("waits"))
	r.poll()
	if got := r.event(id, "SIGNAL_RECEIVED"); got["signalName"] != "more" {
		r.t.Errorf("the last signal is %v", got)
	}
	r.submit(id, completed, cmdComplete("1"))
	if _, err := signal(id, "late", "1"); err != nil {
		r.t.Errorf("a signal to a run that has just completed: %v", err)
	}
	if reply := with("9"); !reply.GetWorkflowCreated() || reply.GetWorkflowExecutionId() == id {
		r.t.Errorf("after the end of the run: %v", reply)
	}
	_, err = signal(uuid.NewString(), "go", "1")
	r.code(err, codes.NotFound, "an unknown execution")
	_, err = signal("nonsense", "go", "1")
	r.code(err, codes.InvalidArgument, "no id")
}

// Timers fire once and can be cancelled. A timer without a duration fires immediately.
func partTimers(r *rig) {
	id := r.start("demo", "null")
	r.poll()
	r.submit(id, suspended, cmdTimer("sleep-1", 0), cmdTimer("sleep-2", 3_600_000), cmdTimer("sleep-2", 1))
	r.poll()
	if got := r.event(id, "TIMER_FIRED"); got["timerId"] != "sleep-1" {
		r.t.Errorf("the timer is %v", got)
	}
	r.submit(id, suspended, cmdCancelTimer("sleep-2"), cmdCancelTimer("sleep-1"), cmdCancelTimer("unknown"))
	if got := r.types(id); got != "WORKFLOW_STARTED TIMER_STARTED TIMER_STARTED TIMER_FIRED TIMER_CANCELLED" {
		r.t.Errorf("the log is %s", got)
	}
	r.nothing()
}

// There is one execution per idempotency key. A key is free again after its execution has failed,
// and after the key has expired.
func partKeys(r *rig) {
	start := func(key string, ttl *int64) *pb.StartWorkflowResponse {
		reply, err := r.flows.StartWorkflow(r.ctx(), &pb.StartWorkflowRequest{
			OrgId: orgID, WorkflowKind: "demo", Queue: r.queue, IdempotencyKey: &key, IdempotencyKeyTtlSeconds: ttl, Input: []byte(`"` + uuid.NewString() + `"`),
		})
		r.must(err)
		return reply
	}
	key := uuid.NewString()
	var wg sync.WaitGroup
	replies := make([]*pb.StartWorkflowResponse, 6)
	for i := range replies {
		wg.Go(func() { replies[i] = start(key, nil) })
	}
	wg.Wait()
	fresh := 0
	for _, reply := range replies {
		if reply.GetIdempotencyKeyNew() {
			fresh++
		}
		if reply.GetWorkflowExecutionId() != replies[0].GetWorkflowExecutionId() || !reply.GetIdempotencyKeyUsed() {
			r.t.Errorf("a start answers %v", reply)
		}
	}
	if fresh != 1 {
		r.t.Errorf("%d starts were new", fresh)
	}

	id := replies[0].GetWorkflowExecutionId()
	r.poll()
	r.submit(id, failed, cmdFail("no"))
	again := start(key, nil)
	if !again.GetIdempotencyKeyNew() || again.GetWorkflowExecutionId() == id {
		r.t.Errorf("after a failure: %v", again)
	}
	r.poll()
	r.submit(again.GetWorkflowExecutionId(), completed, cmdComplete("1"))
	if reply := start(key, nil); reply.GetWorkflowExecutionId() != again.GetWorkflowExecutionId() || reply.GetIdempotencyKeyNew() {
		r.t.Errorf("after a completion: %v", reply)
	}
	wrong := int64(-1)
	_, err := r.flows.StartWorkflow(r.ctx(), &pb.StartWorkflowRequest{OrgId: orgID, WorkflowKind: "demo", Queue: r.queue, IdempotencyKey: &key, IdempotencyKeyTtlSeconds: &wrong})
	r.code(err, codes.InvalidArgument, "a key that is kept for no time")

	// A task with the key of another task gets the outcome of that task.
	flow := r.start("demo", "null")
	r.poll()
	keyed := func(c *pb.ScheduleTaskCommand) { k := "task " + key; c.IdempotencyKey = &k }
	first, second := uuid.NewString(), uuid.NewString()
	r.submit(flow, suspended, cmdTask(first, "work", "1", keyed))
	r.complete(r.pollTask().GetTaskExecutionId(), `"done"`)
	r.poll()
	r.submit(flow, suspended, cmdTask(second, "work", "2", keyed))
	r.poll()
	if got := r.event(flow, "TASK_COMPLETED"); got["taskExecutionId"] != second || got["output"] != "done" {
		r.t.Errorf("the task with the same key: %v", got)
	}

	// Standalone tasks.
	submit := func() *pb.SubmitTaskResponse {
		k := "alone " + key
		reply, err := r.tasks.SubmitTask(r.ctx(), &pb.SubmitTaskRequest{OrgId: orgID, Kind: "alone", Input: []byte("1"), Queue: r.queue, IdempotencyKey: &k, Metadata: map[string]string{"a": "b"}})
		r.must(err)
		return reply
	}
	a, b := submit(), submit()
	if !a.GetIdempotencyKeyNew() || b.GetIdempotencyKeyNew() || a.GetTaskExecutionId() != b.GetTaskExecutionId() {
		r.t.Errorf("two submissions: %v, %v", a, b)
	}
	if got := r.pollTask(); got.GetTaskExecutionId() != a.GetTaskExecutionId() || got.GetWorkflowExecutionId() != "" || string(got.GetInput()) != "1" {
		r.t.Errorf("the task is %v", got)
	}
}

// A task has a state, logs, progress and a stream.
func partTaskData(r *rig) {
	reply, err := r.tasks.SubmitTask(r.ctx(), &pb.SubmitTaskRequest{OrgId: orgID, Kind: "data", Queue: r.queue, MaxRetries: 1})
	r.must(err)
	id := reply.GetTaskExecutionId()
	_, err = r.tasks.SetState(r.ctx(), &pb.SetStateRequest{TaskExecutionId: id, Key: "a", Value: []byte("1")})
	r.code(err, codes.FailedPrecondition, "a state of a task that does not run")
	r.pollTask()
	for _, key := range []string{"a", "b"} {
		_, err = r.tasks.SetState(r.ctx(), &pb.SetStateRequest{TaskExecutionId: id, Key: key, Value: []byte(`{"k":1.0}`)})
		r.must(err)
	}
	_, err = r.tasks.ClearState(r.ctx(), &pb.ClearStateRequest{TaskExecutionId: id, Key: "b"})
	r.must(err)
	_, err = r.tasks.ReportProgress(r.ctx(), &pb.ReportProgressRequest{TaskExecutionId: id, Progress: 0.5, Details: "half"})
	r.must(err)
	_, err = r.tasks.ReportProgress(r.ctx(), &pb.ReportProgressRequest{TaskExecutionId: id, Progress: math.NaN()})
	r.code(err, codes.InvalidArgument, "a progress that is not a number")
	_, err = r.tasks.LogMessage(r.ctx(), &pb.LogMessageRequest{TaskExecutionId: id, Level: "WARN", Message: "careful"})
	r.must(err)
	_, err = r.tasks.Heartbeat(r.ctx(), &pb.HeartbeatRequest{TaskExecutionId: id})
	r.must(err)
	for kind := pb.StreamEventType_STREAM_EVENT_TYPE_TOKEN; kind <= pb.StreamEventType_STREAM_EVENT_TYPE_ERROR; kind++ {
		ack, err := r.tasks.StreamTaskData(r.ctx(), &pb.StreamTaskDataRequest{TaskExecutionId: id, Type: kind, Payload: `{"type":"token"}`})
		r.must(err)
		if !ack.GetAcknowledged() {
			r.t.Error("a stream event is not acknowledged")
		}
	}
	_, err = r.tasks.StreamTaskData(r.ctx(), &pb.StreamTaskDataRequest{TaskExecutionId: id, Payload: "{}"})
	r.code(err, codes.InvalidArgument, "a stream event without a type")

	// The state survives a failed attempt.
	_, err = r.tasks.FailTask(r.ctx(), &pb.FailTaskRequest{TaskExecutionId: id, Error: "once"})
	r.must(err)
	if got := r.pollTask(); got.GetExecutionCount() != 2 {
		r.t.Errorf("the second attempt is %v", got)
	}
	state, err := r.tasks.GetState(r.ctx(), &pb.GetStateRequest{TaskExecutionId: id, Key: "a"})
	r.must(err)
	keys, err := r.tasks.GetStateKeys(r.ctx(), &pb.GetStateKeysRequest{TaskExecutionId: id})
	r.must(err)
	if !state.GetFound() || string(state.GetValue()) != `{"k":1.0}` || strings.Join(keys.GetKeys(), " ") != "a" {
		r.t.Errorf("state %v, keys %v", state, keys)
	}
	_, err = r.tasks.ClearAllState(r.ctx(), &pb.ClearAllStateRequest{TaskExecutionId: id})
	r.must(err)
	r.complete(id, "1")
	if state, err = r.tasks.GetState(r.ctx(), &pb.GetStateRequest{TaskExecutionId: id, Key: "a"}); err != nil || state.GetFound() {
		r.t.Errorf("a cleared state: %v, %v", state, err)
	}

	// The server drops log lines and data of a task that has ended, without an error.
	_, err = r.tasks.LogMessage(r.ctx(), &pb.LogMessageRequest{TaskExecutionId: id, Message: "late"})
	r.must(err)
	_, err = r.tasks.StreamTaskData(r.ctx(), &pb.StreamTaskDataRequest{TaskExecutionId: id, Type: 1, Payload: "{}"})
	r.must(err)
	if code, logs := r.request("GET", "/api/orgs/acme/task-executions/"+id+"/logs", ""); code != http.StatusOK || !strings.Contains(fmt.Sprint(logs), "careful") {
		r.t.Errorf("the logs: %d %v", code, logs)
	}

	// A task that is cancelled while a worker has it ends immediately.
	reply, err = r.tasks.SubmitTask(r.ctx(), &pb.SubmitTaskRequest{OrgId: orgID, Kind: "data", Queue: r.queue})
	r.must(err)
	r.pollTask()
	_, err = r.tasks.CancelTask(r.ctx(), &pb.CancelTaskRequest{TaskExecutionId: reply.GetTaskExecutionId()})
	r.must(err)
	_, err = r.tasks.CompleteTask(r.ctx(), &pb.CompleteTaskRequest{TaskExecutionId: reply.GetTaskExecutionId()})
	r.code(err, codes.FailedPrecondition, "a completion after the cancellation")
	_, err = r.tasks.CancelTask(r.ctx(), &pb.CancelTaskRequest{TaskExecutionId: reply.GetTaskExecutionId()})
	r.code(err, codes.FailedPrecondition, "a second cancellation")
}

// Results that arrive while a worker has the run are not lost. Only results wake a run.
func partNews(r *rig) {
	id := r.start("fan", "null")
	r.poll()
	var commands []*pb.WorkflowCommand
	for range 10 {
		commands = append(commands, cmdTask(uuid.NewString(), "part", "null", nil))
	}
	r.submit(id, suspended, append(commands, cmdSuspend("waits"))...)
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() { r.complete(r.pollTask().GetTaskExecutionId(), "1") })
	}
	wg.Go(func() {
		for strings.Count(r.types(id), "TASK_COMPLETED") < 10 {
			r.poll()
			r.submit(id, suspended, cmdSuspend("waits"))
		}
	})
	wg.Wait()
	r.submitIfAny(id)
	r.nothing()

	// A poll whose client has left does not get a run.
	id = r.start("left", "null")
	for range 50 {
		ctx, cancel := context.WithTimeout(r.ctx(), time.Duration(time.Now().UnixNano()%int64(3*time.Millisecond)))
		reply, err := r.flows.PollWorkflow(ctx, &pb.PollRequest{OrgId: orgID, Queue: r.queue, TimeoutSeconds: 30})
		cancel()
		if err == nil && reply.GetWorkflowExecution() != nil {
			r.submit(id, suspended)
			_, err := r.flows.SignalWorkflow(r.ctx(), &pb.SignalWorkflowRequest{OrgId: orgID, WorkflowExecutionId: id, SignalName: "s"})
			r.must(err)
		}
	}
	if x := r.poll(); x.GetId() != id {
		r.t.Errorf("execution %s is handed out", x.GetId())
	}
	r.submit(id, completed, cmdComplete("1"))
}

// submitIfAny answers one further activation, if there is one.
func (r *rig) submitIfAny(id string) {
	r.t.Helper()
	for {
		reply, err := r.flows.PollWorkflow(r.ctx(), &pb.PollRequest{OrgId: orgID, Queue: r.queue})
		r.must(err)
		if reply.GetWorkflowExecution() == nil {
			return
		}
		r.submit(id, suspended)
	}
}

// Malformed requests, foreign ids and keys get the status that the contract names.
func partRefusals(r *rig) {
	id := r.start("demo", "null")
	_, err := r.flows.StartWorkflow(metadata.AppendToOutgoingContext(r.t.Context(), "authorization", "Bearer nonsense"), &pb.StartWorkflowRequest{OrgId: orgID, WorkflowKind: "x"})
	r.code(err, codes.Unauthenticated, "an unknown key")
	_, err = r.flows.StartWorkflow(r.t.Context(), &pb.StartWorkflowRequest{OrgId: orgID, WorkflowKind: "x"})
	r.code(err, codes.Unauthenticated, "no key")
	_, err = r.flows.StartWorkflow(r.ctx(), &pb.StartWorkflowRequest{OrgId: otherOrg, WorkflowKind: "x"})
	r.code(err, codes.PermissionDenied, "another organization")
	_, err = r.flows.PollWorkflow(r.ctx(), &pb.PollRequest{OrgId: otherOrg, Queue: r.queue})
	r.code(err, codes.PermissionDenied, "a poll of another organization")
	_, err = r.flows.StartWorkflow(r.ctx(), &pb.StartWorkflowRequest{OrgId: orgID})
	r.code(err, codes.InvalidArgument, "no kind")
	_, err = r.flows.StartWorkflow(r.ctx(), &pb.StartWorkflowRequest{OrgId: orgID, WorkflowKind: "x", Input: make([]byte, 3<<20)})
	r.code(err, codes.InvalidArgument, "a large input")
	_, err = r.as(otherKey).flows.GetEvents(r.as(otherKey).ctx(), &pb.GetEventsRequest{WorkflowExecutionId: id})
	r.code(err, codes.NotFound, "an execution of another organization")
	_, err = r.flows.GetEvents(r.ctx(), &pb.GetEventsRequest{WorkflowExecutionId: uuid.NewString()})
	r.code(err, codes.NotFound, "an unknown execution")
	r.code(r.trySubmit(id, completed), codes.FailedPrecondition, "a submission that no worker may make")
	r.code(r.trySubmit(uuid.NewString(), completed), codes.NotFound, "a submission to an unknown execution")
	_, err = r.tasks.CompleteTask(r.ctx(), &pb.CompleteTaskRequest{TaskExecutionId: uuid.NewString()})
	r.code(err, codes.NotFound, "an unknown task")
	_, err = r.query.QueryWorkflow(r.ctx(), &pb.QueryWorkflowRequest{WorkflowExecutionId: id})
	r.code(err, codes.Unimplemented, "a query")
	_, err = r.flows.StartChildWorkflow(r.ctx(), &pb.StartChildWorkflowRequest{})
	r.code(err, codes.Unimplemented, "a child by call")
	_, err = r.flows.GetVisualWorkflowDefinitionById(r.ctx(), &pb.GetVisualWorkflowDefinitionByIdRequest{})
	r.code(err, codes.Unimplemented, "a visual definition")
	err = r.conn.Invoke(r.ctx(), "/flovyn.v1.AgentDispatch/PollAgent", &pb.PollRequest{}, &pb.PollResponse{})
	r.code(err, codes.Unimplemented, "agents")
	spans, err := r.flows.ReportExecutionSpans(r.ctx(), &pb.ReportExecutionSpansRequest{Spans: []*pb.ExecutionSpan{{SpanId: "1"}}})
	if err != nil || spans.GetAcceptedCount() != 1 {
		r.t.Errorf("spans: %v, %v", spans, err)
	}

	// A submission with a command that cannot be applied changes nothing, and the run is handed out
	// again.
	r.poll()
	r.code(r.trySubmit(id, suspended, cmdSet("a", "1"), cmdTask("nonsense", "x", "1", nil)), codes.InvalidArgument, "a task without an id")
	if got := r.types(id); got != "WORKFLOW_STARTED" {
		r.t.Errorf("half of a submission is in the log: %s", got)
	}
	if x := r.poll(); x.GetId() != id {
		r.t.Errorf("execution %s is handed out", x.GetId())
	}
	r.submit(id, completed)
	if got := r.types(id); got != "WORKFLOW_STARTED WORKFLOW_COMPLETED" {
		r.t.Errorf("the log is %s", got)
	}
}

// Workers keep their ids, no matter what else they register.
func partWorkers(r *rig) {
	register := func(rig *rig, org, name string) *pb.WorkerRegistrationResponse {
		reply, err := rig.life.RegisterWorker(rig.ctx(), &pb.WorkerRegistrationRequest{OrgId: org, WorkerName: name, WorkerType: "UNIFIED", Workflows: []*pb.WorkflowCapability{{Kind: "a"}}})
		r.must(err)
		return reply
	}
	a, b, c, d := register(r, orgID, "one"), register(r, orgID, "one"), register(r, orgID, "two"), register(r.as(otherKey), otherOrg, "one")
	if !a.GetSuccess() || a.GetWorkerId() != b.GetWorkerId() || a.GetWorkerId() == c.GetWorkerId() || a.GetWorkerId() == d.GetWorkerId() {
		r.t.Errorf("registrations: %v, %v, %v, %v", a, b, c, d)
	}
	_, err := r.life.SendHeartbeat(r.ctx(), &pb.WorkerHeartbeatRequest{WorkerId: a.GetWorkerId()})
	r.must(err)
	_, err = r.life.SendHeartbeat(r.ctx(), &pb.WorkerHeartbeatRequest{WorkerId: d.GetWorkerId()})
	r.code(err, codes.NotFound, "a worker of another organization")
	if code, body := r.request("GET", "/api/orgs/acme/workers/"+a.GetWorkerId(), ""); code != http.StatusOK || body["workerName"] != "one" {
		r.t.Errorf("the worker: %d %v", code, body)
	}

	if code, body := r.request("GET", "/api/orgs/acme/workflow-definitions", ""); code != http.StatusOK || !strings.Contains(fmt.Sprint(body), "kind:a ") {
		r.t.Errorf("the definitions: %d %v", code, body)
	}
	if code, body := r.request("GET", "/api/orgs/acme/workflow-definitions/a", ""); code != http.StatusOK || len(body["workerIds"].([]any)) != 2 {
		r.t.Errorf("the definition: %d %v", code, body)
	}
	if code, _ := r.request("GET", "/api/orgs/acme/task-definitions/a", ""); code != http.StatusNotFound {
		r.t.Errorf("the definition of no task: %d", code)
	}

	// The server notifies a subscriber of work.
	ctx, cancel := context.WithCancel(r.ctx())
	defer cancel()
	stream, err := r.flows.SubscribeToNotifications(ctx, &pb.SubscriptionRequest{OrgId: orgID, Queue: r.queue})
	r.must(err)
	id := r.start("demo", "null")
	event, err := stream.Recv()
	if err != nil || event.GetQueue() != r.queue || event.GetOrgId() != orgID {
		r.t.Errorf("the notification is %v, %v", event, err)
	}
	r.poll()
	r.submit(id, completed)
}

// All requests of the HTTP contract work.
func partREST(r *rig) {
	if code, body := r.as("").request("GET", "/_/health", ""); code != http.StatusOK || body["status"] != "UP" {
		r.t.Errorf("health: %d %v", code, body)
	}
	if code, body := r.as("").request("GET", "/api/docs/openapi.json", ""); code != http.StatusOK || body["openapi"] != "3.1.0" {
		r.t.Errorf("the document: %d", code)
	}
	if code, body := r.as(adminKey).request("GET", "/api/orgs/acme", ""); code != http.StatusOK || body["name"] != "acme" {
		r.t.Errorf("the organization: %d %v", code, body)
	}
	if code, _ := r.as("").request("GET", "/api/orgs/acme/workflow-executions", ""); code != http.StatusUnauthorized {
		r.t.Errorf("without a key: %d", code)
	}
	u := r.as(userKey)
	if code, _ := u.request("GET", "/api/orgs/other/workflow-executions", ""); code != http.StatusForbidden {
		r.t.Errorf("another organization: %d", code)
	}

	code, started := u.request("POST", "/api/orgs/acme/workflow-executions", `{"kind":"rest","input":{"n":1},"queue":"`+r.queue+`","metadata":{"m":"1"},"idempotencyKey":"`+r.queue+`","idempotencyKeyTTL":"2h"}`)
	if code != http.StatusCreated || started["status"] != "PENDING" {
		r.t.Fatalf("start: %d %v", code, started)
	}
	id, _ := started["workflowExecutionId"].(string)
	at := "/api/orgs/acme/workflow-executions/" + id
	if code, _ := u.request("POST", "/api/orgs/acme/workflow-executions", `{"kind":"rest","queue":"`+r.queue+`","idempotencyKey":"`+r.queue+`"}`); code != http.StatusOK {
		r.t.Errorf("a second start: %d", code)
	}
	r.poll()
	if code, body := u.request("GET", at, ""); code != http.StatusOK || body["status"] != "RUNNING" || body["workflowKind"] != "rest" || body["orgId"] != orgID {
		r.t.Errorf("the execution: %d %v", code, body)
	}
	key := "promise " + r.queue
	task, child := uuid.NewString(), uuid.NewString()
	r.submit(id, suspended, cmdSet("a", "1"), cmdPromise("p", func(c *pb.CreatePromiseCommand) { c.IdempotencyKey = &key }), cmdTask(task, "t", "1", nil), cmdChild(child, "c", "rest", "1"))
	if code, body := u.request("GET", at, ""); code != http.StatusOK || body["status"] != "WAITING" {
		r.t.Errorf("the execution: %d %v", code, body)
	}
	if code, body := u.request("POST", "/api/orgs/acme/promises/key:"+strings.ReplaceAll(key, " ", "%20")+"/resolve", `{"value":7}`); code != http.StatusOK || body["resolved"] != true {
		r.t.Errorf("resolve: %d %v", code, body)
	}
	if code, body := u.request("POST", "/api/orgs/acme/promises/id:"+r.event(id, "PROMISE_CREATED")["promiseId"].(string)+"/reject", `{"error":"x"}`); code != http.StatusOK || body["alreadyResolved"] != true {
		r.t.Errorf("reject: %d %v", code, body)
	}
	if code, body := u.request("POST", at+"/signal", `{"signalName":"s","signalValue":{"v":1}}`); code != http.StatusOK || body["signalEventSequence"].(float64) < 2 {
		r.t.Errorf("signal: %d %v", code, body)
	}
	if code, body := u.request("GET", at+"/events?sinceSequence=1", ""); code != http.StatusOK || body["events"].([]any)[0].(map[string]any)["eventType"] != "STATE_SET" {
		r.t.Errorf("events: %d %v", code, body)
	}
	// The task and the child are separate executions, which start after the turn.
	for path, want := range map[string]string{"/state": "a:1", "/tasks": task, "/children": child} {
		r.until(path+" has "+want, func() bool {
			code, body := u.request("GET", at+path, "")
			return code == http.StatusOK && strings.Contains(fmt.Sprint(body), want)
		})
	}
	if code, body := u.request("GET", "/api/orgs/acme/workflow-executions?kind=rest&limit=1", ""); code != http.StatusOK || len(body["workflows"].([]any)) != 1 || body["total"].(float64) < 2 {
		r.t.Errorf("list: %d %v", code, body)
	}
	if code, body := u.request("POST", at+"/cancel", `{"reason":"enough"}`); code != http.StatusOK || body["status"] != "CANCELLED" || body["cancelledChildren"].(float64) != 1 {
		r.t.Errorf("cancel: %d %v", code, body)
	}
	if code, body := u.request("POST", at+"/cancel", ""); code != http.StatusOK || body["status"] != "ALREADY_TERMINAL" {
		r.t.Errorf("a second cancel: %d %v", code, body)
	}
	if got := r.types(child); !strings.HasSuffix(got, "WORKFLOW_CANCELLED") {
		r.t.Errorf("the child: %s", got)
	}

	// Check a task without a workflow.
	code, created := u.request("POST", "/api/orgs/acme/task-executions", `{"kind":"alone","input":{"n":1},"queue":"nobody polls this","maxRetries":0}`)
	if code != http.StatusCreated || created["status"] != "PENDING" {
		r.t.Fatalf("a task: %d %v", code, created)
	}
	if code, _ := u.request("DELETE", "/api/orgs/acme/task-executions/"+created["id"].(string), ""); code != http.StatusNoContent {
		r.t.Errorf("delete: %d", code)
	}
	if code, body := u.request("GET", "/api/orgs/acme/task-executions/"+created["id"].(string), ""); code != http.StatusOK || body["status"] != "CANCELLED" {
		r.t.Errorf("the deleted task: %d %v", code, body)
	}

	// A failed execution continues after a retry.
	id = r.start("rest", "1")
	for r.poll().GetId() != id { // the queue may have an older run
	}
	r.submit(id, failed, cmdFail("no"))
	if code, body := u.request("POST", "/api/orgs/acme/workflow-executions/"+id+"/retry", `{}`); code != http.StatusOK {
		r.t.Errorf("retry: %d %v", code, body)
	}
	r.poll()
	r.submit(id, completed)
	if got := r.types(id); got != "WORKFLOW_STARTED WORKFLOW_COMPLETED" {
		r.t.Errorf("after the retry: %s", got)
	}
}
