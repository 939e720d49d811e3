package flovyn_test

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/google/uuid"

	pb "github.com/perdure/perdure/api/flovyn/v1"
)

// The older dialect has tenants and worker tokens over HTTP, and names in place of promise ids.
func partOlder(r *rig) {
	admin := r.as(adminKey)
	slug := "t-" + strings.ToLower(r.queue)
	code, org := admin.request("POST", "/api/tenants", `{"name":"T","slug":"`+slug+`","tier":"FREE","region":"eu"}`)
	if code != http.StatusCreated || org["id"] == nil {
		r.t.Fatalf("create: %d %v", code, org)
	}
	if code, _ := r.request("POST", "/api/tenants", `{"slug":"x"}`); code != http.StatusForbidden {
		r.t.Errorf("a key of a tenant creates a tenant: %d", code)
	}
	code, token := admin.request("POST", "/api/tenants/"+slug+"/worker-tokens", `{"displayName":"w"}`)
	if code != http.StatusCreated || !strings.HasPrefix(token["token"].(string), "fwt_") {
		r.t.Fatalf("a token: %d %v", code, token)
	}

	w := r.as(token["token"].(string))
	if code, body := w.request("POST", "/api/tenants/"+slug+"/worker-tokens", `{"displayName":"more"}`); code != http.StatusForbidden {
		r.t.Errorf("a worker creates a token: %d %v", code, body)
	}
	tenant := org["id"].(string)
	started, err := w.flows.StartWorkflow(w.ctx(), &pb.StartWorkflowRequest{OrgId: tenant, WorkflowKind: "old", Queue: "q"})
	r.must(err)
	id := started.GetWorkflowExecutionId()
	_, err = w.flows.PollWorkflow(w.ctx(), &pb.PollRequest{OrgId: tenant, Queue: "q", TimeoutSeconds: 30})
	r.must(err)
	w.submit(id, suspended, cmdPromise("approval", nil), cmdTask(uuid.NewString(), "t", "1", nil))
	if got := w.event(id, "PROMISE_CREATED"); got["promiseId"] != "approval" {
		r.t.Errorf("the promise is %v", got)
	}
	if got := w.event(id, "TASK_SCHEDULED"); got["taskType"] != "t" {
		r.t.Errorf("the task is %v", got)
	}
	_, err = w.flows.ResolvePromise(w.ctx(), &pb.ResolvePromiseRequest{PromiseId: id + ":approval", Value: []byte("true")})
	r.must(err)
	if got := w.event(id, "PROMISE_RESOLVED"); got["promiseId"] != "approval" || got["value"] != true {
		r.t.Errorf("the outcome is %v", got)
	}
	if code, body := w.request("GET", "/api/tenants/"+slug+"/workflow-executions/"+id, ""); code != http.StatusOK || body["kind"] != "old" {
		r.t.Errorf("the execution: %d %v", code, body)
	}
	w.counted(tenant)
}

// counted plays a worker with the native core of the older dialect. It counts the ids of tasks and
// children upwards from the id of the workflow, and starts again in each activation.
func (r *rig) counted(tenant string) {
	const queue = "counted"
	started, err := r.flows.StartWorkflow(r.ctx(), &pb.StartWorkflowRequest{OrgId: tenant, WorkflowKind: "old", Queue: queue})
	r.must(err)
	id := started.GetWorkflowExecutionId()
	next := func(n byte) string {
		u := uuid.MustParse(id)
		for i := 15; i >= 0 && n > 0; i-- {
			before := u[i]
			u[i] += n
			n = 0
			if u[i] < before {
				n = 1
			}
		}
		return u.String()
	}
	poll := func() string {
		got, err := r.flows.PollWorkflow(r.ctx(), &pb.PollRequest{OrgId: tenant, Queue: queue, TimeoutSeconds: 30})
		r.must(err)
		return got.GetWorkflowExecution().GetId()
	}

	// take takes activations until the log has n events of a type.
	take := func(event string, n int) {
		for poll(); strings.Count(r.types(id), event) < n; poll() {
			r.submit(id, suspended)
		}
	}

	// The workflow asks for one task, then for two tasks at the same time, then for two children
	// one after the other.
	take("WORKFLOW_STARTED", 1)
	done := 0
	for _, ids := range [][]string{{next(0)}, {next(0), next(1)}} {
		var commands []*pb.WorkflowCommand
		for _, task := range ids {
			commands = append(commands, cmdTask(task, "add", "1", nil))
		}
		r.submit(id, suspended, commands...)
		for range ids {
			got, err := r.tasks.PollTask(r.ctx(), &pb.PollTaskRequest{OrgId: tenant, Queue: queue, TimeoutSeconds: 30})
			r.must(err)
			r.complete(got.GetTask().GetTaskExecutionId(), "1")
		}
		done += len(ids)
		take("TASK_COMPLETED", done)
	}
	for n := range 2 {
		r.submit(id, suspended, cmdChild(next(0), fmt.Sprint("c", n), "old", "1"))
		child := poll()
		r.submit(child, completed, cmdComplete("1"))
		take("CHILD_WORKFLOW_COMPLETED", n+1)
		if got := r.event(id, "CHILD_WORKFLOW_COMPLETED"); got["childWorkflowExecutionId"] != child || got["childWorkflowExecutionName"] != fmt.Sprint("c", n) || child == id {
			r.t.Errorf("child %d is %s and ended with %v", n, child, got)
		}
	}
	r.submit(id, completed)

	seen := map[any]bool{}
	for _, line := range r.events(id) {
		if data, ok := strings.CutPrefix(line, "TASK_SCHEDULED "); ok {
			seen[data[:strings.Index(data, ",")]] = true
		}
	}
	if got := r.types(id); len(seen) != 3 || strings.Count(got, "TASK_COMPLETED") != 3 || strings.Count(got, "CHILD_WORKFLOW_INITIATED") != 2 {
		r.t.Errorf("the tasks are %v, the log is %s", seen, got)
	}
}
