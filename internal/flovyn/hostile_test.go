package flovyn_test

import (
	"net/http"
	"strings"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"

	pb "github.com/perdure/perdure/api/flovyn/v1"
)

// Submissions and calls that cannot be applied get the status that the contract names. The server
// stores nothing of them, and hands the run out again.
func partHostile(r *rig) {
	big := `"` + strings.Repeat("x", 2<<20) + `"`
	long := strings.Repeat("x", 5000)
	negative, huge, kind := int64(-1), int64(1)<<60, "k"
	retries := int32(-1)
	wrong := cmdSet("k", "1")
	wrong.CommandType = pb.CommandType_COMMAND_TYPE_START_TIMER
	unknown := cmdSet("k", "1")
	unknown.CommandType = 99

	commands := map[string]*pb.WorkflowCommand{
		"a large result":              cmdOperation("op", big),
		"an operation without a name": cmdOperation("", "1"),
		"a large state":               cmdSet("k", big),
		"a state without a key":       cmdSet("", "1"),
		"a long key":                  cmdSet(long, "1"),
		"a key with a NUL":            cmdSet("a\x00b", "1"),
		"a large input of a task":     cmdTask(uuid.NewString(), "t", big, nil),
		"a task without a kind":       cmdTask(uuid.NewString(), "", "1", nil),
		"a task without an id":        cmdTask("", "t", "1", nil),
		"a task with a short id":      cmdTask("1234", "t", "1", nil),
		"a task with negative retries": cmdTask(uuid.NewString(), "t", "1", func(c *pb.ScheduleTaskCommand) {
			c.MaxRetries = &retries
		}),
		"a task with a negative time-out": cmdTask(uuid.NewString(), "t", "1", func(c *pb.ScheduleTaskCommand) { c.TimeoutMs = &negative }),
		"a task with a long queue":        cmdTask(uuid.NewString(), "t", "1", func(c *pb.ScheduleTaskCommand) { c.Queue = &long }),
		"a task with a key for no time": cmdTask(uuid.NewString(), "t", "1", func(c *pb.ScheduleTaskCommand) {
			c.IdempotencyKey, c.IdempotencyKeyTtlSeconds = &kind, &negative
		}),
		"a large output":                  cmdComplete(big),
		"a promise without a name":        cmdPromise("", nil),
		"a promise with a long name":      cmdPromise(long, nil),
		"a promise with a large time-out": cmdPromise("p", func(c *pb.CreatePromiseCommand) { c.TimeoutMs = &huge }),
		"a child without an id":           cmdChild("", "c", "k", "1"),
		"a child without a name":          cmdChild(uuid.NewString(), "", "k", "1"),
		"a child without a kind":          cmdChild(uuid.NewString(), "c", "", "1"),
		"a large input of a child":        cmdChild(uuid.NewString(), "c", "k", big),
		"a timer without an id":           cmdTimer("", 1),
		"a timer of an age":               cmdTimer("t", 1<<60),
		"a command of another type":       wrong,
		"a command of an unknown type":    unknown,
		"a type without data":             {CommandType: pb.CommandType_COMMAND_TYPE_SET_STATE},
		"an unknown type without data":    {CommandType: 99},
	}
	// Each command has a run of its own, because a run whose commands were refused is not handed
	// out for a while.
	runs := map[string]string{}
	for what := range commands {
		runs[r.start("hostile", "null")] = what
	}
	for range runs {
		id := r.poll().GetId()
		what, end := runs[id], suspended
		if what == "a large output" {
			end = completed
		}
		r.code(r.trySubmit(id, end, cmdSet("before", "1"), cmdTask(uuid.NewString(), "t", "1", nil), commands[what], cmdTimer("after", 1)), codes.InvalidArgument, what)
		if got := r.types(id); got != "WORKFLOW_STARTED" {
			r.t.Errorf("after %s the log is %s", what, got)
		}
	}
	for len(runs) > 0 {
		id := r.poll().GetId()
		if runs[id] == "" {
			r.t.Fatalf("execution %s is handed out", id)
		}
		delete(runs, id)
		r.submit(id, completed)
	}

	id := r.start("hostile", "null")
	r.hostileCalls(id, big, long)
	r.poll()
	many := make([]*pb.WorkflowCommand, 10_001)
	for i := range many {
		many[i] = &pb.WorkflowCommand{}
	}
	r.code(r.trySubmit(id, suspended, many...), codes.InvalidArgument, "many commands")
	r.poll()
	r.submit(id, completed, cmdComplete("1"))
	if got := r.types(id); got != "WORKFLOW_STARTED WORKFLOW_COMPLETED" {
		r.t.Errorf("the log is %s", got)
	}
}

// hostileCalls makes calls that cannot be served.
func (r *rig) hostileCalls(id, big, long string) {
	large := []byte(big)
	for what, call := range map[string]func() error{
		"a large signal": func() error {
			_, err := r.flows.SignalWorkflow(r.ctx(), &pb.SignalWorkflowRequest{OrgId: orgID, WorkflowExecutionId: id, SignalName: "s", SignalValue: large})
			return err
		},
		"a signal without a name": func() error {
			_, err := r.flows.SignalWorkflow(r.ctx(), &pb.SignalWorkflowRequest{OrgId: orgID, WorkflowExecutionId: id})
			return err
		},
		"a signal with a start without an id": func() error {
			_, err := r.flows.SignalWithStartWorkflow(r.ctx(), &pb.SignalWithStartWorkflowRequest{OrgId: orgID, WorkflowKind: "k", SignalName: "s", Queue: r.queue})
			return err
		},
		"a signal with a start of a large input": func() error {
			_, err := r.flows.SignalWithStartWorkflow(r.ctx(), &pb.SignalWithStartWorkflowRequest{
				OrgId: orgID, WorkflowId: uuid.NewString(), WorkflowKind: "k", SignalName: "s", Queue: r.queue, WorkflowInput: large,
			})
			return err
		},
		"a start with a long queue": func() error {
			_, err := r.flows.StartWorkflow(r.ctx(), &pb.StartWorkflowRequest{OrgId: orgID, WorkflowKind: "k", Queue: long})
			return err
		},
		"a start with a long key": func() error {
			_, err := r.flows.StartWorkflow(r.ctx(), &pb.StartWorkflowRequest{OrgId: orgID, WorkflowKind: "k", Queue: r.queue, IdempotencyKey: &long})
			return err
		},
		"an organization that is no id": func() error {
			_, err := r.flows.StartWorkflow(r.ctx(), &pb.StartWorkflowRequest{OrgId: "../acme", WorkflowKind: "k", Queue: r.queue})
			return err
		},
		"a poll of a long queue": func() error {
			_, err := r.tasks.PollTask(r.ctx(), &pb.PollTaskRequest{OrgId: orgID, Queue: long})
			return err
		},
		"a large input of a task": func() error {
			_, err := r.tasks.SubmitTask(r.ctx(), &pb.SubmitTaskRequest{OrgId: orgID, Kind: "t", Queue: r.queue, Input: large})
			return err
		},
		"a task without a kind": func() error {
			_, err := r.tasks.SubmitTask(r.ctx(), &pb.SubmitTaskRequest{OrgId: orgID, Queue: r.queue})
			return err
		},
		"the events of no id": func() error {
			_, err := r.flows.GetEvents(r.ctx(), &pb.GetEventsRequest{WorkflowExecutionId: "'; drop table"})
			return err
		},
		"the completion of no id": func() error {
			_, err := r.tasks.CompleteTask(r.ctx(), &pb.CompleteTaskRequest{TaskExecutionId: "x"})
			return err
		},
		"a large output of a task": func() error {
			_, err := r.tasks.CompleteTask(r.ctx(), &pb.CompleteTaskRequest{TaskExecutionId: uuid.NewString(), Output: large})
			return err
		},
		"a promise that is no id": func() error {
			_, err := r.flows.ResolvePromise(r.ctx(), &pb.ResolvePromiseRequest{PromiseId: "p"})
			return err
		},
		"a worker without a name": func() error {
			_, err := r.life.RegisterWorker(r.ctx(), &pb.WorkerRegistrationRequest{OrgId: orgID})
			return err
		},
	} {
		r.code(call(), codes.InvalidArgument, what)
	}

	_, err := r.tasks.PollTask(r.ctx(), &pb.PollTaskRequest{OrgId: otherOrg, Queue: r.queue})
	r.code(err, codes.PermissionDenied, "a poll for tasks of another organization")
	_, err = r.life.RegisterWorker(r.ctx(), &pb.WorkerRegistrationRequest{OrgId: otherOrg, WorkerName: "w"})
	r.code(err, codes.PermissionDenied, "a worker of another organization")
	_, err = r.flows.SignalWithStartWorkflow(r.ctx(), &pb.SignalWithStartWorkflowRequest{OrgId: otherOrg, WorkflowId: "x", WorkflowKind: "k", SignalName: "s"})
	r.code(err, codes.PermissionDenied, "a signal with a start in another organization")
	r.code(r.trySubmit(id, suspended, cmdOperation("late", "1")), codes.FailedPrecondition, "a submission of a worker that lost the run")

	// Clients could not read a log with two signals of this size.
	full, most := r.start("hostile", "null"), large[:2<<20-1]
	most[len(most)-1] = '"'
	for _, want := range []codes.Code{codes.OK, codes.ResourceExhausted} {
		_, err = r.flows.SignalWorkflow(r.ctx(), &pb.SignalWorkflowRequest{OrgId: orgID, WorkflowExecutionId: full, SignalName: "s", SignalValue: most})
		r.code(err, want, "a signal of 2 MiB")
	}
	_, err = r.flows.SignalWithStartWorkflow(r.ctx(), &pb.SignalWithStartWorkflowRequest{
		OrgId: orgID, WorkflowId: uuid.NewString(), WorkflowKind: "k", Queue: r.queue, SignalName: "s", SignalValue: most, WorkflowInput: most,
	})
	r.code(err, codes.ResourceExhausted, "a start and a signal of 2 MiB each")
	r.endFlow(full)
}

// endFlow cancels an execution, so that no poll gets it.
func (r *rig) endFlow(id string) {
	if code, body := r.as(userKey).request("POST", "/api/orgs/acme/workflow-executions/"+id+"/cancel", "{}"); code != http.StatusOK {
		r.t.Errorf("cancel %s: %d %v", id, code, body)
	}
}
