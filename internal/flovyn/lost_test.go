package flovyn_test

import (
	"context"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/perdure/perdure/api/flovyn/v1"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/flovyn"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/node"
)

// impatient starts a door that gives up on silent workers immediately.
func impatient(t *testing.T, change func(*flovyn.Config)) *rig {
	t.Helper()
	r := &rig{t: t, queue: "q", key: workerKey}
	n, err := node.Open(context.WithoutCancel(t.Context()), node.Config{URL: "memory:"})
	r.must(err)
	cfg := flovyn.Config{
		Backend: n.Backend(), Caller: func(context.Context) (authn.Identity, bool) { return authn.Identity{Tenant: orgID}, true }, Connections: flovyn.NewConnections(),
		Unconfirmed: time.Millisecond, Silence: time.Millisecond, Patience: time.Hour, Idle: time.Hour, Tick: 5 * time.Millisecond,
	}
	if change != nil {
		change(&cfg)
	}
	door := flovyn.New(cfg)
	server := grpc.NewServer()
	door.Register(server)
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	r.must(err)
	go func() { _ = server.Serve(cfg.Connections.Watch(l)) }()
	r.addr = l.Addr().String()
	r.connect()

	t.Cleanup(func() {
		_ = r.conn.Close()
		door.Drain()
		server.Stop()
		door.Close(context.Background())
		r.must(n.Close())
	})
	return r
}

// connect gives the rig a connection of its own.
func (r *rig) connect() {
	r.t.Helper()
	var err error
	r.conn, err = grpc.NewClient(r.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	r.must(err)
	r.flows, r.tasks, r.life = pb.NewWorkflowDispatchClient(r.conn), pb.NewTaskExecutionClient(r.conn), pb.NewWorkerLifecycleClient(r.conn)
}

// another returns a client with a connection of its own.
func (r *rig) another() *rig {
	r.t.Helper()
	other := *r
	other.connect()
	r.t.Cleanup(func() { _ = other.conn.Close() })
	return &other
}

// A submission does not say which worker sends it. The first worker may send it after a second
// worker got the run with more events. The door does not lose the events that only the second
// worker has seen.
func TestSubmissionOfFirstWorkerLosesNoNews(t *testing.T) {
	t.Parallel()
	r := impatient(t, nil)
	id := r.start("two workers", "1")
	r.poll() // the first worker is slow, so the run is handed out again
	_, err := r.flows.SignalWorkflow(r.ctx(), &pb.SignalWorkflowRequest{WorkflowExecutionId: id, SignalName: "s", SignalValue: []byte("1")})
	r.must(err)
	for r.poll(); r.trySubmit(id, suspended, cmdSuspend("the first worker has not seen the signal")) != nil; r.poll() {
	}
	r.poll()
}

// A client that waits for the result asks for the events again and again. That does not prove that
// the worker got the run.
func TestEventsForClientConfirmNothing(t *testing.T) {
	t.Parallel()
	r := impatient(t, func(c *flovyn.Config) { c.Unconfirmed = 100 * time.Millisecond })
	client := r.another()
	id := r.start("lost reply", "1")
	r.poll() // the reply is lost
	client.types(id)
	r.poll()

	// If a worker has asked for the events, only the end of its connection shows that it is gone.
	worker := r.another()
	worker.poll()
	worker.types(id)
	r.must(worker.conn.Close())
	r.poll()
}

// The worker of a task may end without notice, and the reply that brought the task may be lost.
func TestTasksOfLostWorkers(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*flovyn.Config){
		"closed connection": func(c *flovyn.Config) { c.Patience, c.Silence = time.Millisecond, time.Hour },
		"lost reply":        func(c *flovyn.Config) { c.Longest, c.Silence = time.Millisecond, time.Millisecond },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := impatient(t, change)
			_, err := r.tasks.SubmitTask(r.ctx(), &pb.SubmitTaskRequest{Kind: "work", Queue: r.queue, MaxRetries: 3})
			r.must(err)
			worker := r.another()
			first := worker.pollTask()
			if name == "closed connection" {
				r.must(worker.conn.Close())
			}
			second := r.pollTask()
			if second.GetTaskExecutionId() != first.GetTaskExecutionId() || second.GetExecutionCount() != 2 {
				t.Errorf("the task is handed out again as %v, was %v", second, first)
			}
		})
	}
}

// unwell is a backend that fails the first call of JoinEntities.
type unwell struct {
	api.Backend

	failed atomic.Bool
}

func (u *unwell) JoinEntities(ctx context.Context, w api.EntityWorker, o model.EntityOffer) (api.EntitySession, error) {
	if !u.failed.Swap(true) {
		return nil, fault.New(fault.Unavailable, "not now")
	}
	return u.Backend.JoinEntities(ctx, w, o)
}

// After one call has failed with an error, later calls can succeed. The door remembers a bounded
// number of names.
func TestKeysAfterError(t *testing.T) {
	t.Parallel()
	r := impatient(t, func(c *flovyn.Config) { c.Backend = &unwell{Backend: c.Backend} })
	key := "k"
	start := func() error {
		_, err := r.flows.StartWorkflow(r.ctx(), &pb.StartWorkflowRequest{WorkflowKind: "w", Queue: r.queue, IdempotencyKey: &key})
		return err
	}
	if start() == nil {
		t.Error("the start works without keys")
	}
	r.must(start())

	refused := func(err error, what string) {
		t.Helper()
		if err == nil {
			t.Errorf("%s is not refused", what)
		}
	}
	long := strings.Repeat("x", 1000)
	_, err := r.flows.PollWorkflow(r.ctx(), &pb.PollRequest{WorkerId: long, Queue: r.queue})
	refused(err, "a poll of a worker with a long id")
	_, err = r.tasks.PollTask(r.ctx(), &pb.PollTaskRequest{WorkerId: long, Queue: r.queue})
	refused(err, "a poll for tasks of a worker with a long id")
	_, err = r.life.RegisterWorker(r.ctx(), &pb.WorkerRegistrationRequest{WorkerName: "w", Tasks: make([]*pb.TaskCapability, 1001)})
	refused(err, "a worker with many tasks")
}

// The work of a worker that is gone goes to another worker. The door accepts a late report of the
// first worker only while the work is handed out.
func TestWorkOfLostWorkers(t *testing.T) {
	t.Parallel()
	r := impatient(t, nil)

	// A worker that never asks for the events has not received the activation.
	id := r.start("lost", "1")
	for range 3 {
		if x := r.poll(); x.GetId() != id {
			t.Fatalf("execution %s is handed out", x.GetId())
		}
	}
	r.types(id) // the worker has the run now, unless it was too slow
	for task := cmdTask(uuid.NewString(), "work", "1", nil); r.trySubmit(id, suspended, task) != nil; r.types(id) {
		r.poll()
	}

	// A worker that sends heartbeats and is silent has lost its task. A worker that never sent a
	// heartbeat keeps its task.
	worker, err := r.life.RegisterWorker(r.ctx(), &pb.WorkerRegistrationRequest{WorkerName: "beats"})
	r.must(err)
	_, err = r.life.SendHeartbeat(r.ctx(), &pb.WorkerHeartbeatRequest{WorkerId: worker.GetWorkerId()})
	r.must(err)
	poll := func(name string) *pb.TaskExecutionInfo {
		reply, err := r.tasks.PollTask(r.ctx(), &pb.PollTaskRequest{WorkerId: name, Queue: r.queue, TimeoutSeconds: 30})
		r.must(err)
		return reply.GetTask()
	}
	first := poll("beats")
	second := poll("never beats")
	if second.GetTaskExecutionId() != first.GetTaskExecutionId() || second.GetExecutionCount() != 2 {
		t.Fatalf("after the loss of its worker the task is %v", second)
	}
	r.complete(second.GetTaskExecutionId(), `"second"`)
	_, err = r.tasks.CompleteTask(r.ctx(), &pb.CompleteTaskRequest{TaskExecutionId: first.GetTaskExecutionId(), Output: []byte(`"first"`)})
	if err == nil {
		t.Error("the late report of the first worker counts")
	}

	for {
		r.poll()
		if got := r.event(id, "TASK_COMPLETED"); got["output"] != "second" {
			t.Errorf("the outcome is %v", got)
		}
		if r.trySubmit(id, completed) == nil {
			return
		}
	}
}

// A door without room for histories reads them from the store. Workers see no difference.
func TestHistoriesWithoutRoom(t *testing.T) {
	t.Parallel()
	for name, room := range map[string]int64{"none": 1, "for the first events": 700} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := impatient(t, func(c *flovyn.Config) { c.MaxHistories, c.Unconfirmed, c.Silence = room, time.Hour, time.Hour })
			id, child := r.start("large", `{"n":1}`), uuid.NewString()
			x := r.poll()
			if x.GetKind() != "large" || string(x.GetInput()) != `{"n":1}` {
				t.Errorf("the activation is %v", x)
			}
			r.submit(id, suspended, cmdSet("a", `"`+strings.Repeat("x", 1000)+`"`), cmdOperation("op", "7"), cmdChild(child, "c", "small", "1"), cmdSuspend("waits"))

			if x := r.poll(); x.GetId() != child || x.GetKind() != "small" || string(x.GetInput()) != "1" {
				t.Errorf("the child is %v", x)
			}
			r.submit(child, suspended)
			_, err := r.flows.SignalWorkflow(r.ctx(), &pb.SignalWorkflowRequest{WorkflowExecutionId: id, SignalName: "s", SignalValue: []byte("2")})
			r.must(err)
			if x := r.poll(); x.GetId() != id || string(x.GetInput()) != `{"n":1}` {
				t.Errorf("the activation is %v", x)
			}
			if got := r.types(id); got != "WORKFLOW_STARTED STATE_SET OPERATION_COMPLETED CHILD_WORKFLOW_INITIATED WORKFLOW_SUSPENDED SIGNAL_RECEIVED" {
				t.Errorf("the log is %s", got)
			}
			r.submit(id, suspended, &pb.WorkflowCommand{CommandData: &pb.WorkflowCommand_RequestCancelChildWorkflow{
				RequestCancelChildWorkflow: &pb.RequestCancelChildWorkflowCommand{ChildExecutionName: "c", Reason: "enough"},
			}})
			r.poll()
			if got := r.event(id, "CHILD_WORKFLOW_FAILED"); got["childExecutionId"] != child {
				t.Errorf("the child ended with %v", got)
			}
			r.submit(id, completed)
		})
	}
}

// A native worker makes no calls while it executes a task, even if that takes long. It keeps the
// task as long as its connection is open.
func TestLongTaskOfNativeWorker(t *testing.T) {
	t.Parallel()
	r := impatient(t, func(c *flovyn.Config) {
		c.Longest, c.Silence, c.Patience = time.Millisecond, time.Millisecond, time.Millisecond
	})
	for range 2 {
		_, err := r.tasks.SubmitTask(r.ctx(), &pb.SubmitTaskRequest{Kind: "work", Queue: r.queue, MaxRetries: 1000})
		r.must(err)
	}
	worker := r.another()
	reply, err := worker.life.RegisterWorker(worker.ctx(), &pb.WorkerRegistrationRequest{WorkerName: "native"})
	r.must(err)
	poll := func(from *rig, name string) *pb.TaskExecutionInfo {
		for {
			got, err := from.tasks.PollTask(from.ctx(), &pb.PollTaskRequest{WorkerId: name, Queue: r.queue, TimeoutSeconds: 30})
			r.must(err)
			if got.GetTask() != nil {
				return got.GetTask()
			}
		}
	}
	long, short := poll(worker, reply.GetWorkerId()), poll(r, "by name")

	// The other worker loses its task again and again, and gets it back. The first worker does not
	// lose its task.
	for range 3 {
		if got := poll(r, "by name"); got.GetTaskExecutionId() != short.GetTaskExecutionId() {
			t.Fatalf("the task of a native worker is handed out: %v", got)
		}
	}
	_, err = worker.tasks.Heartbeat(worker.ctx(), &pb.HeartbeatRequest{TaskExecutionId: long.GetTaskExecutionId()})
	r.must(err)

	// The end of its connection shows that the worker has lost the task.
	r.must(worker.conn.Close())
	for poll(r, "by name").GetTaskExecutionId() != long.GetTaskExecutionId() {
	}
}

// Polls of a native worker are short, because some native workers do nothing else while they poll.
// Work that comes in between is kept for the next poll.
func TestPollsOfNativeWorkersAreShort(t *testing.T) {
	t.Parallel()
	r := impatient(t, func(c *flovyn.Config) { c.ShortPoll, c.Unconfirmed, c.Silence = time.Millisecond, time.Hour, time.Hour })
	reply, err := r.life.RegisterWorker(r.ctx(), &pb.WorkerRegistrationRequest{WorkerName: "native"})
	r.must(err)

	// One thread does everything, one call after the other, as in a binding with one event loop.
	id, task := r.start("one thread", "1"), uuid.NewString()
	for rounds := 0; !strings.Contains(r.types(id), "WORKFLOW_COMPLETED"); rounds++ {
		got, err := r.flows.PollWorkflow(r.ctx(), &pb.PollRequest{WorkerId: reply.GetWorkerId(), Queue: r.queue, TimeoutSeconds: 30})
		r.must(err)
		if got.GetWorkflowExecution() != nil {
			if strings.Contains(r.types(id), "TASK_COMPLETED") {
				r.submit(id, completed)
			} else {
				r.submit(id, suspended, cmdTask(task, "work", "1", nil))
			}
		}
		work, err := r.tasks.PollTask(r.ctx(), &pb.PollTaskRequest{WorkerId: reply.GetWorkerId(), Queue: r.queue, TimeoutSeconds: 30})
		r.must(err)
		if work.GetTask() != nil {
			if n := work.GetTask().GetExecutionCount(); n != 1 {
				t.Errorf("the task is executed as attempt %d", n)
			}
			r.complete(task, "1")
		}
	}
}

// Clients drop polls for tasks at any moment, and no task is lost. If the reply with a task was
// under way, the task comes back when the connection has ended. Each task is completed once.
func TestDroppedPollsSwallowNoTask(t *testing.T) {
	t.Parallel()
	drops := 1000
	if testing.Short() {
		drops = 200
	}
	r := impatient(t, func(c *flovyn.Config) { c.Patience, c.Silence, c.Park = time.Millisecond, time.Hour, time.Millisecond })
	open := map[string]bool{}
	for range 20 {
		reply, err := r.tasks.SubmitTask(r.ctx(), &pb.SubmitTaskRequest{Kind: "dropped", Queue: r.queue, MaxRetries: 1000})
		r.must(err)
		open[reply.GetTaskExecutionId()] = true
	}

	droppers := r.another()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range drops / 4 {
				ctx, cancel := context.WithTimeout(droppers.ctx(), time.Duration(rand.Int64N(int64(2*time.Millisecond))))
				_, _ = droppers.tasks.PollTask(ctx, &pb.PollTaskRequest{WorkerId: "drops", Queue: r.queue, TimeoutSeconds: 30})
				cancel()
			}
		})
	}
	wg.Wait()
	r.must(droppers.conn.Close())

	for len(open) > 0 {
		got := r.pollTask().GetTaskExecutionId()
		if !open[got] {
			t.Fatalf("task %s is handed out again", got)
		}
		r.complete(got, "1")
		delete(open, got)
	}
	empty, err := r.tasks.PollTask(r.ctx(), &pb.PollTaskRequest{Queue: r.queue})
	if err != nil || empty.GetTask() != nil {
		t.Errorf("after all tasks: %v, %v", empty, err)
	}
}
