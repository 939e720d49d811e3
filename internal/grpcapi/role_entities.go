package grpcapi

import (
	"context"
	"sync"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/wire"
)

// entityRole is a remote worker that has the code of entities and services.
type entityRole struct {
	s       *session
	session api.EntitySession
	// interruptible says that the worker knows interruptions. An older worker would end the session
	// if it got an interruption.
	interruptible bool

	mu   sync.Mutex
	held map[uint64]model.Address // hand-overs that the worker has not reported, by generation
}

func (s *session) joinEntities(j *pb.Join) error {
	r := &entityRole{s: s, held: map[uint64]model.Address{}, interruptible: j.GetInterruptible()}
	offer := wire.ReadEntityJoin(s.tenant, j)
	offer.Remote = s.remote(pb.Role_ROLE_ENTITIES)
	session, err := s.work.cfg.Backend.JoinEntities(s.ctx, r, offer)
	if err != nil {
		return err
	}
	r.session = session
	s.mu.Lock()
	s.entities = r
	over := s.over
	s.mu.Unlock()
	if over {
		r.lose()
	}
	return nil
}

// lose takes back the calls of a worker that is gone. Other workers run them.
func (r *entityRole) lose() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = r.session.Leave(ctx) // the error only says that calls are still running
}

func (r *entityRole) Operate(o model.Operations) {
	r.mu.Lock()
	r.held[o.Generation] = o.Entity
	r.mu.Unlock()
	r.s.post(&pb.ServerItem{Item: &pb.ServerItem_Operations{Operations: wire.Operations(&o)}})
}

// Interrupt interrupts a call that the worker has.
func (r *entityRole) Interrupt(i model.Interruption) {
	r.mu.Lock()
	entity, ok := r.held[i.Generation]
	r.mu.Unlock()
	if ok && entity == i.Entity && r.interruptible {
		r.s.post(&pb.ServerItem{Item: &pb.ServerItem_Interruption{Interruption: wire.Interruption(i)}})
	}
}

// finishCalls reports the results of a hand-over that the worker has.
func (r *entityRole) finishCalls(m *pb.Operated) error {
	o, err := wire.ReadOperated(r.s.tenant, m)
	if err != nil {
		return err
	}
	r.mu.Lock()
	entity, ok := r.held[o.Generation]
	if ok && entity == o.Entity {
		delete(r.held, o.Generation)
	}
	r.mu.Unlock()
	if !ok || entity != o.Entity {
		return nil
	}
	_ = r.session.FinishCalls(r.s.ctx, o) // on an error the calls run again on the next worker
	return nil
}
