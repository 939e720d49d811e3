package grpcapi

import (
	"context"
	"sync"
	"time"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/fault"
)

// defaultDrain is how long a worker may take to finish what it runs when it is asked to drain.
const defaultDrain = 30 * time.Second

// errDrained ends the session of a worker that was asked to drain.
var errDrained = fault.New(fault.Unavailable, "the server has asked the worker to connect again")

// drain lets a worker finish what it holds and gives it nothing new. When the worker has finished,
// drain ends the session, and the worker connects again. After the time limit the engine takes back
// what the worker still holds. Taking a task back uses up none of its attempts. Other workers
// continue the runs.
func (s *session) drain(within time.Duration) {
	s.mu.Lock()
	if s.over || s.draining {
		s.mu.Unlock()
		return
	}
	s.draining, s.drained = true, make(chan struct{})
	if s.detached == nil {
		within = 0 // the worker is away and does not get the request
	}
	workflows := s.workflows
	leaves := map[pb.Role]func(context.Context) error{}
	if s.workflows != nil {
		leaves[pb.Role_ROLE_WORKFLOWS] = s.workflows.session.Leave
	}
	if s.tasks != nil {
		leaves[pb.Role_ROLE_TASKS] = s.tasks.session.Leave
	}
	if s.entities != nil {
		leaves[pb.Role_ROLE_ENTITIES] = s.entities.session.Leave
	}
	for role := range leaves {
		if s.left[role] {
			delete(leaves, role) // the worker itself has asked to leave
		}
		s.left[role] = true
	}
	s.mu.Unlock()

	s.work.cfg.Log.Info("worker drains", "session", s.id, "tenant", s.tenant, "within", within)
	s.post(&pb.ServerItem{Item: &pb.ServerItem_Drain{Drain: &pb.Drain{Patience: int64(within)}}})
	s.work.running.Go(func() {
		ctx, cancel := context.WithTimeout(s.ctx, within)
		defer cancel()
		var all sync.WaitGroup
		for _, leave := range leaves {
			all.Go(func() { _ = leave(ctx) }) // an error means only that the time was too short
		}
		all.Wait()
		if workflows != nil {
			workflows.letGo()
		}
		close(s.drained)
		s.end(errDrained)
	})
}
