package flovyn_test

import (
	"flag"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	pb "github.com/perdure/perdure/api/flovyn/v1"
	"github.com/perdure/perdure/internal/malformed"
)

// malformedRounds is how many rounds of malformed calls a test makes. A round is three calls of
// every method.
var malformedRounds = flag.Int("rounds", 20, "rounds of malformed calls of every method")

// TestMalformedCalls calls every method with bytes that are not a message, and with messages that
// have random contents. Some messages name things that exist. No call fails with an error that
// blames the server, and the server continues to serve.
func TestMalformedCalls(t *testing.T) {
	t.Parallel()
	r := serve(t, "memory:")
	calls := malformed.Calls{
		Conn: r.conn, Methods: malformed.Methods(pb.File_flovyn_v1_flovyn_proto), Wait: 20 * time.Millisecond,
		Unserved: []string{
			pb.WorkflowDispatch_StartChildWorkflow_FullMethodName, pb.WorkflowDispatch_GetVisualWorkflowDefinitionById_FullMethodName, pb.WorkflowQuery_QueryWorkflow_FullMethodName,
		},
	}
	before := malformed.Kept()
	for seed := range *malformedRounds {
		calls.Words = append(slices.Clone(malformed.Words), r.things()...)
		calls.Round(r.ctx(), t, uint64(seed), []byte(strings.Repeat("\x0a\x05", seed%100)))
	}
	if after := malformed.Kept(); after > before+64<<20 {
		t.Errorf("the server keeps %d MiB, and %d MiB before the calls", after>>20, before>>20)
	}

	sane := *r
	sane.queue = "sane"
	id := sane.start("sane", "1")
	sane.poll()
	sane.submit(id, completed, cmdComplete("1"))
	if got := sane.types(id); got != "WORKFLOW_STARTED WORKFLOW_COMPLETED" {
		t.Errorf("afterwards, a run has the log %s", got)
	}
}

// things returns ids of things that exist: a run that a worker has, with a promise, and a task that
// a worker has. Malformed calls may end all of them, so each round has its own.
func (r *rig) things() []string {
	r.t.Helper()
	own := *r
	own.queue = "malformed-" + uuid.NewString()
	id, task := own.start("malformed", "1"), uuid.NewString()
	own.poll()
	own.submit(id, suspended, cmdPromise("p", nil), cmdTask(task, "malformed", "1", nil), cmdTimer("t", 1))
	promise, _ := own.event(id, "PROMISE_CREATED")["promiseId"].(string)
	own.pollTask()
	own.poll() // take the activation that the timer causes

	reply, err := own.life.RegisterWorker(own.ctx(), &pb.WorkerRegistrationRequest{OrgId: orgID, WorkerName: "malformed"})
	own.must(err)
	return []string{id, task, promise, id + ":p", own.queue, orgID, otherOrg, reply.GetWorkerId(), "p", "t"}
}
