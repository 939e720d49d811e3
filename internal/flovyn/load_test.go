package flovyn_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	pb "github.com/perdure/perdure/api/flovyn/v1"
)

// TestManyWorkflows runs many workflows with two tasks each through a few workers. Nothing is lost,
// and nothing happens twice. The variable FLOVYN_LOAD sets how many workflows there are.
func TestManyWorkflows(t *testing.T) {
	t.Parallel()
	count := 60
	if n, err := strconv.Atoi(os.Getenv("FLOVYN_LOAD")); err == nil {
		count = n
	}
	url := os.Getenv("FLOVYN_LOAD_STORE")
	if url == "" {
		url = "file:" + filepath.Join(t.TempDir(), "flovyn.db")
	}
	r := serve(t, url)
	ctx, stop := context.WithCancel(r.ctx())
	defer stop()
	var executed, ended atomic.Int64
	var workers sync.WaitGroup
	done := make(chan struct{})

	begin, before := time.Now(), cpu()
	for range 8 {
		workers.Go(func() {
			workFlows(ctx, r, func() {
				if ended.Add(1) == int64(count) {
					close(done)
				}
			})
		})
		workers.Go(func() { workTasks(ctx, r, &executed) })
	}
	ids := make([]string, count)
	var starters sync.WaitGroup
	for s := range 8 {
		starters.Go(func() {
			for i := s; i < count; i += 8 {
				ids[i] = r.start("load", strconv.Itoa(i))
			}
		})
	}
	starters.Wait()
	select {
	case <-done:
	case <-time.After(5 * time.Minute):
		t.Errorf("%d of %d workflows have ended", ended.Load(), count)
	}
	took, used := time.Since(begin), cpu()-before
	stop()
	workers.Wait()

	for _, id := range ids {
		log := r.types(id)
		if strings.Count(log, "TASK_SCHEDULED") != 2 || strings.Count(log, "TASK_COMPLETED") != 2 || strings.Count(log, "WORKFLOW_COMPLETED") != 1 {
			t.Errorf("workflow %s: %s", id, log)
		}
	}
	if n := executed.Load(); n != int64(2*count) {
		t.Errorf("%d tasks were executed, want %d", n, 2*count)
	}
	t.Logf("%d workflows in %v: %.0f/s, %v of CPU each, clients included", count, took.Round(time.Millisecond), float64(count)/took.Seconds(), used/time.Duration(count))
}

// cpu is the time that the process has used.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// workFlows is a worker whose workflow schedules two tasks and waits for both.
func workFlows(ctx context.Context, r *rig, end func()) {
	for ctx.Err() == nil {
		reply, err := r.flows.PollWorkflow(ctx, &pb.PollRequest{WorkerId: "flows", OrgId: orgID, Queue: r.queue, TimeoutSeconds: 30})
		x := reply.GetWorkflowExecution()
		if err != nil || x == nil {
			continue
		}
		log, err := r.flows.GetEvents(ctx, &pb.GetEventsRequest{WorkflowExecutionId: x.GetId()})
		if err != nil {
			continue
		}
		scheduled, finished := 0, 0
		for _, e := range log.GetEvents() {
			switch e.GetEventType() {
			case "TASK_SCHEDULED":
				scheduled++
			case "TASK_COMPLETED":
				finished++
			}
		}

		m := &pb.SubmitWorkflowCommandsRequest{WorkflowExecutionId: x.GetId(), Status: suspended}
		namespace := uuid.MustParse(x.GetId())
		switch {
		case scheduled == 0:
			for n := range 2 {
				m.Commands = append(m.Commands, cmdTask(uuid.NewSHA1(namespace, []byte{byte(n)}).String(), "load", "1", nil))
			}
			m.Commands = append(m.Commands, cmdSuspend("waits"))
		case finished == 2:
			m.Status, m.Commands = completed, []*pb.WorkflowCommand{cmdComplete("1")}
		default:
			m.Commands = []*pb.WorkflowCommand{cmdSuspend("waits")}
		}
		if _, err := r.flows.SubmitWorkflowCommands(ctx, m); err == nil && m.Status == completed {
			end()
		}
	}
}

func workTasks(ctx context.Context, r *rig, executed *atomic.Int64) {
	for ctx.Err() == nil {
		reply, err := r.tasks.PollTask(ctx, &pb.PollTaskRequest{WorkerId: "tasks", OrgId: orgID, Queue: r.queue, TimeoutSeconds: 30})
		if err != nil || reply.GetTask() == nil {
			continue
		}
		executed.Add(1)
		_, _ = r.tasks.CompleteTask(ctx, &pb.CompleteTaskRequest{TaskExecutionId: reply.GetTask().GetTaskExecutionId(), Output: []byte("1")})
	}
}
