package service_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/service"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/memory"
)

func TestTasksAreChecked(t *testing.T) {
	t.Parallel()
	s := live(t, service.Limits{})
	for _, c := range []struct {
		change func(r *api.StartRequest)
		want   string
	}{
		{func(*api.StartRequest) {}, ""},
		{func(r *api.StartRequest) { r.Task = nil }, `begins with "task:"`},
		{func(r *api.StartRequest) { r.Address.Type = "render" }, "a task of activity render has the address"},
		{func(r *api.StartRequest) { r.Address.Type = "task:other" }, "a task of activity render has the address"},
		{func(r *api.StartRequest) { r.With = []api.Message{{Name: "s"}} }, "a task takes no signals"},
		{func(r *api.StartRequest) { r.Task.Queue = "" }, "the name of the queue is empty"},
		{func(r *api.StartRequest) { r.Task.Limits = []string{"b", "a"} }, "limit a occurs twice, or is not in order"},
		{func(r *api.StartRequest) { r.Task.Limits = strings.Split("123456789", "") }, "number of limits is 9"},
		{func(r *api.StartRequest) { r.Task.Limits = []string{""} }, "the name of the limit is empty"},
		{func(r *api.StartRequest) { r.Task.Breaker = "\x00" }, "control character"},
		{func(r *api.StartRequest) { r.Task.Silence = -time.Second }, "its heartbeat time-out is -1s"},
		{func(r *api.StartRequest) { r.Task.Delay = 1 << 62 }, "its delay is 1281023h53m38.427387904s"},
		{func(r *api.StartRequest) { r.Task.Silence = time.Millisecond }, "at least 100ms"},
		{func(r *api.StartRequest) { r.Task.ToStart = math.MinInt64 }, "its schedule-to-start time-out is -"},
		{func(r *api.StartRequest) { r.Task.ToClose = math.MaxInt64 }, "its attempt time-out is 2562047h"},
		{func(r *api.StartRequest) { r.Task.Total = -1 }, "its schedule-to-close time-out is -1ns"},
		{func(r *api.StartRequest) { r.Task.Total, r.Task.Delay = time.Minute, time.Hour }, "time out before it may begin"},
		{func(r *api.StartRequest) { r.Task.Retry.Initial = math.MaxInt64 }, "first pause"},
		{func(r *api.StartRequest) { r.Task.Retry.Max = -1 }, "longest pause"},
		{func(r *api.StartRequest) { r.Task.Retry.Initial, r.Task.Retry.Max = 2, 1 }, "which is shorter"},
		{func(r *api.StartRequest) { r.Task.Retry.Jitter = 1001 }, "jitter of the retry policy is 1.001"},
		{func(r *api.StartRequest) { r.Task.Retry.Coefficient = 999 }, "coefficient of the retry policy is 0.999"},
		{func(r *api.StartRequest) { r.Task.Retry.Coefficient = math.MinInt64 }, "coefficient"},
		{func(r *api.StartRequest) { r.Task.Retry.MaxAttempts = -1 }, "number of attempts is -1"},
		{func(r *api.StartRequest) { r.Task.Retry.Final = make([]string, 65) }, "number of final failures is 65"},
		{func(r *api.StartRequest) { r.Task.Retry.Final = []string{"a\n"} }, "control character"},
		{func(r *api.StartRequest) { r.Task.Priority = math.MaxInt }, "its priority is"},
		{func(r *api.StartRequest) { r.Task.Priority = math.MinInt }, "its priority is"},
		{func(r *api.StartRequest) { r.Task.Weight = -1 }, "its weight is -1"},
		{func(r *api.StartRequest) { r.Task.Fair = strings.Repeat("x", 201) }, "has 201 bytes"},
		{func(r *api.StartRequest) { r.Reuse = 3 }, "no policy 3"},
		{func(r *api.StartRequest) { r.Task.Retry.Final = []string{strings.Repeat("x", 513)} }, "a kind of failure has 513 bytes"},
	} {
		r := api.StartRequest{
			Address: model.Address{Tenant: "default", Type: "task:render", Key: "1"}, Input: model.Payload{Data: []byte("1")},
			Task: &model.TaskSpec{Kind: "render", Queue: "gpu", Limits: []string{"a", "b"}},
		}

		c.change(&r)
		_, err := s.Compose(&r)
		if c.want == "" {
			if err != nil {
				t.Error(err)
			}
			continue
		}

		wantKind(t, c.want, err, fault.Invalid)
		if !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v\n  lacks %q", err, c.want)
		}
	}
}

func TestStartMany(t *testing.T) {
	t.Parallel()
	s := live(t, service.Limits{})
	rs := make([]api.StartRequest, 1000)
	for i := range rs {
		rs[i] = api.StartRequest{Address: model.Address{Tenant: "default", Type: "order", Key: fmt.Sprint(i % 999)}, Input: model.Payload{Data: []byte("1")}}
	}
	rs[7].Address.Key = ""
	replies, err := s.StartMany(t.Context(), rs)
	if err != nil || len(replies) != len(rs) {
		t.Fatal(len(replies), err)
	}

	runs := map[model.RunID]bool{}
	for i, r := range replies {
		if i == 7 {
			wantKind(t, "without a key", r.Err, fault.Invalid)
			continue
		}
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		runs[r.Run] = true
	}

	if len(runs) != 998 || replies[0].Existing == replies[999].Existing {
		t.Errorf("%d runs", len(runs))
	}
	if n, err := s.Count(t.Context(), api.ListRequest{Tenant: "default", Workflows: []string{"order"}}); n != 998 || err != nil {
		t.Errorf("%d executions, %v", n, err)
	}
	_, err = newShelf(t).svc.StartMany(t.Context(), rs)
	wantKind(t, "of a store that is only read", err, fault.Denied)
}

func TestTaskOffersAreChecked(t *testing.T) {
	t.Parallel()
	s := live(t, service.Limits{})
	one := []string{"acme"}
	for _, o := range []model.TaskOffer{
		{Tenants: one, Queues: []string{"q"}, Kinds: []string{"k"}, Slots: 1},
		{Name: "w", Tenants: one, Kinds: []string{"k"}, Slots: 1},
		{Name: "w", Tenants: one, Queues: []string{"q"}, Slots: 1},
		{Name: "w", Tenants: one, Queues: []string{"q"}, Kinds: []string{""}, Slots: 1},
		{Name: "w", Tenants: one, Queues: []string{"q"}, Kinds: []string{"k"}},
		{Name: "w", Queues: []string{"q"}, Kinds: []string{"k"}, Slots: 1},
		{Name: "w", Tenants: []string{"acme", ""}, Queues: []string{"q"}, Kinds: []string{"k"}, Slots: 1},
	} {
		_, err := s.JoinTasks(t.Context(), nil, o)
		wantKind(t, fmt.Sprintf("%+v", o), err, fault.Invalid)
	}
	_, err := newShelf(t).svc.JoinTasks(t.Context(), nil, model.TaskOffer{})
	wantKind(t, "of a store that is only read", err, fault.Denied)
}

// The service refuses a report with an impossible time before it changes anything, so the worker
// keeps the claim.
func TestReportsAreChecked(t *testing.T) {
	t.Parallel()
	s := live(t, service.Limits{})
	w := &hands{claims: make(chan model.Claim, 1), settled: make(chan error, 1)}
	offer := model.TaskOffer{Name: "w", Tenants: []string{"default"}, Queues: []string{"q"}, Kinds: []string{"k"}, Slots: 1}
	session, err := s.JoinTasks(t.Context(), w, offer)
	if err != nil {
		t.Fatal(err)
	}

	defer func() {
		if err := session.Leave(t.Context()); err != nil {
			t.Error(err)
		}
	}()

	r := api.StartRequest{Address: model.Address{Tenant: "default", Type: "task:k", Key: "1"}, Task: &model.TaskSpec{Kind: "k", Queue: "q"}}
	if _, err := s.Start(t.Context(), r); err != nil {
		t.Fatal(err)
	}

	c := <-w.claims
	for _, bad := range []model.TaskReport{
		{Returned: true, After: -1},
		{Returned: true, After: math.MinInt64},
		{Returned: true, After: math.MaxInt64},
		{Failure: &model.Failure{}, RetryAfter: -1},
		{Failure: &model.Failure{}, RetryAfter: math.MaxInt64},
	} {
		bad.Ref = c.Ref
		wantKind(t, fmt.Sprint(bad.After, bad.RetryAfter), session.Report(t.Context(), bad), fault.Invalid)
	}

	beats, err := session.Beat(t.Context(), []api.Beat{{Claim: c.Ref}})
	if err != nil || !beats[0].Held {
		t.Errorf("after refused reports: %+v, %v", beats, err)
	}
	if err := session.Report(t.Context(), model.TaskReport{Ref: c.Ref}); err != nil {
		t.Error(err)
	}
	if err := <-w.settled; err != nil {
		t.Error(err)
	}
}

// hopeless fails every task that it gets.
type hopeless struct{ session chan api.TaskSession }

func (w *hopeless) Execute(claims []model.Claim) {
	go func() {
		s := <-w.session
		w.session <- s
		for _, c := range claims {
			_ = s.Report(context.Background(), model.TaskReport{Ref: c.Ref, Failure: &model.Failure{Message: "secret of acme", Permanent: true}})
		}
	}()
}
func (*hopeless) Stop(model.ClaimRef, model.StopReason) {}
func (*hopeless) Settle(model.ClaimRef, error)          {}

// deadTask lets a task with the key 1 fail permanently in a tenant. It returns the worker that
// failed the task, the address of the task, and the id of the dead task.
func deadTask(t *testing.T, s *service.Service, tenant string) (*hopeless, model.Address, api.DeadID) {
	t.Helper()
	ctx := t.Context()
	w := &hopeless{session: make(chan api.TaskSession, 1)}
	session, err := s.JoinTasks(ctx, w, model.TaskOffer{Name: "w", Tenants: []string{tenant}, Queues: []string{"q"}, Kinds: []string{"k"}, Slots: 1})
	if err != nil {
		t.Fatal(err)
	}

	w.session <- session
	a := model.Address{Tenant: tenant, Type: model.TaskPrefix + "k", Key: "1"}
	if end, err := s.Run(ctx, api.StartRequest{Address: a, Task: &model.TaskSpec{Kind: "k", Queue: "q"}}); err != nil || end.Outcome.Status != model.Failed {
		t.Fatalf("%+v, %v", end, err)
	}
	dead, err := s.ListDead(ctx, api.DeadRequest{Tenant: tenant})
	if err != nil || len(dead.Tasks) != 1 {
		t.Fatalf("%+v, %v", dead, err)
	}

	return w, a, dead.Tasks[0].ID
}

// requeue schedules a dead task again, and waits for the end of its execution.
func requeue(t *testing.T, s *service.Service, id api.DeadID, a model.Address) {
	t.Helper()
	if _, err := s.Requeue(t.Context(), api.RequeueRequest{ID: id}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Await(t.Context(), api.Target{Address: a}); err != nil {
		t.Fatal(err)
	}
}

// The id of a dead task of another tenant gives no access, and changes nothing.
func TestDeadTaskOfAnotherTenant(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := live(t, service.Limits{})
	_, _, theirs := deadTask(t, s, "acme")
	id, err := api.ParseDeadID(model.DefaultTenant, theirs.String())
	if err != nil {
		t.Fatal(err)
	}

	_, err = s.ShowDead(ctx, id)
	wantKind(t, "show", err, fault.NotFound)
	_, err = s.Requeue(ctx, api.RequeueRequest{ID: id})
	wantKind(t, "requeue", err, fault.NotFound)
	wantKind(t, "undo", s.UndoRequeue(ctx, api.UndoRequest{ID: id}), fault.NotFound)
	if err := s.PurgeDead(ctx, id); err != nil { // no error, as for a task that does not exist
		t.Error(err)
	}
	id.Tenant = "acme"
	if d, err := s.ShowDead(ctx, id); err != nil || d.ID != id || d.Requeued != 0 {
		t.Errorf("%+v, %v", d, err)
	}
}

// rotten is a store whose dead tasks cannot be read.
type rotten struct {
	*memory.Store
	rots atomic.Bool
}

func (r *rotten) LoadDead(ctx context.Context, key store.DeadKey) (*store.DeadRow, error) {
	row, err := r.Store.LoadDead(ctx, key)
	if row != nil && r.rots.Load() {
		err = fault.New(fault.Corrupt, "dead task %q of run %s: it is no dead task", key.Task, key.Run)
		row.Unreadable(store.ColumnsOf(&row.Body), err)
	}
	return row, err
}

// The service does not requeue a dead task that it cannot read, and says why. Only a client of the
// task's own tenant can remove it.
func TestPurgeOfADeadTaskThatCannotBeRead(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for _, groups := range [][]model.Group{nil, {{Name: "gpu", Shards: 4}}} {
		st := &rotten{Store: memory.New(memory.Options{Shards: shards + 4, Groups: groups})}
		s := run(t, engine.Config{Store: st}, service.Limits{})
		_, _, id := deadTask(t, s, "acme")
		st.rots.Store(true)
		_, err := s.ShowDead(ctx, id)
		wantKind(t, "show", err, fault.Corrupt)
		_, err = s.Requeue(ctx, api.RequeueRequest{ID: id})
		wantKind(t, "requeue", err, fault.Corrupt)

		theirs := id
		theirs.Tenant = model.DefaultTenant
		if err := s.PurgeDead(ctx, theirs); err != nil { // as for a task that does not exist
			t.Error(err)
		}
		left := func() int {
			t.Helper()
			page, err := s.ListDead(ctx, api.DeadRequest{Tenant: "acme"})
			if err != nil {
				t.Fatal(err)
			}
			return len(page.Tasks)
		}
		if left() != 1 {
			t.Error("another tenant has removed the dead task")
		}

		if err := s.PurgeDead(ctx, id); err != nil {
			t.Error(err)
		}
		if left() != 0 {
			t.Error("the dead task is still there")
		}
		if err := s.PurgeDead(ctx, id); err != nil { // it is gone already
			t.Error(err)
		}
	}
}

// The answer to a requeue was lost, and the client repeats the requeue with the same request id. It
// does so while the run of the requeue is open, and again after that run has ended. The client gets
// the same answer each time, and no other run starts.
func TestRequeueAgainIsRepeated(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := live(t, service.Limits{})
	w, a, id := deadTask(t, s, "default")
	requeue(t, s, id, a)
	gone := <-w.session // without its session, the worker reports nothing from now on
	again := api.RequeueRequest{ID: id, Again: true, RequestID: "mine"}
	first, err := s.Requeue(ctx, again)
	if err != nil || first.Existing {
		t.Fatalf("%+v, %v", first, err)
	}

	repeated := func(when string) {
		t.Helper()
		if reply, err := s.Requeue(ctx, again); err != nil || reply != first {
			t.Errorf("%s: %+v, %v; want %+v", when, reply, err, first)
		}
		if d, err := s.ShowDead(ctx, id); err != nil || d.Requeued != 2 {
			t.Errorf("%s: it was requeued %d times, %v", when, d.Requeued, err)
		}
	}

	repeated("while it is open")
	w.session <- gone
	if _, err := s.Await(ctx, api.Target{Address: first.Address, Run: first.Run}); err != nil {
		t.Fatal(err)
	}
	repeated("when it has ended")
}

// A requeue was undone, and its client repeats the request. The client still gets the address and
// the run that its requeue had begun.
func TestRequeueThatWasUndoneIsRepeated(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := live(t, service.Limits{})
	w, a, id := deadTask(t, s, "default")
	if err := (<-w.session).Leave(ctx); err != nil { // so that nothing begins the task
		t.Fatal(err)
	}
	r := api.RequeueRequest{ID: id, RequestID: "mine"}
	first, err := s.Requeue(ctx, r)
	if err != nil || first.Address != a {
		t.Fatalf("%+v, %v", first, err)
	}
	if err := s.UndoRequeue(ctx, api.UndoRequest{ID: id}); err != nil {
		t.Fatal(err)
	}
	if reply, err := s.Requeue(ctx, r); err != nil || reply != first {
		t.Errorf("%+v, %v; want %+v", reply, err, first)
	}
}

// The store's clock decides whether the start of a requeued run may still be in flight, because the
// clock of the caller may be wrong by hours.
func TestRequeuedRunThatIsGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		st := memory.New(memory.Options{Shards: shards, Now: func() time.Time { return time.Now().Add(3 * time.Hour) }})
		s := run(t, engine.Config{Store: st}, service.Limits{})
		_, a, id := deadTask(t, s, "default")
		requeue(t, s, id, a)
		if _, err := s.Delete(ctx, api.DeleteRequest{Target: api.Target{Address: a}}); err != nil {
			t.Fatal(err)
		}
		wantKind(t, "a purge when it may be on its way", s.PurgeDead(ctx, id), fault.Conflict)
		time.Sleep(2 * time.Minute)
		if err := s.PurgeDead(ctx, id); err != nil {
			t.Error(err)
		}
	})
}

// hands is a worker that takes tasks and never reports on them.
type hands struct {
	claims  chan model.Claim
	settled chan error
}

func (w *hands) Execute(claims []model.Claim) {
	for _, c := range claims {
		w.claims <- c
	}
}
func (*hands) Stop(model.ClaimRef, model.StopReason) {}
func (w *hands) Settle(_ model.ClaimRef, err error)  { w.settled <- err }

// slow is a store that accepts commits only when the test allows it.
type slow struct {
	store.Store
	gate atomic.Pointer[chan struct{}]
}

func (s *slow) Commit(ctx context.Context, b *store.Batch) (store.Committed, error) {
	if gate := s.gate.Load(); gate != nil {
		<-*gate
	}
	return s.Store.Commit(ctx, b)
}

// The progress of one task waits for a store that accepts nothing. The heartbeats of the other
// tasks still arrive, so that none of these tasks times out.
func TestBeatsWhileTheEngineIsFull(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := &slow{Store: memory.New(memory.Options{Shards: shards})}
		s := run(t, engine.Config{Store: st, InboxLimit: 1, Lane: lane.Config{MaxBatchRows: 1}}, service.Limits{})
		w := &hands{claims: make(chan model.Claim, 2), settled: make(chan error, 2)}
		session, err := s.JoinTasks(t.Context(), w, model.TaskOffer{Name: "w", Tenants: []string{"default"}, Queues: []string{"q"}, Kinds: []string{"k"}, Slots: 2})
		if err != nil {
			t.Fatal(err)
		}

		var beats []api.Beat
		for _, key := range []string{"a", "b"} {
			r := api.StartRequest{
				Address: model.Address{Tenant: "default", Type: model.TaskPrefix + "k", Key: key}, Task: &model.TaskSpec{Kind: "k", Queue: "q", Silence: 5 * time.Second},
			}
			if _, err := s.Start(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			beats = append(beats, api.Beat{Claim: (<-w.claims).Ref})
		}

		beats[0].Progress = &model.Payload{Data: []byte("1")}
		gate := make(chan struct{})
		st.gate.Store(&gate)
		for i := range 5 {
			go func() { _, _ = s.Start(context.Background(), api.StartRequest{Address: order(fmt.Sprint(i))}) }()
		}
		synctest.Wait()

		for range 20 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if _, err := session.Beat(ctx, beats); err == nil {
				t.Fatal("the engine is not full")
			}
			cancel()
		}

		st.gate.Store(nil)
		close(gate)
		synctest.Wait()

		for _, b := range beats {
			if err := session.Report(t.Context(), model.TaskReport{Ref: b.Claim}); err != nil {
				t.Error(err)
			}
			if err := <-w.settled; err != nil {
				t.Error(err)
			}
		}
	})
}

// A process that does not own a task can still say why the task waits. It reads the history of the
// task, the settings, and the workers of the queue.
func TestWhyATaskWaitsToldByAReader(t *testing.T) {
	t.Parallel()
	f := newShelf(t)
	run := 0

	why := func(spec model.TaskSpec, want string) {
		t.Helper()
		run++
		spec.Kind, spec.Queue = "render", "gpu"
		a := model.Address{Tenant: "default", Type: "task:render", Key: fmt.Sprint(run)}
		f.put(a, 0, 0, func(s *model.Start) { s.Task = &spec })
		d, err := f.svc.Describe(t.Context(), api.Target{Address: a})
		if err != nil {
			t.Fatal(err)
		}

		if len(d.Reasons) != 1 || !strings.Contains(d.Reasons[0].String(), want) {
			t.Errorf("it %v, want %q", d.Reasons, want)
		}
		page, err := f.svc.List(t.Context(), api.ListRequest{Tenant: model.DefaultTenant, Key: a.Key, Explain: true})
		if err != nil || len(page.Executions) != 1 || !slices.Equal(page.Executions[0].Reasons, d.Reasons) {
			t.Errorf("listed as %+v, %v; want %v", page.Executions, err, d.Reasons)
		}
	}

	why(model.TaskSpec{}, "waits for a worker that offers queue gpu, activity render")
	why(model.TaskSpec{Delay: time.Hour}, "waits for a timer until")
	if _, err := f.st.Renew(t.Context(), store.RenewRequest{
		Node: f.ref.Node, Epoch: f.ref.Epoch, TTL: time.Minute, Serves: []store.Served{{Tenant: "default", Worker: "w", Queues: []string{"gpu"}, Activities: []string{"render"}, Slots: 1}},
	}); err != nil {
		t.Fatal(err)
	}

	why(model.TaskSpec{}, "waits in line in queue gpu")
	why(model.TaskSpec{Limits: []string{"api"}}, "waits for limit api: no limit of that name is defined")
	if _, err := f.st.PutSetting(t.Context(), store.Setting{SettingKey: store.SettingKey{Tenant: "default", Kind: "queue", Name: "gpu"}, Body: []byte(`{"why":"deploy"}`)}, 0); err != nil {
		t.Fatal(err)
	}
	why(model.TaskSpec{}, "waits in queue gpu, which is paused: deploy")
}

// sharedMemory is a store in memory that claims to be shared by nodes, and counts the questions to
// nodes.
type sharedMemory struct {
	*memory.Store

	questions int
}

func (s *sharedMemory) Info() store.Info {
	i := s.Store.Info()
	i.Shared = true
	return i
}

func (s *sharedMemory) PutSetting(ctx context.Context, row store.Setting, expected int64) (int64, error) {
	if row.Kind == "limit_ask" {
		s.questions++
	}
	return s.Store.PutSetting(ctx, row, expected)
}

// For a page of tasks, the service asks each node once which tasks hold limits. The service does
// not ask any node if no task waits for a limit, or if the caller does not want reasons.
func TestAPageAsksOnceWhoHoldsLimits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newShelf(t)
		st := &sharedMemory{Store: f.st}
		f.svc = service.New(nil, st, service.Limits{})

		if _, err := f.st.Renew(t.Context(), store.RenewRequest{
			Node: f.ref.Node, Epoch: f.ref.Epoch, TTL: time.Hour, Serves: []store.Served{{Tenant: "default", Worker: "w", Queues: []string{"gpu"}, Activities: []string{"render"}, Slots: 1}},
		}); err != nil {
			t.Fatal(err)
		}

		limit := store.Setting{SettingKey: store.SettingKey{Tenant: "default", Kind: "limit", Name: "api"}, Body: []byte(`{"name":"api","per":"name","concurrency":1}`)}
		if _, err := f.st.PutSetting(t.Context(), limit, 0); err != nil {
			t.Fatal(err)
		}

		put := func(key string, spec model.TaskSpec) {
			spec.Kind, spec.Queue = "render", "gpu"
			f.put(model.Address{Tenant: "default", Type: "task:render", Key: key}, 0, 0, func(s *model.Start) { s.Task = &spec })
		}

		list := func(explain bool, questions int) {
			t.Helper()
			st.questions = 0
			page, err := f.svc.List(t.Context(), api.ListRequest{Tenant: model.DefaultTenant, Explain: explain})
			if err != nil || st.questions != questions {
				t.Errorf("%d questions for %d tasks, %v; want %d", st.questions, len(page.Executions), err, questions)
			}
		}

		put("free", model.TaskSpec{})
		put("late", model.TaskSpec{Delay: time.Hour, Limits: []string{"api"}})
		list(true, 0)
		for i := range 3 {
			put(fmt.Sprint(i), model.TaskSpec{Limits: []string{"api"}})
		}
		list(true, 1)
		list(false, 0)
	})
}
