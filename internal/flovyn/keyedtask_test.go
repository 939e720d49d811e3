package flovyn_test

import (
	"strings"
	"testing"

	"github.com/google/uuid"

	pb "github.com/perdure/perdure/api/flovyn/v1"
)

// A UUID may be written in upper case. A task with such an id and an idempotency key runs, instead
// of waiting for another task that has the key. An id that is no UUID leaves the key free.
func TestKeyOfATaskWithAnyFormOfItsID(t *testing.T) {
	t.Parallel()
	r := impatient(t, patient)
	key := "k"
	keyed := func(c *pb.ScheduleTaskCommand) { c.IdempotencyKey = &key }
	refused := r.start("demo", "1")
	if got := r.poll().GetId(); got != refused {
		t.Fatalf("execution %s is handed out", got)
	}
	r.refused(r.trySubmit(refused, suspended, cmdTask("1234", "work", "1", keyed)), "must be a UUID")

	id := uuid.NewString()
	flow := r.start("demo", "2")
	for r.poll().GetId() != flow {
	}
	r.submit(flow, suspended, cmdTask(strings.ToUpper(id), "work", "1", keyed))
	if got := r.pollTask(); got.GetTaskExecutionId() != id {
		t.Errorf("task %s is handed out, want %s", got.GetTaskExecutionId(), id)
	}
	r.complete(id, `"done"`)
	for r.poll().GetId() != flow {
	}
	if got := r.event(flow, "TASK_COMPLETED"); got["taskExecutionId"] != id || got["output"] != "done" {
		t.Errorf("the task is %v", got)
	}
}
