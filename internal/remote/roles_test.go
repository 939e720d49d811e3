package remote_test

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/grpcapi"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/remote"
)

// ends are both ends of the worker service: a fake engine of the server, and a fake worker that has
// joined over the wire. Both pass everything that they receive to channels.
type ends struct {
	t      *testing.T
	server *grpcapi.Work
	work   *remote.Work

	// worker is the worker as the engine sees it.
	worker   api.Worker
	tasks    api.TaskWorker
	entities api.EntityWorker

	turns    chan model.Turn
	passed   chan model.TaskRef // passages that ended
	reports  chan model.TaskReport
	operated chan model.Operated
	told     chan string // calls that the worker got
}

// newEnds connects both ends. MaxFrame is the largest frame in bytes that the server takes.
func newEnds(t *testing.T, cfg grpcapi.WorkConfig) *ends {
	t.Helper()
	e := &ends{
		t: t, turns: make(chan model.Turn, 10), passed: make(chan model.TaskRef, 10), reports: make(chan model.TaskReport, 10),
		operated: make(chan model.Operated, 10), told: make(chan string, 10),
	}

	cfg.Backend, cfg.Tenant = fakeEngine{e: e}, func(context.Context) string { return tenant }
	e.server = grpcapi.NewWork(cfg)
	listener, server := bufconn.Listen(1<<20), grpc.NewServer()
	pb.RegisterWorkerServiceServer(server, e.server)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	conn, err := grpc.NewClient("passthrough:///server", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}

	e.work = remote.NewWork(conn, remote.WorkConfig{Backoff: time.Millisecond})
	t.Cleanup(func() {
		e.work.Close()
		e.server.Close(context.Background())
		server.Stop()
		serving.Wait()
		_ = conn.Close()
	})

	return e
}

// fakeEngine is the engine of the server.
type fakeEngine struct {
	api.Backend

	e *ends
}

func (f fakeEngine) Join(_ context.Context, w api.Worker, _ api.Offer) (api.Session, error) {
	f.e.worker = w
	return fakeSession(f), nil
}

func (f fakeEngine) JoinTasks(_ context.Context, w api.TaskWorker, _ model.TaskOffer) (api.TaskSession, error) {
	f.e.tasks = w
	return fakeTaskSession{e: f.e}, nil
}

func (f fakeEngine) JoinEntities(_ context.Context, w api.EntityWorker, _ model.EntityOffer) (api.EntitySession, error) {
	f.e.entities = w
	return fakeEntitySession{e: f.e}, nil
}

// fakeSession is the engine's session of a worker of workflows. It never lets an attempt start.
type fakeSession struct {
	api.Backend

	e *ends
}

func (f fakeSession) Report(_ context.Context, t model.Turn) error { f.e.turns <- t; return nil }

func (fakeSession) Release(model.RunID, uint64, int64, []model.Reason) {}

//arch:parameters the protocol of workers, see api.Session
func (fakeSession) Answer(model.RunID, uint64, uint64, model.Payload, *model.Failure) {}
func (fakeSession) Leave(context.Context) error                                       { return nil }

func (fakeSession) Pass(_ model.TaskRef, _ *model.TaskSpec, _ *model.Payload, begin func()) { begin() }

func (f fakeSession) EndPass(ref model.TaskRef, _ *model.TaskSpec, _ model.Passage, _ time.Duration) {
	f.e.passed <- ref
}

func (fakeSession) HeldBackBy(model.TaskRef) (model.Reason, bool) { return model.Reason{}, false }

// fakeTaskSession is the engine's session of a worker of tasks.
type fakeTaskSession struct {
	api.TaskSession

	e *ends
}

func (f fakeTaskSession) Report(_ context.Context, r model.TaskReport) error {
	f.e.reports <- r
	return nil
}
func (fakeTaskSession) Leave(context.Context) error { return nil }
func (fakeTaskSession) Lose()                       {}

// fakeEntitySession is the engine's session of a worker of entities.
type fakeEntitySession struct {
	api.EntitySession

	e *ends
}

func (f fakeEntitySession) FinishCalls(_ context.Context, o model.Operated) error {
	f.e.operated <- o
	return nil
}
func (fakeEntitySession) Leave(context.Context) error { return nil }

// fakeWorker notes the calls that it receives.
type fakeWorker struct {
	api.Worker
	api.TaskWorker
	api.EntityWorker

	told chan string
}

func (f fakeWorker) Activate(*api.Activation)                   { f.told <- "activate" }
func (f fakeWorker) Deliver(model.RunID, uint64, []model.Event) { f.told <- "deliver" }
func (f fakeWorker) Evict(_ model.RunID, _ uint64, why string)  { f.told <- "evict: " + why }
func (f fakeWorker) Execute([]model.Claim)                      { f.told <- "execute" }
func (f fakeWorker) Operate(model.Operations)                   { f.told <- "operate" }

// next waits for the next value.
func next[T any](t *testing.T, what string, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		t.Fatalf("%s did not come", what)
		panic("unreachable")
	}
}

// activated joins a worker of workflows and gives it a run.
func (e *ends) activated() (api.Session, model.RunID) {
	e.t.Helper()
	session, err := e.work.Join(e.t.Context(), fakeWorker{told: e.told}, api.Offer{Tenant: tenant, Workflows: []string{"flow"}})
	if err != nil {
		e.t.Fatal(err)
	}
	run := model.RunID{1, 2, 3}
	e.worker.Activate(&model.Activation{Start: &model.Start{Address: address("flow", "k"), Run: run}, Generation: 7})
	if got := next(e.t, "the activation", e.told); got != "activate" {
		e.t.Fatal(got)
	}
	return session, run
}

// The engine may answer a turn that ends a run with new events that the code has not seen. The
// worker gets these events, because it keeps the run until the engine evicts it.
func TestNewsAfterTheEndOfARun(t *testing.T) {
	t.Parallel()
	e := newEnds(t, grpcapi.WorkConfig{})
	session, run := e.activated()
	end := model.Turn{Run: run, Generation: 1, Commands: []model.Command{{Kind: model.CommandRecord, Event: model.Event{Kind: model.EventStepCompleted, ID: "s"}}}, Ahead: 1, Close: &model.Close{Status: model.Completed}}
	if err := session.Report(t.Context(), end); err != nil {
		t.Fatal(err)
	}
	if got := next(t, "the turn", e.turns); got.Close == nil || got.Generation != 7 {
		t.Fatalf("the engine got %+v", got)
	}

	e.worker.Deliver(run, 7, []model.Event{{Kind: model.EventStepCompleted, ID: "s"}})
	if got := next(t, "the news", e.told); got != "deliver" {
		t.Fatalf("the worker is told to %s", got)
	}
	end.Commands, end.Ahead = nil, 0
	if err := session.Report(t.Context(), end); err != nil {
		t.Fatal(err)
	}
	next(t, "the second turn", e.turns)
	e.worker.Evict(run, 7, "closed")
	if got := next(t, "the eviction", e.told); got != "evict: closed" {
		t.Fatalf("the worker is told to %s", got)
	}
	if err := session.Report(t.Context(), end); err != nil || len(e.turns) > 0 {
		t.Errorf("a turn of a run that is gone: %v, %d reached the engine", err, len(e.turns))
	}
}

// ref returns the reference to an attempt of the run that the worker has.
func ref(run model.RunID, id string) model.TaskRef {
	return model.TaskRef{Address: address("flow", "k"), Run: run, ID: id}
}

// When a worker vanishes, the server frees each of its permits once.
func TestPermitsOfAVanishedWorker(t *testing.T) {
	t.Parallel()
	e := newEnds(t, grpcapi.WorkConfig{Grace: time.Millisecond})
	session, run := e.activated()
	gate, begun := session.(api.Gate), make(chan string, 3)
	spec := &model.TaskSpec{Kind: "act", Limits: []string{"one"}}
	for _, id := range []string{"a", "b", "c"} {
		gate.Pass(ref(run, id), spec, nil, func() { begun <- id })
		if got := next(t, "the permit", begun); got != id {
			t.Fatalf("%s begins", got)
		}
	}
	gate.EndPass(ref(run, "a"), spec, model.PassageSucceeded, 0)
	if got := next(t, "the end of an attempt", e.passed); got.ID != "a" {
		t.Fatalf("%s has ended", got.ID)
	}

	e.work.Close() // it has not left, so the server waits for it for a while
	freed := []string{next(t, "a freed permit", e.passed).ID, next(t, "a freed permit", e.passed).ID}
	slices.Sort(freed)
	if !slices.Equal(freed, []string{"b", "c"}) || len(e.passed) > 0 {
		t.Errorf("the permits of %v are free, and of %d others", freed, len(e.passed))
	}
}

// A worker may leave while bodies are running, because it waits only for a time. If it then goes
// away, the server frees their permits.
func TestPermitsOfAWorkerThatLeft(t *testing.T) {
	t.Parallel()
	e := newEnds(t, grpcapi.WorkConfig{Grace: time.Millisecond})
	session, run := e.activated()
	begun := make(chan string, 1)
	session.(api.Gate).Pass(ref(run, "a"), &model.TaskSpec{Kind: "act", Limits: []string{"one"}}, nil, func() { begun <- "a" })
	next(t, "the permit", begun)
	if err := session.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}

	e.work.Close()
	if freed := next(t, "a freed permit", e.passed); freed.ID != "a" {
		t.Errorf("the permit of %s is free", freed.ID)
	}
}

// If a report of a worker is too large for any frame, the engine gets a reason or a failure
// instead. So nothing waits forever, and the session continues.
func TestReportsThatNoFrameHolds(t *testing.T) {
	t.Parallel()
	e := newEnds(t, grpcapi.WorkConfig{MaxFrame: 1 << 16})
	ctx, large := t.Context(), model.Payload{Data: make([]byte, 1<<17)}
	session, run := e.activated()
	turn := model.Turn{Run: run, Generation: 1, Commands: []model.Command{{Kind: model.CommandRecord, Event: model.Event{Kind: model.EventStepCompleted, ID: "s", Output: large}}}}
	if err := session.Report(ctx, turn); err != nil {
		t.Fatal(err)
	}
	got := next(t, "the turn", e.turns)
	if got.Generation != 7 || len(got.Commands) > 0 || got.Close != nil || got.Blocked == nil || !strings.Contains(got.Blocked.Detail, "65536") {
		t.Errorf("the engine got %+v", got)
	}
	if told := next(t, "the eviction", e.told); !strings.HasPrefix(told, "evict: ") {
		t.Errorf("the worker is told to %s", told)
	}

	tasks, err := e.work.JoinTasks(ctx, fakeWorker{told: e.told}, model.TaskOffer{Tenants: []string{tenant}, Kinds: []string{"act"}, Queues: []string{"q"}, Slots: 1})
	if err != nil {
		t.Fatal(err)
	}
	claim := model.ClaimRef{TaskRef: ref(run, "t"), Claim: 3}
	e.tasks.Execute([]model.Claim{{Ref: claim, Spec: &model.TaskSpec{Kind: "act", Queue: "q"}}})
	next(t, "the claim", e.told)
	if err := tasks.Report(ctx, model.TaskReport{Ref: claim, Output: large}); err != nil {
		t.Fatal(err)
	}
	if got := next(t, "the report", e.reports); got.Ref != claim || got.Output.Size() > 0 || got.Failure == nil || !got.Failure.Permanent || !strings.Contains(got.Failure.Message, "65536") {
		t.Errorf("the engine got %+v", got)
	}

	entities, err := e.work.JoinEntities(ctx, fakeWorker{told: e.told}, model.EntityOffer{Tenant: tenant, Types: []model.EntityType{{Type: "entity:a"}}})
	if err != nil {
		t.Fatal(err)
	}
	entity := address("entity:a", "k")
	e.entities.Operate(model.Operations{Entity: entity, Generation: 9, Calls: make([]model.OperationCall, 2)})
	next(t, "the calls", e.told)
	if err := entities.FinishCalls(ctx, model.Operated{Entity: entity, Generation: 1, Changed: true, Exists: true, State: large, Results: make([]model.OperationResult, 2)}); err != nil {
		t.Fatal(err)
	}
	made := next(t, "the results", e.operated)
	if made.Generation != 9 || made.Entity != entity || made.Changed || made.State.Size() > 0 || len(made.Results) != 2 {
		t.Errorf("the engine got %+v", made)
	}
	for _, r := range made.Results {
		if r.Failure == nil || !r.Failure.Permanent || !strings.Contains(r.Failure.Message, "65536") {
			t.Errorf("a result is %+v", r)
		}
	}
}
