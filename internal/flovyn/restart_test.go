package flovyn_test

import (
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/perdure/perdure/api/flovyn/v1"
)

// driver is a worker that makes one call after the other. Before one of the calls the server ends,
// and another server takes its place.
type driver struct {
	*rig

	replace          func() // ends the server and starts another one
	kills            bool
	calls, replaceAt int
	flow, child      string
	tasks            [2]string
	finished         int // how many tasks it has finished
	signalled        bool
}

// before counts a call, and replaces the server before the chosen call.
func (d *driver) before() {
	if d.calls++; d.calls == d.replaceAt {
		d.replace()
	}
}

// newDriver returns a driver with a server of its own, which is closed and started again.
func newDriver(t *testing.T, url string) *driver {
	d := &driver{rig: serve(t, url)}
	d.replace = d.restart
	return d
}

// newKiller returns a driver with a server in a process of its own, which is killed.
func newKiller(t *testing.T, url string) *driver {
	t.Helper()
	listen := freeAddress(t)
	d := &driver{rig: &rig{t: t, queue: "walk", key: workerKey, addr: listen}, kills: true}
	kill := startVictim(t, url, listen)
	d.connect()
	d.replace = func() {
		d.must(d.conn.Close())
		kill()
		kill = startVictim(t, url, listen)
		d.connect()
	}
	t.Cleanup(func() {
		_ = d.conn.Close()
		kill()
	})
	return d
}

// TestServerEndsBetweenCalls ends the server before each call that a worker or a client makes, and
// starts another one on the same store. It does so once by closing the server and once by killing
// its process. The run ends with each of its steps in the log once, no matter what the worker
// loses. In short mode it leaves out two of three calls, not the same ones in all walks.
func TestServerEndsBetweenCalls(t *testing.T) {
	t.Parallel()
	stride := 1
	if testing.Short() {
		stride = 3
	}

	for store, url := range stores("sqlite") {
		for how, start := range map[string]func(*testing.T, string) *driver{"closed": newDriver, "killed": newKiller} {
			for what, walk := range map[string]func(*driver){"workflow": (*driver).run, "task": (*driver).runTask, "client": (*driver).runClient} {
				t.Run(store+"/"+how+"/"+what, func(t *testing.T) {
					t.Parallel()
					for at := 1 + (int(how[0])+int(what[0]))%stride; !t.Failed(); at += stride {
						calls := 0
						t.Run(fmt.Sprint("call ", at), func(t *testing.T) { //nolint:paralleltest // one walk after the other
							d := start(t, url(t))
							d.replaceAt, d.child, d.tasks = at, uuid.NewString(), [2]string{uuid.NewString(), uuid.NewString()}
							walk(d)
							calls = d.calls
						})
						if calls < at {
							return // there is no such call
						}
					}
				})
			}
		}
	}
}

// run starts a workflow and works until it has ended.
func (d *driver) run() {
	d.t.Helper()
	key := "once"
	for d.flow == "" {
		d.before()
		reply, err := d.flows.StartWorkflow(d.ctx(), &pb.StartWorkflowRequest{OrgId: orgID, WorkflowKind: "walk", Queue: d.queue, IdempotencyKey: &key})
		d.must(err)
		d.flow = reply.GetWorkflowExecutionId()
	}
	for d.work() || !d.activation() {
	}

	if got := d.types(d.child); got != "WORKFLOW_STARTED WORKFLOW_COMPLETED" {
		d.t.Errorf("the log of the child is %s", got)
	}
	log := strings.Join(d.events(d.flow), "\n")
	for i, task := range d.tasks {
		for _, event := range []string{"TASK_SCHEDULED", "TASK_COMPLETED"} {
			if n := strings.Count(log, event+` {"taskExecutionId":"`+task); n != 1 {
				d.t.Errorf("task %d has %d events %s", i, n, event)
			}
		}
	}
	for _, event := range []string{
		"TIMER_STARTED", "TIMER_FIRED", "PROMISE_CREATED", "PROMISE_RESOLVED", "OPERATION_COMPLETED", "STATE_SET",
		"CHILD_WORKFLOW_INITIATED", "CHILD_WORKFLOW_COMPLETED", "SIGNAL_RECEIVED", "WORKFLOW_COMPLETED",
	} {
		if n := strings.Count(log, "\n"+event); n != 1 {
			d.t.Errorf("the log has %d events %s:\n%s", n, event, log)
		}
	}
}

// activation takes an activation and does what the log asks for. It reports whether the run has
// ended.
func (d *driver) activation() bool {
	d.t.Helper()
	d.before()
	reply, err := d.flows.PollWorkflow(d.ctx(), &pb.PollRequest{OrgId: orgID, Queue: d.queue, TimeoutSeconds: 30})
	d.must(err)
	if reply.GetWorkflowExecution() == nil {
		d.t.Fatalf("there is no activation: %s", d.types(d.flow))
	}
	if id := reply.GetWorkflowExecution().GetId(); id == d.child {
		d.before()
		d.tolerate(d.trySubmit(d.child, completed, cmdComplete("1")))
		return false
	}
	d.before()
	log := d.types(d.flow)
	d.before()

	switch {
	case !strings.Contains(log, "TASK_SCHEDULED"):
		err = d.trySubmit(d.flow, suspended, cmdOperation("op", "1"), cmdSet("k", "1"), cmdTask(d.tasks[0], "a", "1", nil), cmdTimer("sleep-1", 1), cmdPromise("p", nil),
			cmdChild(d.child, "c", "walk", "1"), cmdSuspend("tasks"))
	case strings.Count(log, "TASK_SCHEDULED") == 1 && strings.Count(log, "TASK_COMPLETED") == 1:
		err = d.trySubmit(d.flow, suspended, cmdTask(d.tasks[1], "b", "1", nil), cmdSuspend("the second task"))
	case strings.Count(log, "TASK_COMPLETED") == 2 && strings.Contains(log, "TIMER_FIRED") && strings.Contains(log, "PROMISE_RESOLVED") &&
		strings.Contains(log, "CHILD_WORKFLOW_COMPLETED") && strings.Contains(log, "SIGNAL_RECEIVED"):
		err = d.trySubmit(d.flow, completed, cmdComplete("1"))
	default:
		err = d.trySubmit(d.flow, suspended, cmdSuspend("more"))
	}
	d.tolerate(err)
	return strings.HasSuffix(d.types(d.flow), " WORKFLOW_COMPLETED")
}

// tolerate accepts that the worker has lost the run.
func (d *driver) tolerate(err error) {
	d.t.Helper()
	if err != nil && status.Code(err) != codes.FailedPrecondition {
		d.t.Errorf("submit: %v", err)
	}
}

// If the run waits for a task or a promise, work executes the task or resolves the promise. It
// reports whether it did one of them.
func (d *driver) work() bool {
	d.t.Helper()
	log := d.types(d.flow)
	if strings.Count(log, "TASK_SCHEDULED") > d.finished {
		d.before()
		task := d.pollTask()
		d.before()
		_, err := d.rig.tasks.CompleteTask(d.ctx(), &pb.CompleteTaskRequest{TaskExecutionId: task.GetTaskExecutionId(), Output: []byte("1")})
		switch {
		case err == nil:
			d.finished++
		case status.Code(err) != codes.FailedPrecondition:
			// FailedPrecondition would mean that the worker has lost the task.
			d.t.Errorf("complete: %v", err)
		}
		if task.GetExecutionCount() > 1 && !d.kills {
			d.t.Errorf("a restart used up an attempt of task %s", task.GetKind())
		}
		return true
	}

	if strings.Contains(log, "PROMISE_CREATED") && !strings.Contains(log, "PROMISE_RESOLVED") {
		d.before()
		_, err := d.flows.ResolvePromise(d.ctx(), &pb.ResolvePromiseRequest{PromiseId: fmt.Sprint(d.event(d.flow, "PROMISE_CREATED")["promiseId"]), Value: []byte("1")})
		d.must(err)
		return true
	}
	if strings.Contains(log, "PROMISE_RESOLVED") && !d.signalled {
		d.before()
		_, err := d.flows.SignalWorkflow(d.ctx(), &pb.SignalWorkflowRequest{OrgId: orgID, WorkflowExecutionId: d.flow, SignalName: "s", SignalValue: []byte("1")})
		d.must(err)
		d.signalled = true
		return true
	}
	return false
}

// The description of an organization and its dialect survive a restart.
func TestOrganizationsSurviveRestart(t *testing.T) {
	t.Parallel()
	r := serve(t, "file:"+filepath.Join(t.TempDir(), "flovyn.db"))
	admin := r.as(adminKey)
	const body = `{"name":"Old <Org>","slug":"older-org","tier":"PRO","region":"eu-1"}`
	if code, got := admin.request("POST", "/api/tenants", body); code != http.StatusCreated || got["tier"] != "PRO" {
		t.Fatalf("create: %d %v", code, got)
	}
	if code, got := admin.request("POST", "/api/tenants", body); code != http.StatusConflict {
		t.Errorf("create again: %d %v", code, got)
	}
	code, key := admin.request("POST", "/api/orgs/older-org/worker-tokens", `{}`)
	if code != http.StatusCreated {
		t.Fatalf("a token: %d %v", code, key)
	}

	r.restart()
	admin = r.as(adminKey)
	code, got := admin.request("GET", "/api/orgs/older-org", "")
	if want := map[string]any{"id": got["id"], "slug": "older-org", "name": "Old <Org>", "tier": "PRO", "region": "eu-1"}; code != http.StatusOK || !maps.Equal(got, want) {
		t.Errorf("after the restart: %d %v, want %v", code, got, want)
	}

	// A caller with a key of the tenant that is not a worker token also speaks the dialect of the
	// tenant.
	plain := r.as(strings.TrimPrefix(fmt.Sprint(key["token"]), "fwt_"))
	started, err := plain.flows.StartWorkflow(plain.ctx(), &pb.StartWorkflowRequest{WorkflowKind: "old", Queue: "q"})
	r.must(err)
	_, err = plain.flows.PollWorkflow(plain.ctx(), &pb.PollRequest{Queue: "q", TimeoutSeconds: 30})
	r.must(err)
	plain.submit(started.GetWorkflowExecutionId(), suspended, cmdPromise("approval", nil))
	if got := plain.event(started.GetWorkflowExecutionId(), "PROMISE_CREATED"); got["promiseId"] != "approval" {
		t.Errorf("the promise is %v", got)
	}
	if code, got := admin.request("POST", "/api/orgs", `{"slug":"x","name":"`+strings.Repeat("x", 501)+`"}`); code != http.StatusBadRequest {
		t.Errorf("a long name: %d %v", code, got)
	}
	if code, got := admin.request("POST", "/api/orgs", `{"slug":"not a slug","name":"x"}`); code != http.StatusBadRequest {
		t.Errorf("a slug that is none: %d %v", code, got)
	}
}
