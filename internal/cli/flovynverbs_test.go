package cli_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/perdure/perdure/api/flovyn/v1"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/node"
	"github.com/perdure/perdure/internal/telemetry"
	"github.com/perdure/perdure/internal/telemetry/prom"
)

// flovynShop is a server, and a Flovyn application whose worker the test plays. The application has
// a queue of its own, so that all tests of verbs can share the server.
type flovynShop struct {
	*testing.T

	url, http string
	queue     string
	flows     pb.WorkflowDispatchClient
	tasks     pb.TaskExecutionClient
}

// openFlovyn starts a server.
func openFlovyn(t *testing.T) *flovynShop {
	t.Helper()
	registry, meter := prometheus.NewRegistry(), telemetry.New()
	unregister, err := prom.Register(registry, meter)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(unregister)
	s, err := node.Serve(t.Context(), node.ServerConfig{
		Listen: "127.0.0.1:0", Authenticator: authn.Open{Tenant: model.DefaultTenant}, Metrics: promhttp.HandlerFor(registry, promhttp.HandlerOpts{}),
		Node: node.Config{URL: "file:" + filepath.Join(t.TempDir(), "flovyn.db"), Meter: meter}, Reunion: time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.WithoutCancel(t.Context())) })

	conn, err := grpc.NewClient(s.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &flovynShop{
		T: t, url: "grpc://" + s.Addr().String(), http: "http://" + s.Addr().String(),
		flows: pb.NewWorkflowDispatchClient(conn), tasks: pb.NewTaskExecutionClient(conn),
	}
}

func (f *flovynShop) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// begin starts a workflow and returns its id.
func (f *flovynShop) begin() string {
	f.Helper()
	reply, err := f.flows.StartWorkflow(f.Context(), &pb.StartWorkflowRequest{WorkflowKind: "order", Input: []byte(`{"n":1}`), Queue: f.queue})
	f.must(err)
	return reply.GetWorkflowExecutionId()
}

// take takes the next activation, which must belong to the given execution.
func (f *flovynShop) take(id string) {
	f.Helper()
	reply, err := f.flows.PollWorkflow(f.Context(), &pb.PollRequest{WorkerId: "w", Queue: f.queue, TimeoutSeconds: 60})
	f.must(err)
	if got := reply.GetWorkflowExecution().GetId(); got != id {
		f.Fatalf("execution %q is handed out, want %s", got, id)
	}
}

// submit ends an activation.
func (f *flovynShop) submit(id string, status pb.WorkflowStatus, commands ...*pb.WorkflowCommand) {
	f.Helper()
	_, err := f.flows.SubmitWorkflowCommands(f.Context(), &pb.SubmitWorkflowCommandsRequest{WorkflowExecutionId: id, Status: status, Commands: commands})
	f.must(err)
}

// waiting starts a workflow and makes it record an operation and wait for a promise.
func (f *flovynShop) waiting() string {
	f.Helper()
	id := f.begin()
	f.take(id)
	f.submit(id, pb.WorkflowStatus_WORKFLOW_STATUS_SUSPENDED, &pb.WorkflowCommand{
		CommandType: pb.CommandType_COMMAND_TYPE_RECORD_OPERATION,
		CommandData: &pb.WorkflowCommand_RecordOperation{RecordOperation: &pb.RecordOperationCommand{OperationName: "charge", Result: []byte("7")}},
	}, &pb.WorkflowCommand{
		CommandType: pb.CommandType_COMMAND_TYPE_CREATE_PROMISE, CommandData: &pb.WorkflowCommand_CreatePromise{CreatePromise: &pb.CreatePromiseCommand{PromiseId: "approval"}},
	})
	return id
}

// fail ends an activation with a failure.
func (f *flovynShop) fail(id string) {
	f.Helper()
	f.submit(id, pb.WorkflowStatus_WORKFLOW_STATUS_FAILED, &pb.WorkflowCommand{
		CommandType: pb.CommandType_COMMAND_TYPE_FAIL_WORKFLOW, CommandData: &pb.WorkflowCommand_FailWorkflow{FailWorkflow: &pb.FailWorkflowCommand{Error: "sold out"}},
	})
}

// log returns the types of the events that the protocol shows.
func (f *flovynShop) log(id string) string {
	f.Helper()
	reply, err := f.flows.GetEvents(f.Context(), &pb.GetEventsRequest{WorkflowExecutionId: id})
	f.must(err)
	var types []string
	for _, e := range reply.GetEvents() {
		types = append(types, e.GetEventType())
	}
	return strings.Join(types, " ")
}

// logHas checks that the log has or lacks an event.
func (f *flovynShop) logHas(id, event string, want bool) {
	f.Helper()
	if got := f.log(id); slices.Contains(strings.Fields(got), event) != want {
		f.Errorf("the log is %s, has %s must be %v", got, event, want)
	}
}

// name is the execution on the command line.
func (f *flovynShop) name(id string) string { return "flovyn:" + f.queue + "/" + id }

// do runs a command that must succeed and print the wanted text.
func (f *flovynShop) do(want string, args ...string) string {
	f.Helper()
	out, complaints, code := perdureOn(f.T, f.url, args...)
	if code != 0 || !strings.Contains(out, want) {
		f.Fatalf("perdure %s: exit %d, %s%s\nwant %q", strings.Join(args, " "), code, out, complaints, want)
	}
	return out
}

// refused runs a command that must fail with a reason.
func (f *flovynShop) refused(want string, args ...string) {
	f.Helper()
	out, complaints, code := perdureOn(f.T, f.url, args...)
	if code == 0 || !strings.Contains(complaints, want) {
		f.Errorf("perdure %s: exit %d, %s%s\nwant a refusal that says %q", strings.Join(args, " "), code, out, complaints, want)
	}
}

// Every verb of the command line works on executions of Flovyn applications, or is refused with a
// reason.
func TestFlovynVerbs(t *testing.T) {
	t.Parallel()
	shop := openFlovyn(t)
	for name, test := range map[string]func(*flovynShop){
		"list": flovynList, "explain": flovynExplain, "show": flovynShow, "stranded": flovynStranded, "watch": flovynWatch, "signal": flovynSignal,
		"resolve": flovynResolve, "cancel": flovynCancel, "terminate": flovynTerminate, "pause": flovynPause, "retry": flovynRetry, "reset": flovynReset,
		"fork": flovynFork, "export": flovynExport, "delete": flovynDelete, "talk": flovynTalk, "dlq": flovynDead, "metrics": flovynMetrics,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			own := *shop
			own.T, own.queue = t, "team/"+name
			test(&own)
		})
	}
}

// list and count find executions by queue, kind and status.
func flovynList(f *flovynShop) {
	id := f.waiting()
	query := `workflow = "flovyn:team/list" and label.kind = "order" and status = "open"`
	f.do(f.name(id), "workflow", "list", "--query", query)
	f.do("1", "workflow", "count", "--query", query)
}

func flovynExplain(f *flovynShop) {
	id := f.waiting()
	// The server must first read the events of the last activation. Until then, it does not report
	// what the run waits for.
	for {
		if out := f.do("It waits", "workflow", "explain", f.name(id)); strings.Contains(out, "approval") {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	f.do("approval", "workflow", "describe", f.name(id))
}

// show prints the history, with the names that the application gave.
func flovynShow(f *flovynShop) {
	id := f.waiting()
	f.do("charge", "workflow", "show", f.name(id))
	f.do("approval", "workflow", "show", f.name(id), "-o", "json")
}

// An execution is stranded until a worker polls its queue.
func flovynStranded(f *flovynShop) {
	id := f.begin()
	f.do(id, "workflow", "stranded")
	f.take(id)
	if out := f.do("", "workflow", "stranded"); strings.Contains(out, id) {
		f.Errorf("an execution that a worker has is stranded:\n%s", out)
	}
	f.submit(id, pb.WorkflowStatus_WORKFLOW_STATUS_COMPLETED)
}

func flovynWatch(f *flovynShop) {
	id := f.waiting()
	list := watch(f.T, f.url, "workflow", "list", "--watch", "--workflow", "flovyn:team/watch")
	list.until(id, "running")
	one := watch(f.T, f.url, "workflow", "describe", f.name(id), "--watch")
	one.until("Status", "running")
	f.do("settled", "workflow", "resolve", f.name(id), "approval", "--input", "1")
	f.take(id)
	f.submit(id, pb.WorkflowStatus_WORKFLOW_STATUS_COMPLETED)
	list.until(id, "completed")
	one.until("Status", "completed")
	one.wantExit(0)
	list.stop()
	list.wantExit(0)
}

func flovynSignal(f *flovynShop) {
	id := f.waiting()
	f.do("signal sent", "workflow", "signal", f.name(id), "hurry", "--input", `{"by":"ann"}`)
	f.take(id)
	f.logHas(id, "SIGNAL_RECEIVED", true)
	f.submit(id, pb.WorkflowStatus_WORKFLOW_STATUS_COMPLETED)
	f.refused("closed", "workflow", "signal", f.name(id), "late")
}

func flovynResolve(f *flovynShop) {
	id := f.waiting()
	f.do("settled", "workflow", "reject", f.name(id), "approval", "--message", "no")
	f.take(id)
	f.logHas(id, "PROMISE_REJECTED", true)
	f.fail(id)
	f.refused("", "workflow", "resolve", f.name(id), "approval", "--input", "1")
}

// cancel ends an execution, whether a worker has it or not.
func flovynCancel(f *flovynShop) {
	for _, busy := range []bool{false, true} {
		id := f.waiting()
		if busy {
			f.do("", "workflow", "signal", f.name(id), "hurry")
			f.take(id)
		}
		f.do("", "workflow", "cancel", f.name(id), "--reason", "enough")
		f.until(id, "canceled")
		f.logHas(id, "WORKFLOW_CANCELLED", true)
	}
}

func flovynTerminate(f *flovynShop) {
	id := f.waiting()
	f.do("terminated", "workflow", "terminate", f.name(id), "--reason", "enough")
	f.until(id, "terminated")
	f.logHas(id, "WORKFLOW_CANCELLED", true)
}

func flovynPause(f *flovynShop) {
	id := f.waiting()
	f.do("paused", "workflow", "pause", f.name(id), "--reason", "stocktaking")
	f.do("stocktaking", "workflow", "explain", f.name(id))
	f.do("signal sent", "workflow", "signal", f.name(id), "hurry")
	reply, err := f.flows.PollWorkflow(f.Context(), &pb.PollRequest{WorkerId: "w", Queue: f.queue})
	if err != nil || reply.GetWorkflowExecution() != nil {
		f.Errorf("a paused execution is handed out: %v, %v", reply, err)
	}
	f.do("resumed", "workflow", "resume", f.name(id))
	f.take(id)
	f.submit(id, pb.WorkflowStatus_WORKFLOW_STATUS_COMPLETED)
}

// until waits until an execution has a status.
func (f *flovynShop) until(id, status string) {
	f.Helper()
	for {
		var got struct{ Status string }
		f.must(json.Unmarshal([]byte(f.do("", "workflow", "describe", f.name(id), "-o", "json")), &got))
		if got.Status == status {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// A failed execution continues from its last step, under its id.
func flovynRetry(f *flovynShop) {
	id := f.waiting()
	f.do("", "workflow", "signal", f.name(id), "hurry")
	f.take(id)
	f.fail(id)
	f.do("", "workflow", "retry", f.name(id))
	f.take(id)
	f.logHas(id, "OPERATION_COMPLETED", true)
	f.logHas(id, "WORKFLOW_EXECUTION_FAILED", false)
	f.submit(id, pb.WorkflowStatus_WORKFLOW_STATUS_COMPLETED)
}

// reset makes an execution start again, without the events after its start.
func flovynReset(f *flovynShop) {
	id := f.waiting()
	f.do("", "workflow", "reset", f.name(id), "--to", "0")
	f.take(id)
	if got := f.log(id); got != "WORKFLOW_STARTED" {
		f.Errorf("the log after the reset is %s", got)
	}
	f.submit(id, pb.WorkflowStatus_WORKFLOW_STATUS_COMPLETED)
}

// promise returns the id of the promise of an execution.
func (f *flovynShop) promise(id string) string {
	f.Helper()
	reply, err := f.flows.GetEvents(f.Context(), &pb.GetEventsRequest{WorkflowExecutionId: id})
	f.must(err)
	for _, e := range reply.GetEvents() {
		var data struct{ PromiseID string }
		if e.GetEventType() == "PROMISE_CREATED" {
			f.must(json.Unmarshal(e.GetEventData(), &data))
			return data.PromiseID
		}
	}
	f.Fatalf("%s has no promise", id)
	return ""
}

// A fork has a past, and promises of its own. A caller that settles a promise of the fork does not
// settle the promise of the source.
func flovynFork(f *flovynShop) {
	id, fork := f.waiting(), uuid.NewString()
	f.do("", "workflow", "fork", f.name(id), "--key", fork)
	_, err := f.flows.ResolvePromise(f.Context(), &pb.ResolvePromiseRequest{PromiseId: f.promise(fork), Value: []byte("1")})
	f.must(err)
	f.take(fork)
	f.logHas(fork, "OPERATION_COMPLETED", true)
	f.logHas(fork, "PROMISE_RESOLVED", true)
	f.logHas(id, "PROMISE_RESOLVED", false)
	f.submit(fork, pb.WorkflowStatus_WORKFLOW_STATUS_COMPLETED)
}

// An exported execution continues in another store.
func flovynExport(f *flovynShop) {
	id, again := f.waiting(), uuid.NewString()
	file := filepath.Join(f.TempDir(), "order.jsonl")
	f.do("", "workflow", "export", f.name(id), "-f", file)
	f.do("", "workflow", "import", "-f", file, "--key", again)
	f.do("settled", "workflow", "resolve", f.name(again), "approval", "--input", "1")
	f.take(again)
	f.logHas(again, "PROMISE_RESOLVED", true)
	f.logHas(id, "PROMISE_RESOLVED", false)
	f.submit(again, pb.WorkflowStatus_WORKFLOW_STATUS_COMPLETED)
}

func flovynDelete(f *flovynShop) {
	id := f.waiting()
	f.refused("it is running", "workflow", "delete", f.name(id), "--yes")
	f.do("", "workflow", "terminate", f.name(id))
	f.until(id, "terminated")
	f.do("deleted", "workflow", "delete", f.name(id), "--yes")
	if _, err := f.flows.GetEvents(f.Context(), &pb.GetEventsRequest{WorkflowExecutionId: id}); err == nil {
		f.Error("a deleted execution has events")
	}
}

// Requests that workers of Flovyn workflows cannot serve are refused with a reason.
func flovynTalk(f *flovynShop) {
	id := f.waiting()
	f.refused("answer no queries", "workflow", "query", f.name(id), "contents")
	f.refused("answer no updates", "workflow", "update", f.name(id), "add", "--input", "1")
	f.do("signal sent", "workflow", "signal", f.name(id), "hurry")
	var unread []struct{ ID string }
	f.must(json.Unmarshal([]byte(f.do("hurry", "workflow", "signals", f.name(id), "-o", "json")), &unread))
	f.take(id)
	f.submit(id, pb.WorkflowStatus_WORKFLOW_STATUS_SUSPENDED)
	for _, verb := range []string{"skip", "drop"} {
		f.refused("from its event log", "workflow", "signals", verb, f.name(id), unread[0].ID)
	}
	f.refused("not a UUID", "workflow", "start", "flovyn:"+f.queue, "--key", "mine", "--input", "1", "--wait")
}

// A task that failed permanently is a dead task, and can be requeued and purged.
func flovynDead(f *flovynShop) {
	for _, verb := range []string{"requeue", "purge"} {
		reply, err := f.tasks.SubmitTask(f.Context(), &pb.SubmitTaskRequest{Kind: "mail-" + verb, Input: []byte(`"ann"`), Queue: f.queue})
		f.must(err)
		f.takeTask(reply.GetTaskExecutionId())
		_, err = f.tasks.FailTask(f.Context(), &pb.FailTaskRequest{TaskExecutionId: reply.GetTaskExecutionId(), Error: "no such address"})
		f.must(err)

		var dead []struct{ ID string }
		for len(dead) == 0 {
			f.must(json.Unmarshal([]byte(f.do("", "dlq", "list", "--activity", "mail-"+verb, "-o", "json")), &dead))
		}
		f.do("no such address", "dlq", "show", dead[0].ID)
		if verb == "purge" {
			f.do("", "dlq", "purge", dead[0].ID, "--yes")
			continue
		}
		f.do("", "dlq", "requeue", dead[0].ID)
		f.takeTask(reply.GetTaskExecutionId())
		_, err = f.tasks.CompleteTask(f.Context(), &pb.CompleteTaskRequest{TaskExecutionId: reply.GetTaskExecutionId(), Output: []byte("1")})
		f.must(err)
	}
}

// takeTask takes the next task, which must have the given id.
func (f *flovynShop) takeTask(id string) {
	f.Helper()
	reply, err := f.tasks.PollTask(f.Context(), &pb.PollTaskRequest{WorkerId: "w", Queue: f.queue, TimeoutSeconds: 60})
	f.must(err)
	if got := reply.GetTask().GetTaskExecutionId(); got != id {
		f.Fatalf("task %q is handed out, want %s", got, id)
	}
}

// Metrics count runs by queue, and tasks by kind and queue.
func flovynMetrics(f *flovynShop) {
	id := f.waiting()
	f.do("", "workflow", "terminate", f.name(id))
	f.until(id, "terminated")
	task, err := f.tasks.SubmitTask(f.Context(), &pb.SubmitTaskRequest{Kind: "mail", Input: []byte("1"), Queue: f.queue})
	f.must(err)
	f.takeTask(task.GetTaskExecutionId())
	_, err = f.tasks.CompleteTask(f.Context(), &pb.CompleteTaskRequest{TaskExecutionId: task.GetTaskExecutionId(), Output: []byte("1")})
	f.must(err)

	r, err := http.NewRequestWithContext(f.Context(), http.MethodGet, f.http+"/metrics", http.NoBody)
	f.must(err)
	reply, err := http.DefaultClient.Do(r)
	f.must(err)
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	f.must(err)
	for _, want := range []string{
		`perdure_workflow_runs_started_total{workflow="flovyn:team/metrics"} 1`, `perdure_workflow_runs_closed_total{status="terminated",workflow="flovyn:team/metrics"} 1`,
		`perdure_task_attempts_total{activity="mail",outcome="completed",queue="flovyn:team/metrics"} 1`,
	} {
		if !strings.Contains(string(text), want) {
			f.Errorf("the metrics lack %s", want)
		}
	}
}
