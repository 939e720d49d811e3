package service_test

import (
	"fmt"
	"testing"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/service"
)

// bury submits a task that fails permanently and becomes a dead task. bury returns the session of
// the worker, the request that submitted the task, and the id of the dead task.
func bury(t *testing.T, s *service.Service) (api.TaskSession, api.StartRequest, api.DeadID) {
	t.Helper()
	w := &hopeless{session: make(chan api.TaskSession, 1)}
	session, err := s.JoinTasks(t.Context(), w, model.TaskOffer{Tenants: []string{model.DefaultTenant}, Name: "w", Queues: []string{"q"}, Kinds: []string{"k"}, Slots: 1})
	if err != nil {
		t.Fatal(err)
	}
	w.session <- session
	r := api.StartRequest{
		Address: model.Address{Tenant: "default", Type: model.TaskPrefix + "k", Key: "1"}, Task: &model.TaskSpec{Kind: "k", Queue: "q"}, Input: model.Payload{Data: []byte("in")},
	}
	if _, err := s.Run(t.Context(), r); err != nil {
		t.Fatal(err)
	}

	dead, err := s.ListDead(t.Context(), api.DeadRequest{Tenant: model.DefaultTenant})
	if err != nil || len(dead.Tasks) != 1 {
		t.Fatalf("%+v, %v", dead, err)
	}
	return session, r, dead.Tasks[0].ID
}

// A task that was requeued with another input, cancelled and retried still belongs to its first
// submission. A repetition of that submission finds the task. A submission with the other input
// gets a conflict while the task is open. After the end of the task it can start a new task.
func TestRetriedTaskKnowsItsOrigin(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := live(t, service.Limits{})
	session, r, id := bury(t, s)
	if err := session.Leave(ctx); err != nil {
		t.Fatal(err)
	}
	other := model.Payload{Data: []byte("other")}
	if _, err := s.Requeue(ctx, api.RequeueRequest{ID: id, Input: &other}); err != nil {
		t.Fatal(err)
	}
	var run model.RunID
	for range 2 {
		if err := s.Cancel(ctx, api.CancelRequest{Target: api.Target{Address: r.Address}}); err != nil {
			t.Fatal(err)
		}
		again, err := s.Retry(ctx, api.PastRequest{Source: api.Target{Address: r.Address}})
		if err != nil || again.Run.IsZero() {
			t.Fatalf("%+v, %v", again, err)
		}
		run = again.Run
	}
	if reply, err := s.Start(ctx, r); err != nil || reply.Run != run || !reply.Existing {
		t.Errorf("submitted again: %+v, %v; want run %s", reply, err, run)
	}
	r.Input = other
	_, err := s.Start(ctx, r)
	wantKind(t, "submitted with the other input", err, fault.Conflict)

	if err := s.Cancel(ctx, api.CancelRequest{Target: api.Target{Address: r.Address}}); err != nil {
		t.Fatal(err)
	}
	r.Reuse = model.ReuseIfFailed // a new submission, which starts with its own input
	for existing := range 2 {
		if reply, err := s.Start(ctx, r); err != nil || reply.Existing != (existing == 1) {
			t.Errorf("submitted with the other input after the end of the task: %+v, %v", reply, err)
		}
	}
}

// A dead task is requeued twice, and the second requeue is undone. Normally, a request without
// Again returns the run of the last requeue. Here that run no longer exists, so the service refuses
// the request, also as a dry run. The service accepts a request with Again.
func TestRequeueOfWhatWasUndone(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := live(t, service.Limits{})
	session, r, id := bury(t, s)
	first, err := s.Requeue(ctx, api.RequeueRequest{ID: id})
	if err != nil {
		t.Fatal(err)
	}

	if _, err := s.Await(ctx, api.Target{Address: r.Address}); err != nil {
		t.Fatal(err)
	}
	if reply, err := s.Requeue(ctx, api.RequeueRequest{ID: id, DryRun: true}); err != nil || reply.Run != first.Run || reply.Address != first.Address || !reply.Existing {
		t.Errorf("a dry run after the first requeue: %+v, %v", reply, err)
	}
	if err := session.Leave(ctx); err != nil {
		t.Fatal(err)
	}

	if _, err := s.Requeue(ctx, api.RequeueRequest{ID: id, Again: true}); err != nil {
		t.Fatal(err)
	}
	if err := s.UndoRequeue(ctx, api.UndoRequest{ID: id}); err != nil {
		t.Fatal(err)
	}

	for _, dry := range []bool{true, false} {
		reply, err := s.Requeue(ctx, api.RequeueRequest{ID: id, DryRun: dry})
		wantKind(t, fmt.Sprintf("dry run %v: %+v", dry, reply), err, fault.Conflict)
	}

	if reply, err := s.Requeue(ctx, api.RequeueRequest{ID: id, DryRun: true, Again: true}); err != nil || reply.Address.IsZero() || reply.Existing {
		t.Errorf("a dry run with Again: %+v, %v", reply, err)
	}
}

// Two operators requeue a dead task with the same new input. The second one gets the run of the
// first, also as a dry run. An operator with another input gets a conflict.
func TestRequeueWithTheSameInput(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := live(t, service.Limits{})
	session, _, id := bury(t, s)
	if err := session.Leave(ctx); err != nil { // so that the requeued task stays open
		t.Fatal(err)
	}
	input := func(text string) *model.Payload { return &model.Payload{Data: []byte(text)} }
	first, err := s.Requeue(ctx, api.RequeueRequest{ID: id, Input: input("new")})
	if err != nil || first.Existing {
		t.Fatalf("%+v, %v", first, err)
	}

	for _, dry := range []bool{true, false} {
		again, err := s.Requeue(ctx, api.RequeueRequest{ID: id, Input: input("new"), DryRun: dry})
		if err != nil || !again.Existing || again.Run != first.Run || again.Address != first.Address {
			t.Errorf("the same input, dry run %v: %+v, %v; want %+v", dry, again, err, first)
		}
		_, err = s.Requeue(ctx, api.RequeueRequest{ID: id, Input: input("other"), DryRun: dry})
		wantKind(t, fmt.Sprintf("another input, dry run %v", dry), err, fault.Conflict)
	}
	if d, err := s.ShowDead(ctx, id); err != nil || d.Requeued != 1 {
		t.Errorf("it was requeued %d times, %v", d.Requeued, err)
	}
}
