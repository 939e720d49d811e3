package flovyn_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"

	pb "github.com/perdure/perdure/api/flovyn/v1"
)

// sse reads a stream to its end, or until it has n events. It returns the events and their ids.
func (r *rig) sse(path, last string, n int) (events, ids []string) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.server.Addr().String()+path, http.NoBody)
	r.must(err)
	req.Header.Set("Authorization", "Bearer "+r.key)
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	reply, err := http.DefaultClient.Do(req)
	r.must(err)
	r.cover.noteRequest(http.MethodGet, path, reply.StatusCode)
	defer reply.Body.Close()
	if got := reply.Header.Get("Content-Type"); reply.StatusCode != http.StatusOK || got != "text/event-stream" {
		r.t.Fatalf("the stream: %d %s", reply.StatusCode, got)
	}

	lines := bufio.NewScanner(reply.Body)
	kind := ""
	for len(events) < n && lines.Scan() {
		line := lines.Text()
		if id, ok := strings.CutPrefix(line, "id: "); ok {
			ids = append(ids, id)
		}
		if name, ok := strings.CutPrefix(line, "event: "); ok {
			kind = name
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			events = append(events, kind+" "+data)
		}
	}
	return events, ids
}

// A client reads streams of tasks and workflows from the beginning, and from the place where it has
// stopped.
func partStreams(r *rig) {
	id, task, child, grandtask := r.start("parent", "1"), uuid.NewString(), uuid.NewString(), uuid.NewString()
	r.poll()
	r.submit(id, suspended, cmdTask(task, "t", "1", nil), cmdChild(child, "c", "child", "1"))
	say := func(task string) {
		r.pollTask()
		for i := range 3 {
			_, err := r.tasks.StreamTaskData(r.ctx(), &pb.StreamTaskDataRequest{
				TaskExecutionId: task, Sequence: int32(i), Type: pb.StreamEventType_STREAM_EVENT_TYPE_TOKEN, Payload: fmt.Sprintf(`{"type":"token","text":"%d"}`, i),
			})
			r.must(err)
		}
		r.complete(task, "1")
	}
	say(task)
	for range 2 { // the child, and the parent with the result of its task
		if x := r.poll(); x.GetId() == child {
			r.submit(child, suspended, cmdTask(grandtask, "t", "1", nil))
		} else {
			r.submit(id, suspended)
		}
	}
	say(grandtask)
	for open := map[string]bool{id: true, child: true}; len(open) > 0; {
		x := r.poll()
		switch log := r.types(x.GetId()); {
		case x.GetId() == child, strings.Contains(log, "CHILD_WORKFLOW_COMPLETED"):
			r.submit(x.GetId(), completed)
			delete(open, x.GetId())
		default:
			r.submit(id, suspended)
		}
	}

	const tokens = `token {"type":"token","text":"0"} token {"type":"token","text":"1"} token {"type":"token","text":"2"}`
	events, ids := r.sse("/api/orgs/acme/task-executions/"+task+"/stream", "", 100)
	if got := strings.Join(events, " "); got != tokens || ids[0] != "1" {
		r.t.Errorf("the stream of the task: %s, ids %v", got, ids)
	}
	events, _ = r.sse("/api/orgs/acme/task-executions/"+task+"/stream", ids[1], 100)
	if got := strings.Join(events, " "); got != `token {"type":"token","text":"2"}` {
		r.t.Errorf("the rest of the stream of the task: %s", got)
	}

	for path, want := range map[string]int{"/stream": 3, "/stream/consolidated": 6} {
		at := "/api/orgs/acme/workflow-executions/" + id + path
		all, ids := r.sse(at, "", 100)
		text := strings.Join(all, "\n")
		if n := strings.Count(text, "token {"); n != want {
			r.t.Errorf("%s has %d tokens, want %d:\n%s", path, n, want, text)
		}

		for _, word := range []string{"WORKFLOW_STARTED", "TASK_CREATED", "TASK_COMPLETED", "WORKFLOW_COMPLETED"} {
			if !strings.Contains(text, `data {"type":"Event","event":"`+word+`"`) {
				r.t.Errorf("%s has no %s:\n%s", path, word, text)
			}
		}

		// The second connection continues where the first one has stopped. Together they receive
		// every event once.
		for cut := 1; cut < len(ids); cut += 3 {
			first, ids := r.sse(at, "", cut)
			rest, _ := r.sse(at, ids[len(ids)-1], 100)
			if got := len(first) + len(rest); got != len(all) {
				r.t.Errorf("%s in two parts after %d has %d events, want %d", path, cut, got, len(all))
			}
		}
	}
	if code, _ := r.request("GET", "/api/orgs/acme/task-executions/"+uuid.NewString()+"/stream", ""); code != http.StatusNotFound {
		r.t.Errorf("the stream of no task: %d", code)
	}
}

// A caller cannot see anything of another organization.
func partOthers(r *rig) {
	id, task := r.start("mine", "1"), uuid.NewString()
	r.poll()
	r.submit(id, suspended, cmdTask(task, "t", "1", nil), cmdPromise("p", nil))
	promise, _ := r.event(id, "PROMISE_CREATED")["promiseId"].(string)
	r.pollTask()
	worker, err := r.life.RegisterWorker(r.ctx(), &pb.WorkerRegistrationRequest{OrgId: orgID, WorkerName: "mine"})
	r.must(err)

	o := r.as(otherKey)
	for what, call := range map[string]func() error{
		"GetEvents": func() error {
			_, err := o.flows.GetEvents(o.ctx(), &pb.GetEventsRequest{WorkflowExecutionId: id})
			return err
		},
		"SubmitWorkflowCommands": func() error { return o.trySubmit(id, completed) },
		"SignalWorkflow": func() error {
			_, err := o.flows.SignalWorkflow(o.ctx(), &pb.SignalWorkflowRequest{OrgId: otherOrg, WorkflowExecutionId: id, SignalName: "s"})
			return err
		},
		"ResolvePromise": func() error {
			_, err := o.flows.ResolvePromise(o.ctx(), &pb.ResolvePromiseRequest{PromiseId: promise})
			return err
		},
		"RejectPromise by name": func() error {
			_, err := o.flows.RejectPromise(o.ctx(), &pb.RejectPromiseRequest{PromiseId: id + ":p"})
			return err
		},
		"CompleteTask": func() error {
			_, err := o.tasks.CompleteTask(o.ctx(), &pb.CompleteTaskRequest{TaskExecutionId: task})
			return err
		},
		"FailTask": func() error {
			_, err := o.tasks.FailTask(o.ctx(), &pb.FailTaskRequest{TaskExecutionId: task})
			return err
		},
		"CancelTask": func() error {
			_, err := o.tasks.CancelTask(o.ctx(), &pb.CancelTaskRequest{TaskExecutionId: task})
			return err
		},
		"Heartbeat": func() error {
			_, err := o.tasks.Heartbeat(o.ctx(), &pb.HeartbeatRequest{TaskExecutionId: task})
			return err
		},
		"ReportProgress": func() error {
			_, err := o.tasks.ReportProgress(o.ctx(), &pb.ReportProgressRequest{TaskExecutionId: task})
			return err
		},
		"LogMessage": func() error {
			_, err := o.tasks.LogMessage(o.ctx(), &pb.LogMessageRequest{TaskExecutionId: task})
			return err
		},
		"StreamTaskData": func() error {
			_, err := o.tasks.StreamTaskData(o.ctx(), &pb.StreamTaskDataRequest{TaskExecutionId: task, Type: 1})
			return err
		},
		"GetState": func() error {
			_, err := o.tasks.GetState(o.ctx(), &pb.GetStateRequest{TaskExecutionId: task})
			return err
		},
		"GetStateKeys": func() error {
			_, err := o.tasks.GetStateKeys(o.ctx(), &pb.GetStateKeysRequest{TaskExecutionId: task})
			return err
		},
		"SetState": func() error {
			_, err := o.tasks.SetState(o.ctx(), &pb.SetStateRequest{TaskExecutionId: task, Key: "k"})
			return err
		},
		"ClearState": func() error {
			_, err := o.tasks.ClearState(o.ctx(), &pb.ClearStateRequest{TaskExecutionId: task, Key: "k"})
			return err
		},
		"SendHeartbeat": func() error {
			_, err := o.life.SendHeartbeat(o.ctx(), &pb.WorkerHeartbeatRequest{WorkerId: worker.GetWorkerId()})
			return err
		},
		"ClearAllState": func() error {
			_, err := o.tasks.ClearAllState(o.ctx(), &pb.ClearAllStateRequest{TaskExecutionId: task})
			return err
		},
	} {
		r.code(call(), codes.NotFound, what+" of another organization")
	}
	for _, path := range []string{
		"GET /workflow-executions/" + id, "GET /workflow-executions/" + id + "/events", "GET /workflow-executions/" + id + "/stream",
		"GET /workflow-executions/" + id + "/stream/consolidated", "GET /workflow-executions/" + id + "/tasks", "GET /workflow-executions/" + id + "/state",
		"POST /workflow-executions/" + id + "/cancel", "POST /workflow-executions/" + id + "/signal",
		"POST /promises/id:" + promise + "/resolve", "GET /task-executions/" + task, "DELETE /task-executions/" + task, "GET /task-executions/" + task + "/stream",
		"GET /task-executions/" + task + "/logs", "GET /task-executions/" + task + "/attempts",
	} {
		method, path, _ := strings.Cut(path, " ")
		if code, body := o.request(method, "/api/orgs/other"+path, `{"signalName":"s"}`); code != http.StatusNotFound {
			r.t.Errorf("%s %s in another organization: %d %v", method, path, code, body)
		}
		if code, body := o.request(method, "/api/orgs/acme"+path, `{"signalName":"s"}`); code != http.StatusForbidden {
			r.t.Errorf("%s %s with the key of another organization: %d %v", method, path, code, body)
		}
	}
	r.complete(task, "1")
	if got := r.types(id); strings.Contains(got, "SIGNAL") || strings.Contains(got, "RESOLVED") || strings.Contains(got, "REJECTED") {
		r.t.Errorf("another organization has changed the log: %s", got)
	}
}

// Clients drop polls at any moment, and no activation is lost.
func partDropped(r *rig) {
	const flows = 20
	drops := 1000
	if testing.Short() {
		drops = 200
	}
	open := map[string]bool{}
	for range flows {
		open[r.start("dropped", "1")] = true
	}
	var droppers sync.WaitGroup
	for range 4 {
		droppers.Go(func() {
			for range drops / 4 {
				ctx, cancel := context.WithTimeout(r.ctx(), time.Duration(rand.Int64N(int64(2*time.Millisecond))))
				_, _ = r.flows.PollWorkflow(ctx, &pb.PollRequest{WorkerId: "drops", OrgId: orgID, Queue: r.queue, TimeoutSeconds: 30})
				cancel()
			}
		})
	}
	droppers.Wait()

	// If a reply was under way when the client left, its work comes back after the time
	// Unconfirmed.
	for len(open) > 0 {
		x := r.poll()
		if !open[x.GetId()] {
			r.t.Fatalf("execution %s is handed out again", x.GetId())
		}
		r.types(x.GetId())
		r.submit(x.GetId(), completed)
		delete(open, x.GetId())
	}
	r.nothing()
}
