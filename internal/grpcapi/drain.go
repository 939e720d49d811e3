package grpcapi

import (
	"context"
	"sync"
	"time"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
)

// defaultDrain is how long a worker may take to finish what it runs when it is asked to drain.
const defaultDrain = 30 * time.Second

// errDrained ends the session of a worker that was asked to drain.
var errDrained = fault.New(fault.Unavailable, "the server has asked the worker to connect again")

// drain lets a worker finish what it holds and gives it nothing new. When drain returns, this node
// has given the worker its last work, unless ctx has ended first. When the worker has finished, the
// session ends, and the worker connects again. After the time limit the engine takes back what the
// worker still holds. Taking a task back uses up none of its attempts. Other workers continue the
// runs.
func (s *session) drain(ctx context.Context, within time.Duration) {
	s.mu.Lock()
	if s.over {
		s.mu.Unlock()
		return
	}
	if !s.draining {
		s.beginDrain(within)
	}
	asked := s.asked
	s.mu.Unlock()
	select {
	case <-asked:
	case <-ctx.Done():
	}
}

// beginDrain asks the worker to drain. The caller must hold the lock of the session.
func (s *session) beginDrain(within time.Duration) {
	s.draining, s.asked, s.drained = true, make(chan struct{}), make(chan struct{})
	if s.detached == nil {
		within = 0 // the worker is away and does not get the request
	}
	workflows := s.workflows
	roles := s.giveUpRoles()
	s.work.running.Go(func() {
		s.work.cfg.Log.Info("worker drains", "session", s.id, "tenant", s.tenant, "within", within)
		ctx, cancel := context.WithTimeout(s.ctx, within)
		defer cancel()
		// The worker gets the request only after the engine has withdrawn it. Otherwise the worker
		// could get a run after it has given others back.
		withdraw(ctx, roles)
		s.post(&pb.ServerItem{Item: &pb.ServerItem_Drain{Drain: &pb.Drain{Patience: int64(within)}}})
		close(s.asked)

		var all sync.WaitGroup
		for _, role := range roles {
			// An error means only that the time was too short.
			all.Go(func() { _ = role.Leave(ctx) })
		}
		all.Wait()
		if workflows != nil {
			workflows.letGo()
		}
		close(s.drained)
		s.end(errDrained)
	})
}

// leaver is the engine's side of a worker in one role.
type leaver interface {
	Leave(ctx context.Context) error
}

// giveUpRoles returns the roles that the worker still has, and notes that it gives them up. The
// caller must hold the lock of the session.
func (s *session) giveUpRoles() (roles []leaver) {
	add := func(role pb.Role, session leaver) {
		if !s.left[role] {
			roles = append(roles, session)
		}
		s.left[role] = true
	}
	if s.workflows != nil {
		add(pb.Role_ROLE_WORKFLOWS, s.workflows.session)
	}
	if s.tasks != nil {
		add(pb.Role_ROLE_TASKS, s.tasks.session)
	}
	if s.entities != nil {
		add(pb.Role_ROLE_ENTITIES, s.entities.session)
	}
	return roles
}

// withdraw makes the engine give a worker nothing new. It returns when the worker holds everything
// that the engine has given it, or when ctx ends.
func withdraw(ctx context.Context, roles []leaver) {
	for _, role := range roles {
		switch role := role.(type) {
		case api.Withdrawer:
			role.Withdraw(ctx)
		case api.TaskSession:
			role.Slots(0)
		}
	}
}
