package grpcapi

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
)

// drainBackend is a backend whose sessions call withdrawing when the engine must give their workers
// nothing new.
type drainBackend struct {
	api.Backend

	withdrawing func(role string)
}

func (b *drainBackend) Join(context.Context, api.Worker, api.Offer) (api.Session, error) {
	return drainRuns{backend: b}, nil
}

func (b *drainBackend) JoinTasks(context.Context, api.TaskWorker, model.TaskOffer) (api.TaskSession, error) {
	return drainTasks{backend: b}, nil
}

func (b *drainBackend) JoinEntities(context.Context, api.EntityWorker, model.EntityOffer) (api.EntitySession, error) {
	return drainCalls{backend: b}, nil
}

type drainRuns struct {
	api.Session

	backend *drainBackend
}

func (s drainRuns) Withdraw(context.Context)    { s.backend.withdrawing("runs") }
func (s drainRuns) Leave(context.Context) error { return nil }

type drainTasks struct {
	api.TaskSession

	backend *drainBackend
}

func (s drainTasks) Slots(int)                   { s.backend.withdrawing("tasks") }
func (s drainTasks) Leave(context.Context) error { return nil }

type drainCalls struct {
	api.EntitySession

	backend *drainBackend
}

func (s drainCalls) Withdraw(context.Context)    { s.backend.withdrawing("calls") }
func (s drainCalls) Leave(context.Context) error { return nil }

// The engine gives a worker nothing new from the moment at which the worker gets the request to
// drain, and at which the operator gets the answer. Otherwise a run that starts right after that
// could go to the worker that drains.
func TestDrainingWorkerIsWithdrawnBeforeItLearnsThat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		withdrawn := map[string]bool{}
		b := &drainBackend{}
		w := NewWork(WorkConfig{Backend: b})
		s := newSession(w, "session", "default", "worker")
		_, done := s.attach(t.Context())
		defer done()
		for _, role := range []pb.Role{pb.Role_ROLE_WORKFLOWS, pb.Role_ROLE_TASKS, pb.Role_ROLE_ENTITIES} {
			if err := s.join(&pb.Join{Role: role, Name: "w", Kinds: []string{"kind"}, Queues: []string{"q"}, Slots: 1}); err != nil {
				t.Fatal(err)
			}
		}

		b.withdrawing = func(role string) {
			for _, it := range s.link.Unacknowledged() {
				if it.GetDrain() != nil {
					t.Errorf("the worker gets the request before the engine withdraws its %s", role)
				}
			}
			synctest.Wait() // everything else that can run has run
			withdrawn[role] = true
		}
		s.drain(t.Context(), time.Hour)
		for _, role := range []string{"runs", "tasks", "calls"} {
			if !withdrawn[role] {
				t.Errorf("the engine may still give the worker %s", role)
			}
		}
		<-s.ended
	})
}
