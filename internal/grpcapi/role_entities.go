package grpcapi

import (
	"context"
	"errors"
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
	held map[uint64]heldCalls // hand-overs that the worker has not reported, by generation
}

// heldCalls is a hand-over of calls of an entity.
type heldCalls struct {
	entity model.Address
	stream int // the first stream of the session that can have brought it to the worker
}

func (s *session) joinEntities(j *pb.Join) error {
	r := &entityRole{s: s, held: map[uint64]heldCalls{}, interruptible: j.GetInterruptible()}
	offer := wire.ReadEntityJoin(s.tenant, j)
	offer.Remote = s.remote(pb.Role_ROLE_ENTITIES)
	session, err := s.work.cfg.Backend.JoinEntities(s.ctx, r, offer)
	if err != nil {
		return err
	}
	r.session = session
	s.mu.Lock()
	s.entities = r
	over, why := s.over, s.why
	s.mu.Unlock()
	if over {
		r.end(why)
	}
	return nil
}

// end ends the role together with its session. Other workers run the calls that the worker had. If
// the worker has disappeared, the engine counts that, so that it can set aside a call that kills
// several workers.
func (r *entityRole) end(why error) {
	for _, orderly := range []error{errDraining, errRenewed, errDrained, errGoodbye} {
		if errors.Is(why, orderly) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			_ = r.session.Leave(ctx) // the error only says that calls are still running
			return
		}
	}

	r.session.Lose(r.unseen)
}

// unseen returns the hand-overs that cannot have reached the worker of a session that has ended.
func (r *entityRole) unseen() (generations []uint64) {
	last := r.s.lastStream()
	r.mu.Lock()
	defer r.mu.Unlock()
	for generation, h := range r.held {
		if h.stream > last {
			generations = append(generations, generation)
		}
	}
	return generations
}

func (r *entityRole) Operate(o model.Operations) {
	stream := r.s.nextStream()
	r.mu.Lock()
	r.held[o.Generation] = heldCalls{o.Entity, stream}
	r.mu.Unlock()
	r.s.post(&pb.ServerItem{Item: &pb.ServerItem_Operations{Operations: wire.Operations(&o)}})
}

// Interrupt interrupts a call that the worker has.
func (r *entityRole) Interrupt(i model.Interruption) {
	r.mu.Lock()
	h, ok := r.held[i.Generation]
	r.mu.Unlock()
	if ok && h.entity == i.Entity && r.interruptible {
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
	h, ok := r.held[o.Generation]
	if ok && h.entity == o.Entity {
		delete(r.held, o.Generation)
	}
	r.mu.Unlock()
	if !ok || h.entity != o.Entity {
		return nil
	}
	_ = r.session.FinishCalls(r.s.ctx, o) // on an error the calls run again on the next worker
	return nil
}
