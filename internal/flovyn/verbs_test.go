package flovyn_test

import (
	"slices"
	"strings"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"

	pb "github.com/perdure/perdure/api/flovyn/v1"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
)

// native is the engine of the server, in the way in which the commands of perdure use it.
type native struct {
	*rig

	api.Backend
}

// flow is an execution as the engine knows it.
func (n *native) flow(id string) api.Target {
	return api.Target{Address: model.Address{Tenant: "acme", Type: "flovyn:" + n.queue, Key: id}}
}

// reasons returns why an execution does not continue.
func (n *native) reasons(id string) string {
	n.t.Helper()
	info, err := n.Describe(n.t.Context(), n.flow(id))
	n.must(err)
	var codes []string
	for _, r := range info.Reasons {
		codes = append(codes, string(r.Code)+":"+r.Name)
	}
	return strings.Join(codes, " ")
}

// refuses checks that a verb is refused with a reason.
func (n *native) refuses(err error, what, reason string) {
	n.t.Helper()
	if err == nil || !strings.Contains(err.Error(), reason) {
		n.t.Errorf("%s: %v, want a refusal that says %q", what, err, reason)
	}
}

// Every verb of perdure works on Flovyn executions, or is refused with a reason.
func partVerbs(r *rig) {
	n := &native{rig: r, Backend: r.server.Node().Backend()}
	n.watchVerbs()
	n.talkVerbs()
	n.endVerbs()
	n.pastVerbs()
	n.deadVerbs()
	n.misfits()
}

// watchVerbs checks list, count, explain, history, state, and the queues.
func (n *native) watchVerbs() {
	ctx := n.t.Context()
	id := n.start("visible", `{"n":1}`)
	if got := n.reasons(id); got == "" {
		n.t.Error("an execution without a worker has no reason")
	}
	n.poll()
	elsewhere := n.queue + "-elsewhere"
	n.submit(id, suspended, cmdSet("phase", `{"step":1}`), cmdTimer("sleep-1", 3_600_000), cmdPromise("approval", nil),
		cmdTask(uuid.NewString(), "work", "1", func(c *pb.ScheduleTaskCommand) { c.Queue = &elsewhere }))

	list := api.ListRequest{Tenant: "acme", Labels: []model.LabelCondition{{Name: "kind", Values: []string{"visible"}}}}
	page, err := n.List(ctx, list)
	n.must(err)
	if !slices.ContainsFunc(page.Executions, func(x api.Description) bool { return x.Start.Address == n.flow(id).Address }) {
		n.t.Errorf("the list of the kind has %d executions, and not %s", len(page.Executions), id)
	}
	if count, err := n.Count(ctx, list); err != nil || count != int64(len(page.Executions)) {
		n.t.Errorf("the count is %d, %v", count, err)
	}

	for got := n.reasons(id); !strings.Contains(got, "approval") || !strings.Contains(got, "sleep-1") || !strings.Contains(got, "work"); got = n.reasons(id) {
		if n.t.Context().Err() != nil {
			n.t.Fatalf("the reasons are %s", got)
		}
	}
	if p, ok, err := n.State(ctx, n.flow(id), "phase"); err != nil || !ok || string(p.Data) != `{"step":1}` {
		n.t.Errorf("the state is %s, %v, %v", p.Data, ok, err)
	}
	history, err := n.History(ctx, api.HistoryRequest{Target: n.flow(id), After: -1})
	if err != nil || len(history.Events) < 5 {
		n.t.Errorf("the history has %d events, %v", len(history.Events), err)
	}
	// The task and its queue exist a moment after the submission.
	for listed := false; !listed; {
		queues, err := n.ListQueues(ctx, "acme")
		n.must(err)
		listed = slices.ContainsFunc(queues.Queues, func(q api.QueueInfo) bool { return q.Name == "flovyn:"+elsewhere })
	}
	n.must(n.Terminate(ctx, api.CancelRequest{Target: n.flow(id), Reason: "seen"}))
}

// talkVerbs checks signal, resolve, reject, query, update, pause and resume.
func (n *native) talkVerbs() {
	ctx := n.t.Context()
	id := n.start("talks", "null")
	n.poll()
	n.submit(id, suspended, cmdPromise("a", nil), cmdPromise("b", nil))
	n.must(n.Signal(ctx, api.SignalRequest{Target: n.flow(id), Name: "go", Input: model.Payload{Data: []byte(`{"v":1}`)}}))
	n.poll()
	if got := n.event(id, "SIGNAL_RECEIVED"); got["signalName"] != "go" {
		n.t.Errorf("the signal is %v", got)
	}
	n.submit(id, suspended)

	// An operator settles a promise by its name, or by its id.
	n.must(n.Settle(ctx, api.SettleRequest{Target: n.flow(id), Name: "a", Value: model.Payload{Data: []byte("7")}}))
	n.poll()
	if got := n.event(id, "PROMISE_RESOLVED"); got["promiseName"] != "a" || got["value"] != 7.0 {
		n.t.Errorf("the promise is %v", got)
	}
	n.submit(id, suspended)
	b, _ := n.event(id, "PROMISE_CREATED")["promiseId"].(string)
	n.must(n.Settle(ctx, api.SettleRequest{Target: n.flow(id), Name: b, Failure: &model.Failure{Message: "no"}}))
	n.poll()
	if got := n.event(id, "PROMISE_REJECTED"); got["promiseName"] != "b" || got["error"] != "no" {
		n.t.Errorf("the promise is %v", got)
	}
	n.submit(id, suspended)

	_, err := n.Query(ctx, api.QueryRequest{Target: n.flow(id), Name: "q"})
	n.refuses(err, "a query", "answer no queries")
	_, err = n.Update(ctx, api.UpdateRequest{Target: n.flow(id), Name: "u"})
	n.refuses(err, "an update", "answer no updates")

	n.must(n.Pause(ctx, api.CancelRequest{Target: n.flow(id), Reason: "wait"}))
	n.must(n.Signal(ctx, api.SignalRequest{Target: n.flow(id), Name: "go"}))
	n.nothing()
	if got := n.reasons(id); !strings.Contains(got, string(model.WaitPaused)) {
		n.t.Errorf("the reasons of a paused execution are %s", got)
	}
	n.must(n.Resume(ctx, api.CancelRequest{Target: n.flow(id)}))
	if x := n.poll(); x.GetId() != id {
		n.t.Errorf("execution %s is handed out", x.GetId())
	}
	n.submit(id, completed)
}

// endVerbs checks cancel and terminate, for an execution that waits and for one that a worker has.
func (n *native) endVerbs() {
	ctx := n.t.Context()
	for what, end := range map[string]func(api.CancelRequest) error{
		"CANCELLATION_REQUESTED WORKFLOW_CANCELLED": func(c api.CancelRequest) error { return n.Cancel(ctx, c) },
		"WORKFLOW_CANCELLED":                        func(c api.CancelRequest) error { return n.Terminate(ctx, c) },
	} {
		id := n.start("ends", "null")
		n.poll()
		n.must(end(api.CancelRequest{Target: n.flow(id), Reason: "enough"}))
		_, err := n.Await(ctx, n.flow(id))
		n.must(err)
		n.code(n.trySubmit(id, suspended, cmdSet("a", "1")), codes.FailedPrecondition, "a submission after the end")
		if got := n.types(id); got != "WORKFLOW_STARTED "+what {
			n.t.Errorf("the log is %s", got)
		}
		if got := n.event(id, "WORKFLOW_CANCELLED"); got["reason"] != "enough" {
			n.t.Errorf("the end is %v", got)
		}
	}
	n.nothing()
}

// pastVerbs checks retry, reset, fork and delete.
func (n *native) pastVerbs() {
	ctx := n.t.Context()
	id := n.start("past", "null")
	n.poll()
	n.submit(id, suspended, cmdOperation("op", "1"))
	n.wake(id)
	n.submit(id, failed, cmdFail("no"))
	info, err := n.Describe(ctx, n.flow(id))
	n.must(err)
	source := n.flow(id)
	source.Run = info.Start.Run
	_, err = n.Retry(ctx, api.PastRequest{Source: source})
	n.must(err)
	n.poll()
	if got := n.types(id); !strings.Contains(got, "OPERATION_COMPLETED") || strings.Contains(got, "FAILED") {
		n.t.Errorf("after the retry the log is %s", got)
	}
	n.submit(id, completed, cmdComplete("2"))

	// A fork has a key of its own. The key must be a UUID, so that workers can read it.
	fork := uuid.NewString()
	info, err = n.Describe(ctx, n.flow(id))
	n.must(err)
	source.Run = info.Start.Run
	_, err = n.Fork(ctx, api.PastRequest{Source: source, Key: fork, After: 0, Placed: true})
	n.must(err)
	if x := n.poll(); x.GetId() != fork || x.GetKind() != "past" {
		n.t.Errorf("the fork is %v", x)
	}
	n.submit(fork, completed)

	_, err = n.Delete(ctx, api.DeleteRequest{Target: n.flow(id)})
	n.must(err)
	_, err = n.flows.GetEvents(n.ctx(), &pb.GetEventsRequest{WorkflowExecutionId: id})
	n.code(err, codes.NotFound, "a deleted execution")
}

// A task without further attempts is a dead task, which can be scheduled again under its id.
func (n *native) deadVerbs() {
	ctx := n.t.Context()
	id, task := n.start("dead", "null"), uuid.NewString()
	n.poll()
	n.submit(id, suspended, cmdTask(task, "dies", `{"n":1}`, nil))
	n.pollTask()
	_, err := n.rig.tasks.FailTask(n.ctx(), &pb.FailTaskRequest{TaskExecutionId: task, Error: "Non-retryable error: dead"})
	n.must(err)
	n.poll()
	n.submit(id, completed)

	page, err := n.ListDead(ctx, api.DeadRequest{Tenant: "acme", Activities: []string{"dies"}})
	n.must(err)
	i := slices.IndexFunc(page.Tasks, func(d api.DeadTask) bool { return d.Body.Address.Key == task })
	if i < 0 {
		n.t.Fatalf("the dead tasks are %v", page.Tasks)
	}
	reply, err := n.Requeue(ctx, api.RequeueRequest{ID: page.Tasks[i].ID})
	n.must(err)
	got := n.pollTask()
	if got.GetTaskExecutionId() != reply.Address.Key || got.GetTaskExecutionId() != task || string(got.GetInput()) != `{"n":1}` {
		n.t.Errorf("the requeued task is %v, want %s", got, reply.Address)
	}
	n.complete(task, "1")
}

// Executions that other clients start for Flovyn workers, and that these workers cannot execute,
// fail with a reason.
func (n *native) misfits() {
	ctx := n.t.Context()
	for key, reason := range map[string]string{"no-uuid": "not a UUID", uuid.NewString(): "no kind"} {
		to := n.flow(key)
		_, err := n.Start(ctx, api.StartRequest{Address: to.Address, Input: model.Payload{Data: []byte("1")}})
		n.must(err)
		n.nothing()
		n.fails(to, "a workflow that was started without the protocol", reason)
	}

	to := api.Target{Address: model.Address{Tenant: "acme", Type: model.TaskPrefix + "t", Key: "no-uuid-" + n.queue}}
	_, err := n.Start(ctx, api.StartRequest{Address: to.Address, Task: &model.TaskSpec{Kind: "t", Queue: "flovyn:" + n.queue}})
	n.must(err)
	empty, err := n.rig.tasks.PollTask(n.ctx(), &pb.PollTaskRequest{OrgId: orgID, Queue: n.queue, TimeoutSeconds: 1})
	if err != nil || empty.GetTask() != nil {
		n.t.Errorf("a task with a key that is no UUID: %v, %v", empty, err)
	}
	n.fails(to, "a task that was submitted without the protocol", "not a UUID")
}

// fails checks that an execution fails with a reason.
func (n *native) fails(to api.Target, what, reason string) {
	n.t.Helper()
	result, err := n.Await(n.t.Context(), to)
	n.must(err)
	if f := result.Outcome.Failure; f == nil || !strings.Contains(f.Message, reason) {
		n.t.Errorf("%s ended with %v, want a failure that says %q", what, result.Outcome, reason)
	}
}
